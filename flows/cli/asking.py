"""Ask the person at the terminal about an open gate. Whatever is typed, the gate stays open or is decided."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flows.cli.output import internal_error, readable, tell
from specs.errors import GatewrightError, InputError

_KEYS = "[a]pprove  [s]et a parameter and approve  [w] rework  [x] reject  [l]eave: "


def asker(workspace: Any, progress: Any) -> Callable[[], bool] | None:
    """A function that shows the open gate and records the person's decision; None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask() -> bool:
        from flows.cli.find import ledger_of_run

        pause = getattr(progress, "pause", None)
        if pause:
            pause()
        try:
            return _ask(workspace, ledger_of_run(workspace))
        finally:
            if pause:
                progress.resume()

    return ask


def _ask(workspace: Any, ledger: Any) -> bool:
    from flows.reviewing import gate_facts

    facts = gate_facts(workspace, ledger)
    _show(facts, ledger)
    while True:
        try:
            with _signals_interrupt():
                decision = _one_answer(facts)
        except (EOFError, OSError, KeyboardInterrupt):  # no more input, the terminal is gone, Ctrl-C: leave
            tell("\nthe gate stays open")
            return False
        except GatewrightError as error:
            _refuse(error)
            continue
        except UnicodeDecodeError:
            _refuse(InputError("what was typed is not UTF-8 text", "type it in a terminal that uses UTF-8"))
            continue
        if decision is None:
            return False
        recorded = _record(workspace, ledger, facts, decision) if decision else None
        if recorded is not None:
            return recorded
        if decision and _edited_meanwhile(workspace, ledger, facts):
            facts = gate_facts(workspace, ledger)
            _show(facts, ledger)


def _show(facts: Any, ledger: Any) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    from flows.rehearsing import rehearsal_note
    from flows.reviewing import page

    console = Console(stderr=True, emoji=False)
    console.print(Markdown(page(facts)))
    if note := rehearsal_note(facts.workspace, ledger, facts.state, facts.gate.name, facts.proposal):
        tell(note)
    if facts.report:
        tell(f"report with plots: {facts.report}")


def _refuse(error: GatewrightError) -> None:
    tell(f"refused: {error.message}\n  way out: {error.hint}")


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While a person is asked nothing is unsaved: a signal ends the question at once, and the run waits.

    The handlers of the run around it only ask for a stop, which a read of the terminal would never see.
    """
    from tasks.interrupts import SIGNALS, STOP

    if threading.current_thread() is not threading.main_thread():  # Python allows no handlers here
        yield
        return
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before: dict[int, Any] = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, signal.default_int_handler)
        if STOP.requested():  # it came between two questions
            raise KeyboardInterrupt
        yield
    except KeyboardInterrupt:
        STOP.clear()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _one_answer(facts: Any) -> dict[str, Any] | None:
    """The decision as keywords; empty to ask again; None to leave the gate open."""
    answer = _prompt(_KEYS).lower()
    if answer in ("l", "leave", "q", ""):
        return None
    if answer not in ("a", "approve", "s", "set", "w", "rework", "x", "reject"):
        return {}
    rules = facts.policy.at(facts.gate.name)
    people = facts.waiting.waits_for if answer in ("a", "approve", "s", "set") else rules.reviewers
    people = people or rules.reviewers
    actor = people[0] if len(people) == 1 else _prompt(f"who decides ({', '.join(people)}): ")
    if answer in ("w", "rework"):
        return {"choice": "rework", "actor": actor, "comment": _prompt("what should change: ")}
    if answer in ("x", "reject"):
        return {"choice": "reject", "actor": actor, "comment": _prompt("why: ")}
    decision: dict[str, Any] = {"choice": "approve", "actor": actor}
    if answer in ("s", "set"):
        key, sign, value = (part.strip() for part in _prompt("parameter=value: ").partition("="))
        if not (key and sign and value):
            raise InputError("that is not parameter=value", "for example lr=1e-4")
        decision["edits"] = {key: value}
    if facts.gate.blocked:
        for finding in facts.gate.findings:
            tell(f"the sheet leaves open: {finding.text}; write: {finding.sentence}")
        what = "the sheet leaves this open" if facts.gate.findings else "a blocking criterion failed"
        tell(f"{what}: approving overrides it and needs a reason")
        decision.update(override=True, comment=_prompt("reason: "))
    elif "approve" in rules.comment_required:
        decision["comment"] = _prompt("comment: ")
    return decision


def _record(workspace: Any, ledger: Any, facts: Any, decision: dict[str, Any]) -> bool | None:
    """Record the decision, or say why not.

    Returns whether the gate is decided now, by this or by somebody else; None to ask again.
    """
    from flows.deciding import record
    from flows.standing import sentence

    try:
        proof = _proof(facts.policy.at(facts.gate.name).authentication)
        named = {"expected_digest": facts.gate.digest, "name": facts.gate.name}
        made = record(workspace, ledger, **named, **proof, **decision)
    except GatewrightError as error:
        _refuse(error)
        return _decided(workspace, ledger, facts) or None
    except Exception as error:  # a value that no check foresaw must not end the run
        _refuse(internal_error(error))
        return _decided(workspace, ledger, facts) or None
    tell(f"recorded: {decision['choice']} by {decision['actor']}")
    if made["kind"] == "decision.recorded":
        return True
    tell(f"the gate stays open: {sentence(made)}")
    return False


def _proof(least: str) -> dict[str, Any]:
    """How the person at this terminal proves who decides: as the gate asks for, else by typing it here."""
    from flows.tokens import VARIABLE

    proof: dict[str, Any] = {"authentication": "terminal"}
    if least == "ssh_signature":
        proof["key"] = "default"
    elif token := os.environ.get(VARIABLE):
        proof["token"] = token
    return proof


def _edited_meanwhile(workspace: Any, ledger: Any, facts: Any) -> bool:
    """Whether the gate shows something else by now: somebody edited the proposal, and it must be seen first."""
    from flows.state import fold

    gate = fold(ledger.events(workspace.run)).gate
    return gate is not None and gate.digest != facts.gate.digest


def _decided(workspace: Any, ledger: Any, facts: Any) -> bool:
    from flows.state import fold

    gate = fold(ledger.events(workspace.run)).gate
    return gate is None or gate.closed or (gate.name, gate.round) != (facts.gate.name, facts.gate.round)


def _prompt(text: str) -> str:
    sys.stderr.write(text)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return readable(line.strip())
