"""The story of a run for people, differences first; and the plain list of its events."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from agents.report_texts import stage_title
from agents.stage_report import metric_title
from flows.audit.history import BULK, History, stored_rows
from flows.audit.report import visible
from flows.audit.words import state_word, word
from flows.gatefiles import load_proposal
from flows.ledger import Ledger
from flows.ledger.chain import opened, timestamp
from flows.run_state import Attempt, Gate
from specs.base import Language
from specs.costs import STAGE_SECONDS
from specs.criteria import Metric, Verdict
from specs.errors import GatewrightError, InputError
from specs.events import (
    PAYLOADS,
    FallbackTaken,
    JudgementOverruled,
    LeaseTaken,
    MemoryRung,
    ResumeConfirmed,
    RunClosed,
    RunStopped,
    TrialEnded,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.proposals import Expectation
from specs.units import human
from specs.words import nearest

KEEP = BULK - {"inputs.hashed", "checkpoint.saved", "prefect.attached"}
"""The bulk kinds that the story tells of; `read_history(..., keep=KEEP)` keeps them."""

_TOLD = 20
_OPS = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥", "<": "<", ">": ">"}


def list_events(
    ledger: Ledger, run: str, kinds: Sequence[str] = (), *, last: int | None = None
) -> Iterator[dict[str, Any]]:
    """The events of a run as plain data, one at a time; those of some kinds, the last few.

    Raises `InputError` for an unknown run or kind.
    """
    row = ledger.run(run)
    for kind in kinds:
        if kind not in PAYLOADS:
            close = nearest(kind, PAYLOADS)
            hint = f"did you mean {close[0]}?" if close else "docs/events.md lists the kinds"
            raise InputError(f"{kind!r} is no kind of event", hint)
    return _listed(ledger, row.run, frozenset(kinds), last)


def _listed(ledger: Ledger, run: str, kinds: frozenset[str], last: int | None) -> Iterator[dict[str, Any]]:
    for row in stored_rows(ledger, run, kinds, last):
        event = opened(row)
        yield {
            "sequence": event.sequence,
            "at": timestamp(event.at),
            "actor": event.actor,
            "kind": event.kind,
            "payload": event.payload,
            "hash": event.hash,
        }


def show(history: History, language: Language = "en") -> str:
    """The story as text with a line per fact; the history must hold `KEEP`.

    It holds people's words, with what cannot be seen made visible: print it without markup.
    """
    state, created = history.state, history.state.created
    project, says = created.project if created else "?", state_word(language, state.state)
    lines = [word(language, "title", run=history.run, project=project, state=says)]
    if created and state.created_at:
        lines.append("  " + word(language, "begun", at=_when(state.created_at), code=created.code[:24]))
    if created and created.solo:
        lines.append("  " + word(language, "solo"))
    differences = Counter(_differences(history, language))
    told = [text + (word(language, "times", count=count) if count > 1 else "") for text, count in differences.items()]
    lines += ["", word(language, "differences")]
    lines += [f"  - {text}" for text in told or [word(language, "no_differences")]]
    for stage in state.order:
        body = [line for gate in _rounds(history, stage) for line in _gate(gate, language)]
        body += _work(history, stage, language)
        body += [line for a in state.attempts.get(stage, []) for line in _attempt(history, a, language)]
        if body:
            lines += ["", stage_title(language, stage), *(f"  {line}" for line in body)]
    if state.release:
        lines.append("  " + word(language, "released", folder=state.release.folder))
    return "\n".join(visible(line) for line in lines) + "\n"


def _work(history: History, stage: str, language: Language) -> list[str]:
    """What people handed in for a stage, and when it had been handed out."""
    lines = []
    for event, payload in zip(history.events, history.payloads, strict=True):
        if isinstance(payload, WorkHandedOut) and payload.stage == stage:
            names = ", ".join(sorted(payload.files))
            lines.append(word(language, "handed_out", names=names, round=payload.round, at=_when(event.at)))
        if isinstance(payload, WorkHandedIn) and payload.stage == stage:
            how, digest = word(language, payload.authentication), payload.sha256[:12]
            said = {"actor": event.actor, "at": _when(event.at), "how": how, "digest": digest}
            lines.append(word(language, "handed_in", **said))
    return lines


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _rounds(history: History, name: str) -> list[Gate]:
    return [gate for (gate_name, _), gate in sorted(history.state.gates.items()) if gate_name == name]


def _differences(history: History, language: Language) -> list[str]:
    found: list[str] = []
    for stage in history.state.stages:
        for attempt in history.state.attempts.get(stage, []):
            found += _failures(history, attempt, language)
    for (name, _), gate in sorted(history.state.gates.items(), key=lambda item: item[1].opened_at):
        decision, title = gate.decision, stage_title(language, name)
        found += [
            word(language, "edit", actor=said.decision.actor, path=path, value=value, gate=title)
            for said in gate.amendments
            for path, value in sorted(said.decision.edits.items())
        ]
        if gate.expired_at is not None:
            found.append(word(language, "expired", gate=title, at=_when(gate.expired_at)))
        if decision is None:
            continue
        said = {"actor": decision.actor, "gate": title, "comment": decision.comment}
        found += [word(language, what, **said) for what in ("rework", "reject_at") if what.startswith(decision.choice)]
        if decision.override:
            found.append(word(language, "override", **said))
        found += [
            word(language, "edit", actor=decision.actor, path=path, value=value, gate=title)
            for path, value in sorted(decision.edits.items())
        ]
    for told in (_fallbacks, _takeovers, _stops, _closings, _removals):
        found += told(history, language)
    return found


def _fallbacks(history: History, language: Language) -> list[str]:
    texts = []
    for _, fallback in history.of(FallbackTaken):
        values = fallback.model_dump(exclude={"version", "stage"})
        texts.append(word(language, "fallback", stage=stage_title(language, fallback.stage), **values))
    return _few(texts, history.kinds[FallbackTaken.kind], FallbackTaken.kind, language)


def _takeovers(history: History, language: Language) -> list[str]:
    taken = [lease for _, lease in history.of(LeaseTaken) if lease.taken_over_from]
    texts = [word(language, "takeover", owner=lease.taken_over_from) for lease in taken]
    return _few(texts, len(texts), LeaseTaken.kind, language)


def _stops(history: History, language: Language) -> list[str]:
    texts = [
        word(language, "stopped_at", stage=stage_title(language, stopped.stage), reason=stopped.reason)
        for _, stopped in history.of(RunStopped)
    ]
    return _few(texts, history.kinds[RunStopped.kind], RunStopped.kind, language)


def _closings(history: History, language: Language) -> list[str]:
    found = []
    for event, closed in history.of(RunClosed):
        found.append(word(language, "closed", actor=event.actor, reason=closed.reason))
        found += [word(language, "lost", what=what) for what in closed.lost]
    return found


def _removals(history: History, language: Language) -> list[str]:
    reasons = Counter(reason for _, reason in history.files.removed.values())
    return [word(language, "removed", count=count, reason=reason) for reason, count in sorted(reasons.items())]


def _few(texts: list[str], count: int, kind: str, language: Language) -> list[str]:
    """The first of many, and how many more there are; `count` may be more than were kept."""
    if count <= _TOLD:
        return texts
    return [*texts[:_TOLD], word(language, "more", count=count - _TOLD, kind=kind)]


def _failures(history: History, attempt: Attempt, language: Language) -> list[str]:
    values = {"stage": stage_title(language, attempt.stage), "attempt": attempt.number}
    if attempt.state == "failed":
        return [word(language, "crashed", message=attempt.message, **values)]
    if attempt.state == "abandoned":
        return [word(language, "abandoned", message=attempt.message, **values)]
    return [
        word(
            language,
            "failed",
            metric=metric_title(attempt.stage, v.metric, language, history.spec),
            value=human(v.value, v.unit, language),
            op=_OPS[v.op],
            bound=human(v.bound, v.unit, language),
            kind=word(language, "blocking" if v.blocking else "warning"),
            **values,
        )
        for v in attempt.verdicts or ()
        if v.outcome in ("failed", "warning")
    ]


def _gate(gate: Gate, language: Language) -> list[str]:
    title = stage_title(language, gate.name)
    lines = [word(language, "gate", gate=title, round=gate.round, at=_when(gate.opened_at))]
    for said in sorted((*gate.amendments, *gate.approvals), key=lambda said: said.at):
        given = said.decision
        how, at = word(language, given.authentication), _when(said.at)
        key = "amended" if given.edits else "approval"
        lines.append("  " + word(language, key, actor=given.actor, at=at, how=how))
        lines += [f"  “{given.comment}”"] if given.comment else []
    if gate.expired_at is not None:
        return [*lines, "  " + word(language, "expired", gate=title, at=_when(gate.expired_at))]
    decision = gate.decision
    if decision is None or gate.decided_at is None:
        return [*lines, "  " + word(language, "waits")]
    how = word(language, decision.authentication)
    if decision.self_approved:
        how += ("，" if language == "zh" else ", ") + word(language, "self_approved")
    choice = word(language, "rework_choice" if decision.choice == "rework" else decision.choice)
    at = _when(gate.decided_at)
    lines.append("  " + word(language, "decision", choice=choice, actor=decision.actor, at=at, how=how))
    if decision.comment:
        lines.append(f"  “{decision.comment}”")
    return lines


def _attempt(history: History, attempt: Attempt, language: Language) -> list[str]:
    lines = [word(language, "attempt", attempt=attempt.number, state=state_word(language, attempt.state))]
    lines += [*_rungs(history, attempt, language), *_trials(history, attempt, language)]
    lines += _went_on(history, attempt, language)
    if not attempt.evidence:
        return lines
    evidence = history.evidence(attempt.stage, attempt.number)
    if evidence is None:
        return [*lines, "  " + word(language, "no_evidence")]
    expected = {e.metric: e for e in _expected(history, attempt)}
    verdicts = {v.metric: v for v in evidence.verdicts}
    rows = [tuple(word(language, "header").split("|"))]
    came = dict(evidence.metrics)
    if (whole := evidence.measured(STAGE_SECONDS)) is not None:
        came[STAGE_SECONDS] = whole
    names = [name for name in came if name in expected or name in verdicts]
    for name in sorted(names, key=lambda n: (verdicts[n].passed if n in verdicts else True, n)):
        metric, wanted = came[name], expected.get(name)
        rows.append(
            (
                metric_title(attempt.stage, name, language, history.spec),
                human(wanted.value, wanted.unit, language) if wanted else "-",
                human(metric.value, metric.unit, language),
                _verdict(verdicts.get(name), metric, language),
            )
        )
    return lines + [f"  {line}" for line in _table(rows)]


def _rungs(history: History, attempt: Attempt, language: Language) -> list[str]:
    """The out-of-memory ladder of an attempt, a line a rung; nothing where the approved configuration ran."""
    found = [r for _, r in history.of(MemoryRung) if (r.stage, r.attempt) == (attempt.stage, attempt.number)]
    lines = [word(language, "ladder", count=len(found))] if found else []
    for rung in found:
        changes = ", ".join(f"{path} = {value}" for path, value in rung.changes.items())
        outcome = word(language, "rung_taken" if rung.taken else f"rung_{rung.outcome}")
        parts = [part for part in (changes, outcome, "" if rung.outcome == "runs" else rung.why) if part]
        lines.append("  " + word(language, "rung", number=rung.number, rung=rung.rung, said="; ".join(parts)))
    return lines


def _went_on(history: History, attempt: Attempt, language: Language) -> list[str]:
    """Who let this attempt go on after it had ended, and on what ground."""
    lines = []
    for event, said in zip(history.events, history.payloads, strict=True):
        if not isinstance(said, JudgementOverruled | ResumeConfirmed):
            continue
        if (said.stage, said.attempt) != (attempt.stage, attempt.number):
            continue
        values = {"actor": event.actor, "how": word(language, said.authentication), "reason": said.reason}
        if isinstance(said, JudgementOverruled):
            lines.append("  " + word(language, "overruled", verdict=said.verdict, **values))
            continue
        lines.append("  " + word(language, "confirmed", **values))
        lines += [f"    {row.what}: {row.was} -> {row.now}" for row in said.differences]
    return lines


def _trials(history: History, attempt: Attempt, language: Language) -> list[str]:
    """The small trials of an attempt: how many, and a line for each that did not end as it should."""
    found = [r for _, r in history.of(TrialEnded) if (r.stage, r.attempt) == (attempt.stage, attempt.number)]
    if not found:
        return []
    seconds = sum(r.seconds or 0.0 for r in found)
    lines = [word(language, "trials", count=len(found), time=human(seconds, "s", language))]
    for trial in (r for r in found if r.outcome != "ended"):
        said = word(language, f"trial_{trial.outcome}")
        values = {"name": trial.name, "seed": trial.seed, "why": trial.why}
        lines.append("  " + word(language, "trial", number=trial.number, said=said, **values))
    return lines


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


def _verdict(verdict: Verdict | None, metric: Metric, language: Language) -> str:
    if verdict is None:
        return "-"
    bound = human(verdict.bound, metric.unit, language)
    key = "not_passed" if verdict.outcome == "failed" else verdict.outcome
    return f"{_OPS[verdict.op]} {bound} {word(language, key)}"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
