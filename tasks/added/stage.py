"""Run an added stage and compute its metrics again; write the sheet of one that a person completes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from specs.added import SELF_REPORTED, AddedStage, rewritten_input
from specs.canonical import sha256_file
from specs.criteria import Metric
from specs.errors import GatewrightError, InputError, Stopped, WorkerError
from specs.files import read_document, storage_errors, write_json
from specs.project import Project
from specs.stages import Handed, Progress, Quiet, StageContext, StageResult
from tasks.added.job import AddedJob, Answer, HandedIn, Order
from tasks.added.sources import project_file
from tasks.verify import rewritten
from tasks.workers import run_worker

WORKER = "tasks.added.worker"
OWN_WORDS = "self_reported.json"
PROJECT_FILES = "project_files"
OUTSIDE = "written_outside"
OWN = frozenset({"artifacts", "plots", "logs", "context.json", "proposal.json", "gate.json"})
"""What lies in an attempt's folder before its stage begins."""

_PROJECT = "project:"
_NOTES: dict[str, tuple[str, str]] = {
    "undeclared": ("files that outputs does not name: {names}", "outputs 未列出的文件：{names}"),
    "outside": (
        "written outside artifacts/, kept under {folder}/: {names}",
        "写在 artifacts/ 之外，已移至 {folder}/：{names}",
    ),
    "self_reported": (
        "self-reported, computed again by nobody: {names}",
        "以下指标为阶段自报，未经重算：{names}",
    ),
    "own_word": (
        "reported {names}, which verify computes: its own word is not used",
        "自报了由 verify 重算的 {names}：不采用",
    ),
    "handed_in": ("handed in by {author} ({authentication}), {at}", "由 {author} 交回（{authentication}），{at}"),
}


def run(context: StageContext, progress: Progress) -> StageResult:
    """Run the task or the command of an added stage. Raises `WorkerError` when it does not bring what it declares."""
    stage = context.spec.added_stages[context.stage]
    notes: list[str] = []
    _keep_project_files(context, stage)
    handed = _keep_handed_in(context, context.handed) if context.handed else None
    if context.handed is not None:
        notes.append(
            _note(context, "handed_in", **context.handed.model_dump(include={"author", "authentication", "at"}))
        )
    own = [*(context.out_dir / name for name in OWN), *context.artifacts.rglob("*")]
    documents = {p.relative_to(context.out_dir).as_posix(): sha256_file(p) for p in own if p.is_file()}
    job = _job(context, stage, "run", context.artifacts, handed)
    try:
        answer = _ask(context, stage, job, stage.task, stage.command, context.out_dir, progress)
    except GatewrightError as error:
        if handed is not None and not isinstance(error, Stopped):
            again = f"`gatewright hand-in FILE --stage {context.stage}` hands in another file"
            error.hint = f"{error.hint}; {again}" if error.hint else again
        raise
    notes += answer.notes
    for name, digest in documents.items():
        path = context.out_dir / name
        if path.is_symlink() or not path.is_file() or sha256_file(path) != digest:
            raise WorkerError(
                f"{context.stage} changed {name}, which is not its own",
                "write below artifacts/ only, and leave what lies there as it is",
            )
    notes += _gather(context, stage, {name.removeprefix("artifacts/") for name in documents})
    notes += _keep_own_words(context, stage, answer)
    if stage.rewrites:
        _same_format(context, stage)
    return StageResult(notes=notes)


