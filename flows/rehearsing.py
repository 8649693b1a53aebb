"""Rehearsals: whether one passed, for which configuration, and who may not train without one.

A rehearsal goes through the same gates as a run in earnest, decided by the same people, because it is there to show
that the whole chain works, the gates among it. It has no release gate: nothing of it can be released. Training on
several devices needs a passed one of the same configuration, base model and samples.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from flows.ledger import Ledger
from flows.reviewing import evidence_of
from flows.state import RunState
from flows.workspace import Workspace, frozen_spec
from specs.bilingual import Texts
from specs.canonical import sha256_file
from specs.criteria import Criterion, blocked
from specs.errors import GuardRefused, InputError
from specs.events import RunFinished
from specs.project import Project
from specs.proposals import Proposal

TRAIN = "train"

_TEXTS = Texts(
    {
        "rehearsed": (
            "Rehearsal {run} passed under other criteria than this run has: {differences}. "
            "It shows that the chain works, not that what is asked now would be reached.",
            "预演 {run} 是按另一套准则通过的，与本次运行不同：{differences}。"
            "它证明流程可行，不证明现在的要求能够达到。",
        ),
        "unreadable": (
            "The spec of rehearsal {run} cannot be read: its criteria cannot be compared with those of this run.",
            "无法读取预演 {run} 的规格，因此无法与本次运行的准则比较。",
        ),
        "now": ("{stage}: {now}, rehearsed {before}", "{stage}：{now}，预演时 {before}"),
        "none": ("no criterion", "无此准则"),
        "blocking": ("{metric} {op} {bound:g}", "{metric} {op} {bound:g}"),
        "warning": ("{metric} {op} {bound:g} (a warning)", "{metric} {op} {bound:g}（仅警告）"),
    }
)


def finished_record(workspace: Workspace, state: RunState) -> RunFinished:
    """The record that ends a run; of a rehearsal with the configuration that it rehearsed and whether it passed."""
    if not is_rehearsal(state):
        return RunFinished()
    return RunFinished(rehearsed=fingerprint_of(workspace, state, TRAIN), passed=not failed_stages(state))


def is_rehearsal(state: RunState) -> bool:
    """Whether a run is a rehearsal."""
    return state.created is not None and state.created.rehearsal is not None


def failed_stages(state: RunState) -> list[str]:
    """The stages without verdicts, or with a blocking criterion that failed; one that was overridden failed too."""
    found = {stage: state.current(stage) for stage in state.stages}
    return [
        s for s, attempt in found.items() if attempt is None or blocked(attempt.verdicts or ()) or not attempt.verdicts
    ]


def fingerprint_of(workspace: Workspace, state: RunState, stage: str) -> str:
    """The fingerprint that a stage measured or trained under. Raises `InputError` when its file is not as published."""
    evidence = evidence_of(workspace, state)[stage]
    path = workspace.attempt(stage, evidence.attempt) / "artifacts" / "settings.json"
    published = {a.path: a.sha256 for a in evidence.artifacts}
    if not path.is_file() or sha256_file(path) != published.get("artifacts/settings.json"):
        raise InputError(f"{path} is missing or was changed", "restore it from a backup, or make the stage anew")
    return str(json.loads(path.read_bytes())["fingerprint"])


def devices_of(parameters: Mapping[str, Any]) -> int:
    """How many processes a proposal trains in, each on a device of its own."""
    return int((parameters.get("training") or {}).get("ranks") or 1)


def required_rehearsal(
    workspace: Workspace, ledger: Ledger, state: RunState, gate: str, parameters: Mapping[str, Any]
) -> str:
    """The rehearsal that an approval at a gate rests on; empty where none is needed.

    Raises `GuardRefused` at the gate of a training on several devices that nobody has rehearsed.
    """
    devices = devices_of(parameters) if gate == TRAIN else 1
    if devices < 2 or is_rehearsal(state):
        return ""
    fingerprint = fingerprint_of(workspace, state, "stress_test")
    found = passed_rehearsal(ledger, state.created.project if state.created else "", fingerprint)
    if found is None:
        raise GuardRefused(
            f"a training in {devices} processes needs a passed rehearsal of the same configuration, and there is none",
            f"gatewright run {shlex.quote(str(workspace.project_dir))} --rehearse 0.01 makes one; this gate waits",
        )
    return found


def passed_rehearsal(ledger: Ledger, project: str, fingerprint: str) -> str | None:
    """The newest rehearsal of a project that passed under a fingerprint."""
    for row in ledger.runs(project, states=("finished",)):
        for event in reversed(ledger.events(row.run)):
            payload = event.read()
            if isinstance(payload, RunFinished):
                if payload.passed and payload.rehearsed == fingerprint:
                    return row.run
                break
    return None


def rehearsed_otherwise(workspace: Workspace, run: str, spec: Project) -> str:
    """In words how the criteria of the rehearsal `run` differ from those of `spec`; empty where they do not.

    What a rehearsal loosens by itself is no difference. The fingerprint that a rehearsal passed under holds the
    configuration alone: criteria are edited without training anything else.
    """
    language = spec.language
    try:
        before = frozen_spec(Workspace(workspace.project_dir, run))
    except InputError:
        return _TEXTS(language, "unreadable", run=run)
    ours, theirs = _criteria(spec), _criteria(before)
    changed = [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key)]
    if not changed:
        return ""
    said = [
        _TEXTS(
            language,
            "now",
            stage=stage,
            now=_said(ours, stage, metric, spec),
            before=_said(theirs, stage, metric, spec),
        )
        for stage, metric in changed
    ]
    return _TEXTS(language, "rehearsed", run=run, differences=("；" if language == "zh" else "; ").join(said))


def _criteria(spec: Project) -> dict[tuple[str, str], list[Criterion]]:
    """The criteria of a run in earnest by stage and metric."""
    earnest = spec.model_copy(update={"rehearsal": None})
    found: dict[tuple[str, str], list[Criterion]] = {}
    for stage in earnest.graph.stages:
        for criterion in earnest.criteria(stage):
            found.setdefault((stage, criterion.metric), []).append(criterion)
    return found


def _said(criteria: Mapping[tuple[str, str], list[Criterion]], stage: str, metric: str, spec: Project) -> str:
    words = [
        _TEXTS(spec.language, "blocking" if c.blocking else "warning", metric=c.metric, op=c.op, bound=c.bound)
        for c in criteria.get((stage, metric), [])
    ]
    return ", ".join(words) or _TEXTS(spec.language, "none")


def rehearsal_note(workspace: Workspace, ledger: Ledger, state: RunState, gate: str, proposal: Proposal) -> str:
    """What a person should know of the rehearsal that an approval would rest on; empty where nothing is to be said."""
    try:
        run = required_rehearsal(workspace, ledger, state, gate, proposal.parameters)
    except (GuardRefused, InputError):  # approving says so
        return ""
    return rehearsed_otherwise(workspace, run, frozen_spec(workspace)) if run else ""
