"""Run one attempt of a stage: reserve, hash inputs, run, recompute metrics, judge, report, publish.

The order of writing is the design's (gates, rule 10): a crash at any point leaves either a partial folder,
which is named and left, or a published one, which is verified and adopted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from agents.extraction import extraction_for
from agents.task_sheet import ExpectedRow
from flows.costs import remember, took_and_why_not
from flows.workspace import Workspace, project_inputs
from specs.canonical import canonical_bytes, sha256_bytes, sha256_file
from specs.costs import Took
from specs.credentials import without_secrets
from specs.criteria import Metric, Verdict, judge
from specs.decisions import GateDocument
from specs.errors import GatewrightError, Refused
from specs.files import publish_folder, write_bytes, write_json
from specs.project import Project
from specs.proposals import Expectation, Proposal
from specs.results import Evidence, list_artifacts
from specs.resuming import Changed
from specs.stages import Handed, Progress, StageContext
from tasks.models.resolve import ResolvedModel
from tasks.processor import Meter
from tasks.registry import metrics_function, run_function

_DRAWING = Lock()


@dataclass(frozen=True)
class Order:
    """What to run: the approved proposal, where its inputs lie, and the model it works on."""

    workspace: Workspace
    spec: Project
    stage: str
    attempt: int
    proposal: Proposal
    gate_document: bytes | None
    inputs: Mapping[str, Path]
    model: ResolvedModel | None
    expected: Sequence[Expectation | ExpectedRow]
    gated: bool = True
    notes: tuple[str, ...] = ()
    handed: Handed | None = None
    go_on: str = ""
    confirmed: tuple[Changed, ...] = ()


def input_digests(order: Order) -> dict[str, str]:
    """Digest of everything the stage reads: raw files, evidence of earlier stages, base model, proposal."""
    digests = {}
    for folder in order.inputs.values():
        evidence = Evidence.model_validate_json((folder / "evidence.json").read_bytes())
        stage = evidence.stage  # an added one, where it rewrites what the stage asks for
        digests[f"{stage}/evidence.json"] = sha256_file(folder / "evidence.json")
        for artifact in evidence.artifacts:
            there = (folder / artifact.path).is_file()
            if not there or sha256_file(folder / artifact.path) != artifact.sha256:
                raise GatewrightError(
                    f"{artifact.path} of {stage} is {'not what was published' if there else 'missing'}",
                    f"restore it from a backup, or make {stage} anew: `gatewright resume --anew` opens the gate of "
                    f"{order.stage} again, then `gatewright rework --stage {stage}`; `audit verify` names all of them",
                )
    if order.stage == "data":
        digests.update(raw_digests(order.workspace, order.spec))
    if order.model is not None:
        digests["base_model"] = order.model.sha256
    digests.update(general_digests(order.workspace, order.spec, order.stage))
    digests.update(added_digests(order.workspace, order.spec, order.stage))
    if order.handed is not None:
        digests |= {f"handed_out:{name}": sha for name, sha in order.handed.files.items()}
        digests[f"handed_in:{order.handed.author}"] = order.handed.sha256
    return digests


def raw_digests(workspace: Workspace, spec: Project) -> dict[str, str]:
    """Digest of every raw file, as `raw:<path>`: what the first gate shows and the data stage reads."""
    return {f"raw:{path}": sha for path, sha in project_inputs(workspace.project_dir, spec).items()}


def general_digests(workspace: Workspace, spec: Project, stage: str) -> dict[str, str]:
    """Digest of every file of general text, as `general:<path>`: passages are drawn from them by the seed of the
    proposal, so that a gate that names both names the passages. Empty for every stage but `evaluate`."""
    from tasks.evaluate.general_text import general_files

    if stage != "evaluate" or spec.general_text is None:
        return {}
    files = general_files(workspace.project_dir, spec.general_text)
    return {f"general:{file.name}": sha256_file(file.path) for file in files}


def added_digests(workspace: Workspace, spec: Project, stage: str) -> dict[str, str]:
    """Digests of the project's files and of the code that an added stage runs on; empty for a built-in one."""
    from tasks.added.sources import digests_of

    added = spec.added_stages.get(stage)
    return digests_of(workspace.project_dir, added, spec.task_packages) if added else {}


SHOWN: Mapping[str, tuple[str, ...]] = {"data": ("raw:",), "evaluate": ("general:",)}
SHOWN_OF_ADDED = ("project:", "code:")
"""Inputs of a stage that a person can change between its gate and its start."""


