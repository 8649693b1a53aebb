"""Ask the person at the terminal about an open gate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from flows.cli.output import tell
from specs.errors import GatewrightError

_KEYS = "[a]pprove  [s]et a parameter and approve  [w] rework  [x] reject  [l]eave: "


def asker(workspace: Any, progress: Any) -> Callable[[], bool] | None:
    """A function that shows the open gate and records the person's decision; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask() -> bool:
        from flows.cli.find import open_ledger

        pause = getattr(progress, "pause", None)
        if pause:
            pause()
        try:
            return _ask(workspace, open_ledger(workspace.project_dir))
        finally:
            if pause:
                progress.resume()

    return ask


def _ask(workspace: Any, ledger: Any) -> bool:
    from rich.console import Console
    from rich.markdown import Markdown

    from flows.reviewing import gate_facts, page

    facts = gate_facts(workspace, ledger)
    console = Console(stderr=True, emoji=False)
    console.print(Markdown(page(facts)))
    if facts.report:
        tell(f"report with plots: {facts.report}")
    while True:
        try:
            decision = _one_answer(facts)
        except EOFError:
            return False
        if decision is None:
            return False
        if not decision:
            continue
        try:
            _record(workspace, ledger, facts, decision)
        except GatewrightError as error:
            tell(f"refused: {error.message}\n  way out: {error.hint}")
            continue
        return True


def _one_answer(facts: Any) -> dict[str, Any] | None:
    """The decision as keywords; empty to ask again; None to leave the gate open."""
    answer = _prompt(_KEYS).lower()
    if answer in ("l", "leave", "q", ""):
        return None
    approvers = [a.id for a in facts.spec.policy.approvers]
    actor = approvers[0] if len(approvers) == 1 else _prompt(f"who decides ({', '.join(approvers)}): ")
    if answer in ("a", "approve"):
        decision: dict[str, Any] = {"choice": "approve", "actor": actor}
        if facts.gate.blocked:
            tell("a blocking criterion failed: approving overrides it and needs a reason")
            decision.update(override=True, comment=_prompt("reason: "))
        return decision
    if answer in ("s", "set"):
        key, _, value = _prompt("parameter=value: ").partition("=")
        return {"choice": "approve", "actor": actor, "edits": {key.strip(): value.strip()}}
    if answer in ("w", "rework"):
        return {"choice": "rework", "actor": actor, "comment": _prompt("what should change: ")}
    if answer in ("x", "reject"):
        return {"choice": "reject", "actor": actor, "comment": _prompt("why: ")}
    return {}


def _record(workspace: Any, ledger: Any, facts: Any, decision: dict[str, Any]) -> None:
    from flows.deciding import record

    record(workspace, ledger, authentication="terminal", expected_digest=facts.gate.digest, **decision)
    tell(f"recorded: {decision['choice']} by {decision['actor']}")


def _prompt(text: str) -> str:
    sys.stderr.write(text)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
