"""Recompute a published attempt's metrics and verdicts, and compare them with what was recorded."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from flows import runner
from flows.ledger import Ledger
from flows.proposing import model_of
from flows.removal import removed_files
from flows.state import fold
from flows.workspace import Workspace, code_version, frozen_spec
from specs.base import Strict
from specs.criteria import Metric, Verdict
from specs.decisions import GateDocument
from specs.errors import GatewrightError, VerificationFailed
from specs.results import Evidence, list_artifacts
from tasks.registry import definition


class StageVerification(Strict):
    """What recomputing one attempt gave; `differences` in words, empty when all is as recorded.

    `removed` names artifacts that were removed on request: with one of them gone, metrics cannot be recomputed.
    """

    stage: str
    attempt: int
    ok: bool
    metrics: dict[str, Metric]
    verdicts: list[Verdict]
    differences: list[str]
    removed: list[str] = Field(default_factory=list)
    newer: list[str] = Field(default_factory=list, description="what the code of that time did not measure or judge")


def verify_stage(workspace: Workspace, ledger: Ledger, stage: str) -> StageVerification | None:
    """Recompute the attempt of a stage that counts; None when the stage has no published attempt."""
    state = fold(ledger.events(workspace.run))
    attempt = state.current(stage)
    if attempt is None or attempt.state != "published":
        return None
    spec = frozen_spec(workspace)
    folder = workspace.attempt(stage, attempt.number)
    evidence = _evidence(folder)
    removed = _removed(workspace, ledger, state.created.project if state.created else "", folder, evidence)
    differences = _file_differences(folder, evidence, removed)
    if removed:
        return StageVerification(
            stage=stage,
            attempt=attempt.number,
            ok=not differences,
            metrics={},
            verdicts=[],
            differences=differences,
            removed=removed,
        )
    asked = definition(spec, stage).inputs
    earlier = state.inputs(list(asked.values()))
    inputs = {n: workspace.attempt(given, earlier[given].number) for n, given in asked.items() if given in earlier}
    model = model_of(workspace, spec)
    context = {
        "run": workspace.run,
        "stage": stage,
        "attempt": attempt.number,
        "project_dir": str(workspace.project_dir),
        "spec": spec.model_dump(mode="json"),
        "parameters": runner.stored_parameters(folder),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "base_model": str(model.folder),
        "base_model_sha256": model.sha256,
        "out_dir": str(folder),
        "checkpoints_dir": str(workspace.checkpoints(stage, attempt.number)),
    }
    try:
        metrics, verdicts = runner.recompute(spec, stage, folder, inputs, context)
    except Exception as error:
        if not differences:
            raise
        return StageVerification(  # from damaged files nothing follows, however it fails
            stage=stage,
            attempt=attempt.number,
            ok=False,
            metrics={},
            verdicts=[],
            differences=[*differences, _not_recomputed(error)],
        )
    newer = _newer(evidence, metrics, verdicts) if _code_of(folder) != code_version() else []
    differences += _metric_differences(evidence.metrics, metrics, newer)
    differences += _verdict_differences(evidence.verdicts, verdicts, newer)
    return StageVerification(
        stage=stage,
        attempt=attempt.number,
        ok=not differences,
        metrics=metrics,
        verdicts=verdicts,
        differences=differences,
        newer=newer,
    )


def _evidence(folder: Path) -> Evidence:
    path = folder / "evidence.json"
    try:
        return Evidence.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise VerificationFailed(
            f"{path} is no evidence that can be read: {error.strerror if isinstance(error, OSError) else 'damaged'}",
            "put it back as it was when the attempt was published; `gatewright audit verify` says what else changed",
        ) from error


def _not_recomputed(error: Exception) -> str:
    """Why no metric follows from changed files, and the way out."""
    if isinstance(error, GatewrightError):
        return f"metrics cannot be recomputed: {error.message}; {error.hint}" if error.hint else error.message
    first = (str(error).splitlines() or [""])[0][:200]
    return (
        f"metrics cannot be recomputed, because the files above hold what the stage never writes "
        f"({type(error).__name__}: {first}); put them back as they were, or let the stage write new ones: gatewright "
        "rework, at the gate after it"
    )


def _code_of(folder: Path) -> str:
    """The code version that the attempt's gate was opened with; empty where there is no gate to say so."""
    gate = folder / "gate.json"
    return GateDocument.model_validate_json(gate.read_bytes()).code if gate.is_file() else ""


def _newer(evidence: Evidence, metrics: dict[str, Metric], verdicts: list[Verdict]) -> list[str]:
    """Metrics and criteria of today's code that the attempt's own code had not: no difference, and said."""
    judged = {_named(v) for v in evidence.verdicts}
    return [
        *sorted(metrics.keys() - evidence.metrics.keys()),
        *sorted({_named(v) for v in verdicts if v.metric not in evidence.metrics} - judged),
    ]


def _named(verdict: Verdict) -> str:
    return f"{verdict.metric} {verdict.op} {verdict.bound:g}"


def _removed(workspace: Workspace, ledger: Ledger, project: str, folder: Path, evidence: Evidence) -> list[str]:
    """Artifacts that are gone because somebody asked for it, and that the record knows by the same digest."""
    below = folder.relative_to(workspace.folder).as_posix()
    known = removed_files(ledger, project, workspace.run)
    return sorted(
        a.path
        for a in evidence.artifacts
        if (gone := known.get(f"{below}/{a.path}")) and gone.sha256 == a.sha256 and not (folder / a.path).exists()
    )


def _file_differences(folder: Path, evidence: Evidence, removed: list[str]) -> list[str]:
    listed = {a.path: a for a in evidence.artifacts if a.path not in removed}
    try:
        found = {a.path: a for a in list_artifacts(folder, "artifacts", "plots")}
    except OSError as error:
        raise VerificationFailed(
            f"{error.filename} cannot be read: {error.strerror}",
            "give yourself the right to read it, or put it back as it was, and verify again",
        ) from error
    lines = [f"{path} is missing" for path in sorted(listed.keys() - found.keys())]
    lines += [f"{path} is not in the evidence" for path in sorted(found.keys() - listed.keys())]
    return lines + [f"{p} was changed" for p in sorted(listed.keys() & found.keys()) if listed[p] != found[p]]


def _metric_differences(recorded: dict[str, Metric], now: dict[str, Metric], newer: list[str]) -> list[str]:
    lines = []
    for name in sorted((recorded.keys() | now.keys()) - set(newer)):
        before, after = recorded.get(name), now.get(name)
        old, new = (m.value if m else None for m in (before, after))
        if (old is None) != (new is None) or (
            old is not None and new is not None and not math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12)
        ):
            lines.append(f"{name}: recorded {old}, recomputed {new}")
        elif before and after and after.applies and not before.applies:  # older code judged more, never less
            lines.append(f"{name}: recorded as not applicable ({before.reason}), recomputed {new}")
    return lines


def _verdict_differences(recorded: list[Verdict], now: list[Verdict], newer: list[str]) -> list[str]:
    before, after = ({_named(v): v.passed for v in verdicts} for verdicts in (recorded, now))
    return [
        f"criterion {name}: recorded {before.get(name)}, recomputed {after.get(name)}"
        for name in sorted((before.keys() | after.keys()) - set(newer))
        if before.get(name) != after.get(name)
    ]