def require_as_shown(order: Order, digests: Mapping[str, str]) -> None:
    """Raise `GatewrightError` when files of the project or code are not those that the person approved at the gate.

    A gate that was opened before it named general text says nothing of it.
    """
    added = order.stage in order.spec.added_stages
    kinds = SHOWN_OF_ADDED if added else SHOWN.get(order.stage, ())
    if not kinds or order.gate_document is None:
        return
    gate = GateDocument.model_validate_json(order.gate_document).inputs
    now = {name: sha for name, sha in digests.items() if name.startswith(kinds)}
    # A gate shows what finished stages ran on too; of an added stage its own files and code count.
    own = now.keys() if added else gate.keys()
    shown = {name: gate[name] for name in own if name in gate and name.startswith(kinds)}
    if now != shown and gate and (shown or order.stage != "evaluate"):
        changed = sorted(k for k in now.keys() | shown.keys() if now.get(k) != shown.get(k))
        raise GatewrightError(
            f"files changed since the gate was approved: {', '.join(changed)}",
            "`gatewright resume --anew` proposes the stage again for the files as they are now",
        )


def context_of(order: Order, out_dir: Path, checkpoints: Path) -> StageContext:
    """The context of an attempt that writes to `out_dir`."""
    return StageContext(
        run=order.workspace.run,
        stage=order.stage,
        attempt=order.attempt,
        project_dir=order.workspace.project_dir,
        spec=without_secrets(order.spec),
        parameters=order.proposal.parameters,
        memory=order.proposal.memory,
        inputs=dict(order.inputs),
        base_model=order.model.folder if order.model else None,
        base_model_sha256=order.model.sha256 if order.model else None,
        out_dir=out_dir,
        checkpoints_dir=checkpoints,
        handed=order.handed,
        go_on=order.go_on,
        confirmed=list(order.confirmed),
    )


def hand_out(order: Order, target: Path, progress: Progress) -> dict[str, str]:
    """Write the sheet of a stage that a person completes into `target`; returns the digest of each file.

    The files are made beside and moved there as a whole, so that a crash leaves all of them or none.
    """
    from tasks.added.stage import write_sheet

    partial = _empty_partial(target)
    input_digests(order)  # an input that is not what was published is no ground for a person's work
    context = context_of(order, partial, order.workspace.checkpoints(order.stage, order.attempt))
    write_sheet(context, progress)
    if target.exists():  # of a process that died before it could say so; nobody was given it
        shutil.rmtree(target)
    publish_folder(partial, target)
    return {p.relative_to(target).as_posix(): sha256_file(p) for p in sorted(target.rglob("*")) if p.is_file()}


