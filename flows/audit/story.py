"""The story of a run for people, differences first; and the plain list of its events."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.audit.history import History, read_history
from flows.audit.words import state_word, word
from flows.folding import Attempt, Gate
from flows.gatefiles import load_proposal
from flows.ledger import Ledger
from flows.ledger.chain import timestamp
from specs.base import Language
from specs.criteria import Verdict
from specs.errors import GatewrightError
from specs.events import FallbackTaken, LeaseTaken, RunStopped
from specs.proposals import Expectation


def list_events(ledger: Ledger, run: str, kinds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every event of a run, or those of some kinds, as plain data."""
    return [
        {
            "sequence": event.sequence,
            "at": timestamp(event.at),
            "actor": event.actor,
            "kind": event.kind,
            "payload": event.payload,
            "hash": event.hash,
        }
        for event in ledger.events(run)
        if not kinds or event.kind in kinds
    ]


def show(ledger: Ledger, run: str, run_dir: Path, language: Language = "en") -> str:
    """The story as text with a line per fact. It holds people's words as they are: print it without markup."""
    history = read_history(ledger, run, run_dir)
    state, created = history.state, history.state.created
    lines = [
        word(
            language,
            "title",
            run=run,
            project=created.project if created else "?",
            state=state_word(language, state.state),
        )
    ]
    if created and state.created_at:
        lines.append("  " + word(language, "begun", at=_when(state.created_at), code=created.code[:24]))
    if created and created.solo:
        lines.append("  " + word(language, "solo"))
    differences = _differences(history, language)
    lines += ["", word(language, "differences")]
    lines += [f"  - {text}" for text in differences or [word(language, "no_differences")]]
    for stage in state.order:
        body = [line for gate in _rounds(history, stage) for line in _gate(gate, language)]
        body += [line for a in state.attempts.get(stage, []) for line in _attempt(history, a, language)]
        if body:
            lines += ["", stage, *(f"  {line}" for line in body)]
    if state.release:
        lines.append("  " + word(language, "released", folder=state.release.folder))
    return "\n".join(lines) + "\n"


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _rounds(history: History, name: str) -> list[Gate]:
    return [gate for (gate_name, _), gate in sorted(history.state.gates.items()) if gate_name == name]


def _differences(history: History, language: Language) -> list[str]:
    found: list[str] = []
    for stage in history.state.stages:
        for attempt in history.state.attempts.get(stage, []):
            found += _failures(attempt, language)
    for (name, _), gate in sorted(history.state.gates.items(), key=lambda item: item[1].opened_at):
        decision = gate.decision
        if decision is None:
            continue
        if decision.override:
            found.append(word(language, "override", actor=decision.actor, gate=name, comment=decision.comment))
        if decision.choice == "rework":
            found.append(word(language, "rework", actor=decision.actor, gate=name, comment=decision.comment))
        found += [
            word(language, "edit", actor=decision.actor, path=path, value=value, gate=name)
            for path, value in sorted(decision.edits.items())
        ]
    for _, fallback in history.of(FallbackTaken):
        found.append(word(language, "fallback", **fallback.model_dump(exclude={"version"})))
    for _, lease in history.of(LeaseTaken):
        if lease.taken_over_from:
            found.append(word(language, "takeover", owner=lease.taken_over_from))
    for _, stopped in history.of(RunStopped):
        found.append(word(language, "stopped_at", stage=stopped.stage, reason=stopped.reason))
    return found


def _failures(attempt: Attempt, language: Language) -> list[str]:
    values = {"stage": attempt.stage, "attempt": attempt.number}
    if attempt.state == "failed":
        return [word(language, "crashed", message=attempt.message, **values)]
    if attempt.state == "abandoned":
        return [word(language, "abandoned", message=attempt.message, **values)]
    return [
        word(
            language,
            "failed",
            metric=v.metric,
            value=_number(v.value),
            op=v.op,
            bound=_number(v.bound),
            kind=word(language, "blocking" if v.blocking else "warning"),
            **values,
        )
        for v in attempt.verdicts or ()
        if not v.passed
    ]


def _gate(gate: Gate, language: Language) -> list[str]:
    lines = [word(language, "gate", gate=gate.name, round=gate.round, at=_when(gate.opened_at))]
    decision = gate.decision
    if decision is None or gate.decided_at is None:
        return [*lines, "  " + word(language, "waits")]
    how = word(language, decision.authentication)
    if decision.self_approved:
        how += ", " + word(language, "self_approved")
    choice = word(language, "rework_choice" if decision.choice == "rework" else decision.choice)
    at = _when(gate.decided_at)
    lines.append("  " + word(language, "decision", choice=choice, actor=decision.actor, at=at, how=how))
    if decision.comment:
        lines.append(f"  “{decision.comment}”")
    return lines


def _attempt(history: History, attempt: Attempt, language: Language) -> list[str]:
    lines = [word(language, "attempt", attempt=attempt.number, state=state_word(language, attempt.state))]
    if not attempt.evidence:
        return lines
    evidence = history.evidence(attempt.stage, attempt.number)
    if evidence is None:
        return [*lines, "  " + word(language, "no_evidence")]
    expected = {e.metric: e for e in _expected(history, attempt)}
    verdicts = {v.metric: v for v in evidence.verdicts}
    rows = [tuple(word(language, "header").split("|"))]
    names = [name for name in evidence.metrics if name in expected or name in verdicts]
    for name in sorted(names, key=lambda n: (verdicts[n].passed if n in verdicts else True, n)):
        metric, wanted, verdict = evidence.metrics[name], expected.get(name), verdicts.get(name)
        actual = f"{_number(metric.value)} {metric.unit}".strip()
        rows.append(
            (name, f"{_number(wanted.value)} {wanted.unit}" if wanted else "-", actual, _verdict(verdict, language))
        )
    return lines + [f"  {line}" for line in _table(rows)]


def _expected(history: History, attempt: Attempt) -> list[Expectation]:
    """What the sheet and the approved proposals said of a stage; a proposal, being later, wins."""
    found: dict[str, Expectation] = {}
    for gate, sheet in (("data", True), (attempt.stage, False)):
        digest = history.state.approved_proposal(gate)
        try:
            proposal = load_proposal(history.run_dir, digest) if digest else None
        except GatewrightError:
            continue
        if proposal is None:
            continue
        stages = proposal.task_sheet.stages if sheet and proposal.task_sheet else []
        found.update({e.metric: e for s in stages if s.name == attempt.stage for e in s.expected})
        if not sheet:
            found.update({e.metric: e for e in proposal.expected})
    return list(found.values())


def _verdict(verdict: Verdict | None, language: Language) -> str:
    if verdict is None:
        return "-"
    return f"{verdict.op} {_number(verdict.bound)} {word(language, 'passed' if verdict.passed else 'not_passed')}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
