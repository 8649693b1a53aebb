"""Ask the person at the terminal about an open gate. Whatever is typed, the gate stays open or is decided."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flows.cli.language import of_run
from flows.cli.output import internal_error, readable, tell
from flows.cli.run_words import run_word
from specs.base import Language
from specs.errors import GatewrightError, InputError


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

    language = "en" if workspace is None else of_run(workspace.folder)
    facts = gate_facts(workspace, ledger)
    _show(facts, ledger, language)
    while True:
        try:
            with _signals_interrupt():
                decision = _one_answer(facts, language)
        except (EOFError, OSError, KeyboardInterrupt):  # no more input, the terminal is gone, Ctrl-C: leave
            tell(run_word(language, "stays_open"))
            return False
        except GatewrightError as error:
            _refuse(error, language)
            continue
        except UnicodeDecodeError:
            _refuse(InputError("what was typed is not UTF-8 text", "type it in a terminal that uses UTF-8"), language)
            continue
        if decision is None:
            return False
        recorded = _record(workspace, ledger, facts, decision, language) if decision else None
        if recorded is not None:
            return recorded
        if decision and _edited_meanwhile(workspace, ledger, facts):
            facts = gate_facts(workspace, ledger)
            _show(facts, ledger, language)


def _show(facts: Any, ledger: Any, language: Language) -> None:
    from rich.console import Console

    from flows.cli.pages import Page
    from flows.folding import rework_target
    from flows.rehearsing import rehearsal_note
    from flows.reviewing import page

    console = Console(stderr=True, emoji=False)
    console.print(Page(page(facts)))
    if note := rehearsal_note(facts.workspace, ledger, facts.state, facts.gate.name, facts.proposal):
        tell(note)
    if facts.report:
        tell(run_word(language, "report", path=facts.report))
    if facts.gate.blocked and not facts.gate.findings:
        tell(
            run_word(
                language, "blocked_ways", stage=rework_target(facts.state, facts.gate, None), run=facts.workspace.run
            )
        )


def _refuse(error: GatewrightError, language: Language) -> None:
    tell(run_word(language, "refused", message=error.message, hint=error.hint))


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


def _one_answer(facts: Any, language: Language) -> dict[str, Any] | None:
    """The decision as keywords; empty to ask again; None to leave the gate open."""

    def prompt(key: str, **values: object) -> str:
        return _prompt(run_word(language, key, **values))

    answer = prompt("keys").lower()
    if answer in ("l", "leave", "q", ""):
        return None
    if answer not in ("a", "approve", "s", "set", "w", "rework", "x", "reject"):
        return {}
    rules = facts.policy.at(facts.gate.name)
    people = facts.waiting.waits_for if answer in ("a", "approve", "s", "set") else rules.reviewers
    people = people or rules.reviewers
    actor = people[0] if len(people) == 1 else prompt("who_decides", people=", ".join(people))
    if answer in ("w", "rework"):
        return {"choice": "rework", "actor": actor, "comment": prompt("what_changes")}
    if answer in ("x", "reject"):
        why = prompt("why_reject")
        return {"choice": "reject", "actor": actor, "comment": why} if why else {}
    decision: dict[str, Any] = {"choice": "approve", "actor": actor}
    if answer in ("s", "set"):
        key, sign, value = (part.strip() for part in prompt("parameter").partition("="))
        if not (key and sign and value):
            raise InputError("that is not parameter=value", "for example lr=1e-4")
        decision["edits"] = {key: value}
    if facts.gate.blocked:
        for finding in facts.gate.findings:
            tell(run_word(language, "sheet_open", text=finding.text, sentence=finding.sentence))
        tell(run_word(language, "overrides_sheet" if facts.gate.findings else "overrides_criterion"))
        decision.update(override=True, comment=prompt("reason"))
    elif "approve" in rules.comment_required:
        decision["comment"] = prompt("comment")
    return decision


def _record(workspace: Any, ledger: Any, facts: Any, decision: dict[str, Any], language: Language) -> bool | None:
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
        _refuse(error, language)
        return _decided(workspace, ledger, facts) or None
    except Exception as error:  # a value that no check foresaw must not end the run
        _refuse(internal_error(error), language)
        return _decided(workspace, ledger, facts) or None
    choice = run_word(language, decision["choice"])
    tell(run_word(language, "recorded_here", choice=choice, actor=decision["actor"]))
    if made["kind"] == "decision.recorded":
        return True
    tell(run_word(language, "stays_open_for", sentence=sentence(made, language)))
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