def _empty_partial(target: Path) -> Path:
    """An empty folder beside `target` to write to."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def set_aside(partial: Path) -> Path | None:
    """Rename a partial folder found after a crash, so that it is left and never used. Returns its new place."""
    if not partial.exists():
        return None
    number = 1
    while (left := partial.with_name(f"{partial.name}-left-{number}")).exists():
        number += 1
    partial.rename(left)
    return left


def recompute(
    spec: Project, stage: str, folder: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]
) -> tuple[dict[str, Metric], list[Verdict]]:
    """Metrics and verdicts of an attempt from its artifacts alone."""
    metrics = metrics_function(spec, stage)(folder, inputs, context)
    return metrics, judge(spec.criteria(stage), metrics)


def run_attempt(
    order: Order,
    progress: Progress,
    published: Callable[[Evidence], None],
    may_publish: Callable[[], None] = lambda: None,
) -> Evidence:
    """Run the attempt and publish it. `published(evidence)` records it after the rename.

    Raises what the stage raises; `GatewrightError` when an input changed while the stage ran; what `may_publish`
    raises when this process no longer holds the run.
    """
    workspace, stage = order.workspace, order.stage
    partial, target = workspace.partial(stage, order.attempt), workspace.attempt(stage, order.attempt)
    for name in ("artifacts", "plots", "logs"):
        (partial / name).mkdir(parents=True, exist_ok=True)
    checkpoints = workspace.checkpoints(stage, order.attempt)
    checkpoints.mkdir(parents=True, exist_ok=True)
    before = input_digests(order)
    context = context_of(order, partial, checkpoints)
    write_json(partial / "context.json", context)
    write_bytes(partial / "proposal.json", canonical_bytes(order.proposal))
    if order.gate_document is not None:
        write_bytes(partial / "gate.json", order.gate_document)
    whole = order.spec.rehearsal is None and not any(checkpoints.iterdir())
    started = datetime.now(UTC)
    with Meter() as meter:
        with extraction_for(order.spec, stage):
            result = run_function(order.spec, stage)(context, progress)
        progress.start(f"{stage}: recompute metrics")
        metrics, verdicts = recompute(order.spec, stage, partial, order.inputs, context.model_dump(mode="json"))
        after = input_digests(order)
    took, unknown = took_and_why_not(order.proposal, partial, meter, order.model, order.spec.language, whole=whole)
    if after != before:
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        raise GatewrightError(
            f"inputs changed while {stage} ran: {', '.join(changed)}",
            "let nobody write to the raw files during a run, then `gatewright resume` runs the stage again",
        )
    judged = Judged(metrics, verdicts, [*order.notes, *result.notes, *unknown], meter.others, took)
    evidence = _write_evidence(order, partial, before, judged, started)
    may_publish()
    publish_folder(partial, target)
    published(evidence)
    if order.gated and (fault := remember(took)):
        progress.say(fault)
    return evidence


@dataclass(frozen=True)
class Judged:
    """What came of a stage: numbers, verdicts, what it says itself, and how busy others kept the machine meanwhile."""

    metrics: dict[str, Metric]
    verdicts: list[Verdict]
    notes: list[str]
    others_cpu_share: float | None
    took: list[Took]


def _write_evidence(order: Order, partial: Path, inputs: dict[str, str], judged: Judged, started: datetime) -> Evidence:
    from agents.reporter import write_stage_report
    from tasks.plots import draw

    with _DRAWING:  # matplotlib's settings are the process's own, and stages may run side by side
        draw(order.stage, partial, order.spec.language)
    evidence = Evidence(
        stage=order.stage,
        attempt=order.attempt,
        run=order.workspace.run,
        gated=order.gated,
        parameters_sha256=sha256_bytes(canonical_bytes(order.proposal.parameters)),
        inputs=inputs,
        metrics=judged.metrics,
        verdicts=judged.verdicts,
        artifacts=list_artifacts(partial, "artifacts", "plots"),
        notes=judged.notes,
        others_cpu_share=judged.others_cpu_share,
        took=judged.took,
        started_at=started,
        ended_at=datetime.now(UTC),
    )
    write_json(partial / "evidence.json", evidence)
    write_stage_report(partial, evidence, order.expected, order.spec)
    return evidence


def adopt(order: Order) -> Evidence | None:
    """The attempt of `order` that a crash left published without its record, verified; None when there is none.

    Raises `Refused` when the folder is there and is not this attempt: somebody put or changed it.
    """
    folder = order.workspace.attempt(order.stage, order.attempt)
    if not folder.is_dir():
        return None
    faults = _not_this_attempt(order, folder)
    if faults:
        raise Refused(
            f"{folder} is not the attempt that this run began: {'; '.join(faults)}",
            "move the folder away and `gatewright resume`; the stage runs again",
        )
    return Evidence.model_validate_json((folder / "evidence.json").read_bytes())


def _not_this_attempt(order: Order, folder: Path) -> list[str]:
    try:
        evidence = Evidence.model_validate_json((folder / "evidence.json").read_bytes())
    except (OSError, ValidationError):
        return ["it has no evidence that can be read"]
    faults = []
    if not evidence.gated:
        faults.append("its evidence is of an ungated stage")
    if (evidence.run, evidence.stage, evidence.attempt) != (order.workspace.run, order.stage, order.attempt):
        faults.append(f"its evidence is of {evidence.run} {evidence.stage} {evidence.attempt}")
    if evidence.parameters_sha256 != sha256_bytes(canonical_bytes(order.proposal.parameters)):
        faults.append("it ran with other parameters than were approved")
    if evidence.inputs != input_digests(order):
        faults.append("it ran on other inputs")
    if list_artifacts(folder, "artifacts", "plots") != evidence.artifacts:
        faults.append("its files are not those that its evidence lists")
    gate = folder / "gate.json"
    if order.gate_document is None or not gate.is_file() or gate.read_bytes() != order.gate_document:
        faults.append("it was not opened by this run's gate")
    if not (folder / "report.md").is_file() or not (folder / "report.html").is_file():
        faults.append("its report is missing")
    return faults


def stored_parameters(folder: Path) -> dict[str, Any]:
    """The parameters that an attempt ran with, from the proposal kept in its folder."""
    return Proposal.model_validate_json((folder / "proposal.json").read_bytes()).parameters