def metrics(folder: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that it declares: what `verify` computes from the artifacts, and its own word where it says so."""
    spec = Project.model_validate(context["spec"])
    stage = spec.added_stages[context["stage"]]
    found: dict[str, Metric] = {}
    said = read_document(folder / "artifacts" / OWN_WORDS)
    for name, about in stage.metrics.items():
        if about.self_reported:
            value = said.get(name)
            found[name] = Metric(value=value, unit=about.unit, reason=SELF_REPORTED)
    computed = [name for name, about in stage.metrics.items() if not about.self_reported]
    if computed:
        answer = _verified(spec, stage, folder, inputs, context)
        for name in computed:
            reason = answer.reasons.get(name, "") or ("" if name in answer.metrics else "verify did not compute it")
            found[name] = Metric(value=answer.metrics.get(name), unit=stage.metrics[name].unit, reason=reason)
        if more := sorted(answer.metrics.keys() - set(computed)):
            raise WorkerError(
                f"verify of {context['stage']} computed {', '.join(more)}, which it does not declare",
                "declare each under metrics, without self_reported",
            )
    found = {name: found[name] for name in stage.metrics}
    if stage.rewrites:
        before = _rewritten_input(stage, spec, inputs, folder / "artifacts")
        found |= rewritten.metrics(before, folder / "artifacts" / stage.rewrites.partition("/")[2], context)
    return found


def write_sheet(context: StageContext, progress: Progress) -> None:
    """What a person needs for the work of a stage, written into `context.out_dir`."""
    stage = context.spec.added_stages[context.stage]
    with TemporaryDirectory(prefix="gatewright-sheet-") as place:
        job = _job(context, stage, "hand_out", context.out_dir, None, result=Path(place))
        job = job.model_copy(update={"inputs": _inputs(stage, context.inputs, context.project_dir)})
        _start(context.spec, stage, job, stage.hand_out, None, context.out_dir, Path(place) / "added.log", progress)
    files = [p for p in context.out_dir.rglob("*") if not p.is_dir()]
    if not files or any(p.is_symlink() for p in context.out_dir.rglob("*")):
        raise WorkerError(f"{stage.hand_out} wrote no plain file to hand out", "it writes into job.artifacts")


def _note(context: StageContext, key: str, **values: Any) -> str:
    return _NOTES[key][1 if context.spec.language == "zh" else 0].format(**values)


def _job(
    context: StageContext,
    stage: AddedStage,
    do: Literal["run", "hand_out"],
    artifacts: Path,
    handed: HandedIn | None,
    result: Path | None = None,
) -> AddedJob:
    return AddedJob(
        do=do,
        run=context.run,
        stage=context.stage,
        attempt=context.attempt,
        language=context.spec.language,
        parameters=context.parameters,
        inputs=_inputs(stage, context.inputs, context.artifacts / PROJECT_FILES),
        artifacts=artifacts,
        checkpoints=context.checkpoints_dir if do == "run" else None,
        base_model=context.base_model if stage.needs_model else None,
        base_model_sha256=context.base_model_sha256 if stage.needs_model else None,
        spec=context.spec.model_dump(mode="json"),
        handed_in=handed,
        result=(result or context.logs) / "result.json",
    )


def _inputs(stage: AddedStage, folders: Mapping[str, Path], project_files: Path) -> dict[str, Path]:
    """The place of each input. Raises `InputError` for one that is not there."""
    found = {}
    for name, source in stage.inputs.items():
        owner, _, path = source.partition("/")
        if source.startswith(_PROJECT):
            found[name] = project_files / source.removeprefix(_PROJECT)
        else:
            found[name] = folders[owner] / "artifacts" / path
        if not found[name].exists():
            raise InputError(f"{source}, the input {name}, is not there", f"{owner} wrote no such artifact; correct it")
    return found


def _keep_project_files(context: StageContext, stage: AddedStage) -> None:
    """Copies of what it reads of the project, so that what is computed later is computed from the same."""
    for path in stage.project_files:
        target = context.artifacts / PROJECT_FILES / path
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project_file(context.project_dir, path), target)


def _keep_handed_in(context: StageContext, handed: Handed) -> HandedIn:
    """The sheet, the work and its author as artifacts. Raises `InputError` when one is not what was recorded."""
    files = {name: handed.sheet_dir / name for name in handed.files}
    wrong = [n for n, path in files.items() if not path.is_file() or sha256_file(path) != handed.files[n]]
    if wrong or not handed.path.is_file() or sha256_file(handed.path) != handed.sha256:
        what = ", ".join(wrong) or "what was handed in"
        raise InputError(f"{what} is not what was recorded", "restore it from a backup, or rework the stage")
    for name, path in files.items():
        target = context.artifacts / "sheet" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(handed.path, context.artifacts / "handed_in")
    about = {"author": handed.author, "authentication": handed.authentication, "sha256": handed.sha256}
    write_json(context.artifacts / "author.json", {**about, "at": handed.at})
    return HandedIn(
        sheet=context.artifacts / "sheet",
        file=context.artifacts / "handed_in",
        author=handed.author,
        authentication=handed.authentication,
    )


def _ask(
    context: StageContext,
    stage: AddedStage,
    job: AddedJob,
    task: str | None,
    command: list[str] | None,
    cwd: Path,
    progress: Progress,
) -> Answer:
    return _start(context.spec, stage, job, task, command, cwd, context.logs / "added.log", progress)


def _start(
    spec: Project,
    stage: AddedStage,
    job: AddedJob,
    task: str | None,
    command: list[str] | None,
    cwd: Path,
    log: Path,
    progress: Progress,
) -> Answer:
    copies = job.artifacts / PROJECT_FILES
    words = [str(copies / w.removeprefix(_PROJECT)) if w.startswith(_PROJECT) else w for w in command or ()]
    order = Order(
        job=job,
        task=task,
        command=words or None,
        packages=spec.task_packages,
        cwd=cwd,
        timeout_s=None if stage.timeout_minutes is None else stage.timeout_minutes * 60,
    )
    path = job.result.with_name("order.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    job.result.unlink(missing_ok=True)
    write_json(path, order)
    said = run_worker(WORKER, path, log, progress, threads=stage.threads)
    if "answer" not in said:
        raise WorkerError(f"{job.stage} ended without an answer", f"its log is {log}")
    answer = Answer.model_validate(said["answer"])
    for name, value in answer.metrics.items():
        if value is not None and not math.isfinite(value):
            raise WorkerError(f"{job.stage}: {name} is {value}", "report null with a reason where there is no number")
    return answer


def _gather(context: StageContext, stage: AddedStage, given: set[str]) -> list[str]:
    """Check what it wrote: every output there, no links; what nobody declared is named, and is hashed like the rest."""
    notes = []
    strays = sorted(p for p in context.out_dir.iterdir() if p.name not in OWN)
    if strays:
        names = ", ".join(p.name for p in strays[:10]) + (" ..." if len(strays) > 10 else "")
        notes.append(_note(context, "outside", folder=OUTSIDE, names=names))
        (context.artifacts / OUTSIDE).mkdir(exist_ok=True)
        for path in strays:
            path.rename(context.artifacts / OUTSIDE / path.name)
    links = [p for p in context.out_dir.rglob("*") if p.is_symlink()]
    if links:
        name = links[0].relative_to(context.out_dir).as_posix()
        raise WorkerError(f"{context.stage} wrote a link: {name}", "write files; a link could lead anywhere")
    for name in stage.outputs:
        place = context.artifacts / name
        if not place.exists() or (place.is_dir() and not any(p.is_file() for p in place.rglob("*"))):
            raise WorkerError(
                f"{context.stage} did not write {name}, which it declares", "outputs lie below artifacts/"
            )
    written = [p for p in context.artifacts.rglob("*") if p.is_file()]
    names_of = sorted(p.relative_to(context.artifacts).as_posix() for p in written)
    new = [n for n in names_of if n not in given and not n.startswith(OUTSIDE + "/")]
    undeclared = [n for n in new if not any(n == o or n.startswith(o + "/") for o in stage.outputs)]
    if undeclared:
        shown = ", ".join(undeclared[:10]) + (" ..." if len(undeclared) > 10 else "")
        notes.append(_note(context, "undeclared", names=shown))
    return notes


def _keep_own_words(context: StageContext, stage: AddedStage, answer: Answer) -> list[str]:
    """The metrics that nobody computes again, as an artifact. Raises `WorkerError` for undeclared or missing ones."""
    own = [name for name, about in stage.metrics.items() if about.self_reported]
    if unknown := sorted(answer.metrics.keys() - stage.metrics.keys()):
        raise WorkerError(
            f"{context.stage} reported {', '.join(unknown)}, which it does not declare",
            f"declared are: {', '.join(stage.metrics)}",
        )
    if missing := sorted(set(own) - answer.metrics.keys()):
        raise WorkerError(
            f"{context.stage} did not report {', '.join(missing)}", "report null with a reason where there is no number"
        )
    notes = []
    if own:
        write_json(context.artifacts / OWN_WORDS, {name: answer.metrics[name] for name in own})
        notes.append(_note(context, "self_reported", names=", ".join(own)))
    if beside := sorted(answer.metrics.keys() - set(own)):
        notes.append(_note(context, "own_word", names=", ".join(beside)))
    return notes


def _same_format(context: StageContext, stage: AddedStage) -> None:
    """A rewritten table must have the columns of the one whose place it takes, by name and type."""
    import pyarrow.parquet as pq

    name = str(stage.rewrites).partition("/")[2]
    before = _rewritten_input(stage, context.spec, context.inputs, context.artifacts)
    try:
        old, new = pq.read_schema(before), pq.read_schema(context.artifacts / name)
    except (OSError, ValueError) as error:
        raise WorkerError(f"{name} of {context.stage} is no table: {error}", "write it as Parquet") from None
    kinds = {field.name: str(field.type).removeprefix("large_") for field in new}
    wrong = [f.name for f in old if kinds.get(f.name) != str(f.type).removeprefix("large_")]
    if wrong:
        raise WorkerError(
            f"{name} of {context.stage} lacks columns of what it rewrites, or has others of that name: "
            f"{', '.join(wrong)}",
            "write every column of its input, with the same types",
        )


def _rewritten_input(stage: AddedStage, spec: Project, folders: Mapping[str, Path], artifacts: Path) -> Path:
    """The table that a rewriting stage read. Raises `InputError` where it reads none."""
    name = rewritten_input(stage, spec.added_stages)
    if name is None:
        raise InputError(f"a stage rewrites {stage.rewrites} and does not read it", "name it among its inputs")
    return _inputs(stage, folders, artifacts / PROJECT_FILES)[name]


def _verified(
    spec: Project, stage: AddedStage, folder: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]
) -> Answer:
    artifacts = folder / "artifacts"
    with TemporaryDirectory(prefix="gatewright-verify-") as place:
        job = AddedJob(
            do="verify",
            run=context["run"],
            stage=context["stage"],
            attempt=context["attempt"],
            language=spec.language,
            parameters=context["parameters"],
            inputs=_inputs(stage, inputs, artifacts / PROJECT_FILES),
            artifacts=artifacts,
            base_model=context["base_model"] if stage.needs_model else None,
            base_model_sha256=context["base_model_sha256"] if stage.needs_model else None,
            spec=spec.model_dump(mode="json"),
            result=Path(place) / "result.json",
        )
        log = Path(place) / "verify.log"
        return _start(spec, stage, job, stage.verify, stage.verify_command, Path(place), log, Quiet())
