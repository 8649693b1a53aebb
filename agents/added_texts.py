"""What the task sheet says of stages and of those that a project adds: inputs, outputs, and what code runs. Pure."""

from __future__ import annotations

from agents.sheet_texts import INPUTS, ON_FAILURE, OUTPUTS
from specs.added import AddedStage, in_package, stands_in
from specs.project import Project

_PROJECT = "project:"
_FAILURE = {
    "en": "look at the stage's log and report, repair its code or its inputs, run it again",
    "zh": "查看本阶段的日志与报告，修正代码或输入，重做本阶段",
}
_RUNS = {
    "en": {
        "task": "task {task}, from the allowed package {package}",
        "command": "command: {command}",
        "verified": "its metrics are computed again by {verify}",
        "self": "self-reported, computed again by nobody: {names}",
        "person": "a person does the work: {task} writes what the person is given, and the run waits for it",
        "rewrites": "the stages after it read its {file} in place of that of {owner}",
    },
    "zh": {
        "task": "任务 {task}，来自允许的软件包 {package}",
        "command": "命令：{command}",
        "verified": "指标由 {verify} 重算",
        "self": "以下指标为自报，无人重算：{names}",
        "person": "由人完成：{task} 写出交给人的材料，运行等待其交回",
        "rewrites": "其后的阶段读取它的 {file}，代替 {owner} 的同名文件",
    },
}


def inputs(spec: Project, stage: str) -> list[str]:
    """What a stage reads, `<stage>: <output>` where another stage makes it for later ones."""
    added = spec.added_stages.get(stage)
    if added is not None:
        names = sorted(added.inputs)  # a frozen spec does not keep the order in which keys were written
        given = [_input(spec, added.inputs[name]) for name in names]
        return given or list(spec.graph.before[stage])
    replaced = stands_in(spec.added_stages).get(stage, {})
    found = []
    for name in INPUTS[stage]:
        owner, _, artifact = name.partition(": ")
        found.append(f"{replaced.get(owner, owner)}: {artifact}")
    return found


def outputs(spec: Project, stage: str) -> list[str]:
    """What later stages read of a stage; everything else that it writes is evidence."""
    own = spec.added_stages.get(stage)
    read = {source for added in spec.added_stages.values() for source in added.inputs.values()}
    if own is None:
        return list(OUTPUTS.get(stage, ()))
    return [name for name in own.outputs if f"{stage}/{name}" in read or (own.rewrites or "").endswith("/" + name)]


def runs(spec: Project, stage: str) -> str:
    """What code an added stage runs, from where, and what is believed on its own word; empty for a built-in one."""
    added = spec.added_stages.get(stage)
    if added is None:
        return ""
    words = _RUNS[spec.language]
    parts = [words["person"].format(task=added.hand_out)] if added.hand_out else []
    if added.task is not None:
        package = in_package(added.task, spec.task_packages) or "?"
        parts.append(words["task"].format(task=added.task, package=package))
    else:
        parts.append(words["command"].format(command=" ".join(added.command or ())))
    if verify := added.verify or " ".join(added.verify_command or ()):
        parts.append(words["verified"].format(verify=verify))
    if own := [name for name, about in added.metrics.items() if about.self_reported]:
        parts.append(words["self"].format(names=", ".join(own)))
    if added.rewrites:
        owner, _, file = added.rewrites.partition("/")
        parts.append(words["rewrites"].format(owner=owner, file=file))
    return ("；" if spec.language == "zh" else "; ").join(parts)


def on_failure(spec: Project, stage: str) -> str:
    """What to do when a stage fails."""
    added = spec.added_stages.get(stage)
    if added is None:
        return ON_FAILURE[stage][spec.language]
    return added.on_failure or _FAILURE[spec.language]


def _input(spec: Project, source: str) -> str:
    if source.startswith(_PROJECT):
        return source.removeprefix(_PROJECT)
    owner, _, artifact = source.partition("/")
    known: AddedStage | None = spec.added_stages.get(owner)
    listed = known.outputs if known is not None else OUTPUTS.get(owner, ())
    return f"{owner}: {artifact}" if artifact in listed else source
