"""What the logs of a training say of its interruptions: resumes with their proofs, spikes and what followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.tolerances import tolerance
from tasks.verify import training_logs as logs

Lines = Sequence[Mapping[str, Any]]

SPIKES = {"spikes_noted": "noted", "spikes_skipped": "skipped", "spikes_passed_over": "passed over"}
"""Metric to what a line of `metrics.jsonl` says of its step."""


def allowed(settings: Mapping[str, Any]) -> float:
    """Relative difference of a repeated computation, by the device and precision of `settings.json`; else none."""
    if not settings:
        return 0.0
    return tolerance(settings["device"]["kind"], settings["requested"]["compute"]).repeated


def _allowed_elsewhere(settings: Mapping[str, Any]) -> float:
    """The same for a resume on another device or with other libraries, which a person confirmed."""
    return tolerance(settings["device"]["kind"], settings["requested"]["compute"]).regrouped


def beyond(was: float, now: float, share: float) -> float:
    """How much two values differ beyond a relative tolerance; the whole difference where there is none."""
    return max(0.0, abs(now - was) - share * abs(was))


def interruptions(artifacts: Path, confirmed: Lines = ()) -> dict[str, Metric]:
    """The metrics of resumes and spikes of one training. `confirmed` are the differences that a person confirmed."""
    sessions, steps = logs.lines(artifacts / "sessions.jsonl"), logs.lines(artifacts / "metrics.jsonl")
    proofs = logs.lines(artifacts / "continuity.jsonl")
    found = {name: _spikes(steps, what) for name, what in SPIKES.items()}
    return found | {
        "roll_backs": Metric(value=len(logs.lines(artifacts / "spikes.jsonl")), unit="count"),
        "resumes_unproven": _unproven(sessions, proofs, logs.document(artifacts / "settings.json"), confirmed),
        "continuity_checked": Metric(value=sum(_compared(line) for line in proofs), unit="count"),
    }


def _spikes(steps: Lines, what: str) -> Metric:
    if not steps:
        return logs.missing("steps", "metrics.jsonl")
    return Metric(value=sum(line.get("spike") == what for line in steps), unit="steps")


def _compared(proof: Mapping[str, Any]) -> int:
    """Losses that a proof compared: one pinned batch, or so many steps that were trained again."""
    return int(proof["steps"]) or 1


def _unproven(sessions: Lines, proofs: Lines, settings: Mapping[str, Any], confirmed: Lines) -> Metric:
    """Sessions that began at a checkpoint, whose steps are part of the result, and whose pinned batch did not bring
    the loss that it had, or that went on under differences which nobody confirmed. A session whose successor begins
    where it began itself left nothing in the result."""
    if not sessions or not settings:
        return logs.missing("count", "sessions.jsonl or settings.json")
    changed = {int(s["session"]): s.get("confirmed") or [] for s in sessions}
    proven = set()
    for line in proofs:
        rows = changed.get(int(line["session"]), [])
        share = _allowed_elsewhere(settings) if rows else allowed(settings)
        same = line["proof"] == "pinned batch" and abs(line["largest_difference"]) <= share * abs(line.get("loss", 0.0))
        if same and all(row in confirmed for row in rows):
            proven.add(int(line["session"]))
    following = [int(s["from_step"]) for s in sessions[1:]]
    unproven = 0
    for number, session in enumerate(sessions):
        begun = int(session["from_step"])
        lasting = number == len(following) or following[number] > begun
        unproven += begun > 0 and lasting and int(session["session"]) not in proven
    return Metric(value=unproven, unit="count")
