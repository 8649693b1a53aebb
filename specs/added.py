"""Stages that a project adds: what a person writes under `added_stages`, and the graph that follows from it.

An added stage is an importable task, a command, or work that a person hands back. Its inputs name artifacts of
earlier stages; the order of all stages follows from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, create_model, field_validator, model_validator

from specs.base import Language, Name, Strict
from specs.criteria import Criterion, Op, merge
from specs.metrics import OF_REWRITTEN, STAGES, MetricDefinition, criteria_of
from specs.stage_graph import BUILT_IN, StageGraph, sorted_graph

OWN_PACKAGE = "tasks.added"
"""The package of importable tasks that comes with Gatewright."""

READ_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "data": {"samples.parquet": ("dry_run", "stress_test", "train", "evaluate")},
}
"""Per built-in stage, the artifacts that can be rewritten and the built-in stages that read them.

These are what the run is made of, and no evidence of what a stage did: the fate of every row, the batch plan, weights
and losses stand for what was measured and approved, so that no later stage may put others in their place.
"""

REWRITABLE = tuple(f"{stage}/{file}" for stage, files in READ_BY.items() for file in files)
"""What `rewrites` may name."""

SELF_REPORTED = "self-reported by the stage"
"""The reason that stands beside a metric which nobody computes again."""

LANGUAGES: tuple[Language, ...] = get_args(Language)
LONGEST_TITLE = 80

RESERVED = ("project_files", "written_outside", "sheet", "handed_in", "author.json", "self_reported.json")
"""What lies in the artifacts of an added stage beside what it writes."""

Value = bool | int | float | str
TaskName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$")
]
_PATH = re.compile(r"[^\s/\\:*?\"<>|][^/\\:*?\"<>|]*(/[^\s/\\:*?\"<>|][^/\\:*?\"<>|]*)*")
_PROJECT = "project:"
_MARKUP = frozenset("\\`*_[]<>|#~&")


class AddedParameter(Strict):
    """A parameter of an added stage: its value, and what it may be changed to at the gate."""

    value: Value = Field(description="what is proposed")
    min: float | None = Field(None, description="lowest value allowed; null: no limit")
    max: float | None = Field(None, description="highest value allowed; null: no limit")
    choices: list[str] | None = Field(None, min_length=1, description="of a text: the values allowed")
    unit: str = Field("", description="such as samples, share, s; empty for a text or a switch")
    description: str = Field("", description="what it does, as the gate shows it")

    @model_validator(mode="after")
    def _possible(self) -> AddedParameter:
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not number and (self.min is not None or self.max is not None):
            raise ValueError("value is no number, so it has no min or max; take them out")
        if self.choices is not None and self.value not in self.choices:
            raise ValueError(f"value {self.value!r} is not among its choices; add it to choices, or choose another")
        if isinstance(self.value, int | float):
            if self.min is not None and self.value < self.min:
                raise ValueError(f"value {self.value:g} is below min {self.min:g}; change one of the two")
            if self.max is not None and self.value > self.max:
                raise ValueError(f"value {self.value:g} is above max {self.max:g}; change one of the two")
        return self


def _text_or_block(schema: dict[str, Any]) -> None:
    """What an editor is told of a title: one text does for all languages."""
    schema["anyOf"] = [{"type": "string", "maxLength": LONGEST_TITLE}, *schema["anyOf"]]


class AddedMetric(Strict):
    """A metric that an added stage reports."""

    unit: str = Field(description="such as samples, share, count, s, bytes, nats/token")
    title: dict[Language, str] | None = Field(
        None,
        description="how reports call it: a text, or {en: ..., zh: ...}; null: its name",
        json_schema_extra=_text_or_block,
    )
    self_reported: bool = Field(
        False, description="true: the stage's own word, shown as such; false: verify computes it again"
    )

    def titles(self, name: str) -> dict[str, str]:
        """The title in each language; where only one is written, it stands in both."""
        known = next(iter((self.title or {}).values()), name.replace("_", " "))
        return {language: (self.title or {}).get(language, known) for language in LANGUAGES}

    @field_validator("title", mode="before")
    @classmethod
    def _says_something(cls, value: Any) -> Any:
        written = dict.fromkeys(LANGUAGES, value) if isinstance(value, str) else value
        if written is None:
            return None
        known = isinstance(written, dict) and set(written) <= set(LANGUAGES) and written
        if not known or not all(_is_title(text) for text in written.values()):
            raise ValueError(
                f"is no title; write up to {LONGEST_TITLE} characters without markup, or {{en: ..., zh: ...}}"
            )
        return written


class AddedCriterion(Strict):
    """A criterion of an added stage."""

    metric: Name = Field(description="a metric of this stage")
    op: Op = Field(description="how the metric compares with the bound when it passes")
    bound: float = Field(description="in the unit of the metric")
    blocking: bool = Field(True, description="false: a warning that closes nothing")


class AddedStage(Strict):
    """A stage that the project adds: exactly one of `task` and `command`; with `hand_out` a person works between."""

    inputs: dict[Name, str] = Field(
        default_factory=dict, description="name to <stage>/<artifact>, or to project:<path> for a file of the project"
    )
    after: list[Name] = Field(default_factory=list, description="stages that must be done before, beside the inputs")
    before: list[Name] = Field(default_factory=list, description="stages that wait for this one")
    task: TaskName | None = Field(None, description="module:function of a package in task_packages")
    command: list[str] | None = Field(
        None, min_length=1, description="program and arguments; project:<path> stands for a file of the project"
    )
    hand_out: TaskName | None = Field(
        None, description="module:function that writes the sheet on which a person works before the task runs"
    )
    verify: TaskName | None = Field(None, description="module:function that computes the metrics again")
    verify_command: list[str] | None = Field(None, min_length=1, description="the same as a command")
    outputs: list[str] = Field(default_factory=list, description="files that it must write, below artifacts/")
    rewrites: Literal["data/samples.parquet"] | None = Field(
        None, description="the artifact whose place this stage's file of the same name takes for the stages after it"
    )
    parameters: dict[Name, AddedParameter] = Field(default_factory=dict, description="what may be set at its gate")
    metrics: dict[Name, AddedMetric] = Field(min_length=1, description="what it reports")
    criteria: list[AddedCriterion] = Field(default_factory=list, description="what it is judged by")
    expected: dict[Name, float] = Field(default_factory=dict, description="metric to the number that should come")
    needs_model: bool = Field(False, description="whether it is given the folder of the base model")
    timeout_minutes: float | None = Field(None, gt=0, description="ended when it takes longer; null: no limit")
    threads: int = Field(2, ge=1, le=1024, description="CPU threads that its process is told to use")
    on_failure: str = Field("", description="what to do when it fails, for the task sheet")

    @field_validator("inputs")
    @classmethod
    def _readable(cls, value: dict[str, str]) -> dict[str, str]:
        for name, source in value.items():
            stage, slash, path = source.partition("/")
            if source.startswith(_PROJECT):
                stage, slash, path = "x", "/", source.removeprefix(_PROJECT)
            if not slash or not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", stage) or not is_plain_path(path):
                raise ValueError(
                    f"{name}: {source!r} names neither an artifact nor a file; write data/samples.parquet, "
                    "or project:raw/file.csv"
                )
        return value

    @field_validator("rewrites", mode="before")
    @classmethod
    def _rewritable(cls, value: Any) -> Any:
        if value is not None and value not in REWRITABLE:
            raise ValueError(
                f"{str(value)[:80]!r} cannot be rewritten; write {' or '.join(REWRITABLE)}, or take it out and let "
                "the stages that need the new file read it by their inputs: all other artifacts are evidence of what "
                "was measured and approved"
            )
        return value

    @field_validator("outputs")
    @classmethod
    def _inside(cls, value: list[str]) -> list[str]:
        for path in value:
            if not is_plain_path(path):
                raise ValueError(f"{path!r} is no path below artifacts; write a name such as labels.csv")
            if path.partition("/")[0] in RESERVED:
                taken = ", ".join(RESERVED)
                raise ValueError(f"{path!r} is where Gatewright keeps its own; choose a name other than {taken}")
        if len({path.casefold() for path in value}) != len(value):
            raise ValueError("names one file twice; take one of the two out")
        return value

    @model_validator(mode="after")
    def _complete(self) -> AddedStage:
        if (self.task is None) == (self.command is None):
            raise ValueError("needs task or command, and not both; write task: package.module:function")
        if self.verify is not None and self.verify_command is not None:
            raise ValueError("verify_command stands beside verify; take one of the two out")
        computed = [name for name, metric in self.metrics.items() if not metric.self_reported]
        if computed and self.verify is None and self.verify_command is None:
            raise ValueError(
                f"metrics has {', '.join(computed)} that nothing computes again; add verify: package.module:function, "
                "or self_reported: true to each"
            )
        measured = [d.name for d in self.measured_besides]
        if twice := [name for name in measured if name in self.metrics]:
            raise ValueError(
                f"metrics declares {', '.join(twice)}, which is measured of every stage that rewrites samples; take it "
                "out, and out of what verify answers"
            )
        known = [*self.metrics, *measured]
        for criterion in self.criteria:
            if criterion.metric not in known:
                raise ValueError(
                    f"criteria judge {criterion.metric!r}, which is no metric of it; metrics are {', '.join(known)}"
                )
        for name in self.expected:
            if name not in known:
                raise ValueError(f"expected names {name!r}, which is no metric of it; take it out")
        for name in self.parameters:
            if hasattr(Strict, name) or name.startswith(("model_dump", "model_validate")):
                raise ValueError(f"parameters has {name!r}, a word that the models use; write {name}_setting")
        if self.rewrites is not None and self.rewrites.partition("/")[2] not in self.outputs:
            name = self.rewrites.partition("/")[2]
            raise ValueError(f"rewrites needs the file among the outputs; write outputs: [{name}]")
        return self

    @property
    def input_stages(self) -> list[str]:
        """The stages whose artifacts it reads, each once."""
        named = [s.partition("/")[0] for s in self.inputs.values() if not s.startswith(_PROJECT)]
        return list(dict.fromkeys(named))

    @property
    def project_files(self) -> list[str]:
        """Files of the project that it reads or runs, each once: inputs and words of its commands."""
        words = [*self.inputs.values(), *(self.command or ()), *(self.verify_command or ())]
        return list(dict.fromkeys(w.removeprefix(_PROJECT) for w in words if w.startswith(_PROJECT)))

    @property
    def tasks(self) -> list[str]:
        """What it imports, as module:function."""
        return [t for t in (self.hand_out, self.task, self.verify) if t is not None]

    @property
    def measured_besides(self) -> tuple[MetricDefinition, ...]:
        """What is measured of it by Gatewright, beside what it declares."""
        return OF_REWRITTEN if self.rewrites else ()

    def judged_by(self) -> list[Criterion]:
        """Its criteria, added to those that hold for every stage that rewrites; merged as those of built-in stages."""
        own = [Criterion(metric=c.metric, op=c.op, bound=c.bound, blocking=c.blocking) for c in self.criteria]
        return merge(criteria_of(self.measured_besides), own)


def is_plain_path(path: str) -> bool:
    """Whether a text is a relative POSIX path of a file, without anything that leads out or that a system forbids."""
    parts = path.split("/")
    return bool(_PATH.fullmatch(path)) and len(path) < 200 and not any(p in (".", "..") or p[-1] in ". " for p in parts)


def in_package(task: str, packages: list[str]) -> str | None:
    """The allowed package that a `module:function` lies in; None where it lies in none."""
    module = task.partition(":")[0]
    return next((p for p in packages if module == p or module.startswith(p + ".")), None)


def stands_in(added: Mapping[str, AddedStage]) -> dict[str, dict[str, str]]:
    """Per built-in stage, which added stage's folder it reads in place of which built-in one's.

    Of several that rewrite the same artifact one after the other, the last counts.
    """
    rewriting = {name: stage.rewrites for name, stage in added.items() if stage.rewrites}
    found: dict[str, dict[str, str]] = {}
    for name, artifact in rewriting.items():
        if not _rewritten_again(name, rewriting, added):
            owner, _, file = str(artifact).partition("/")
            for reader in READ_BY[owner][file]:
                found.setdefault(reader, {})[owner] = name
    return found


def _rewritten_again(name: str, rewriting: Mapping[str, Any], added: Mapping[str, AddedStage]) -> bool:
    """Whether another stage rewrites what this one wrote: reading something else of it does not carry that on."""
    wrote = f"{name}/{str(rewriting[name]).partition('/')[2]}"
    return any(wrote in added[other].inputs.values() for other in rewriting if other != name)


def rewritten_input(stage: AddedStage, added: Mapping[str, AddedStage]) -> str | None:
    """The input that a rewriting stage puts another table in the place of; None where it reads none.

    Where it reads the table of several stages, that is the one which the others were made into last.
    """
    file = "/" + str(stage.rewrites).partition("/")[2]
    sources = {n: s for n, s in sorted(stage.inputs.items()) if s == stage.rewrites or _is_rewritten(s, file, added)}
    read_by = [added[s.partition("/")[0]].inputs.values() for s in sources.values() if s != stage.rewrites]
    ends = [name for name, source in sources.items() if not any(source in read for read in read_by)]
    return ends[0] if ends else None


def _is_rewritten(source: str, file: str, added: Mapping[str, AddedStage]) -> bool:
    owner = added.get(source.partition("/")[0])
    return owner is not None and owner.rewrites is not None and source.endswith(file)


def rewriters_apart(added: Mapping[str, AddedStage]) -> list[str]:
    """Stages that rewrite the same artifact without one reading the other; fewer than two where all is well."""
    rewriting = {name: stage.rewrites for name, stage in added.items() if stage.rewrites}
    ends = [name for name in rewriting if not _rewritten_again(name, rewriting, added)]
    return ends if len(ends) > 1 else []


def graph_of(added: Mapping[str, AddedStage]) -> StageGraph:
    """Built-in and added stages as one graph. Names of stages that do not exist are passed over.

    A stage that names no other one comes after `data`, with which every run begins. Where the edges leave the order
    open it is that of the names, because a frozen spec does not keep how the keys were written. Raises `CycleError`.
    """
    if not added:
        return BUILT_IN
    waits: dict[str, set[str]] = {stage: set(BUILT_IN.before[stage]) for stage in STAGES}
    known = {*STAGES, *added}
    for name, stage in added.items():
        own = {other for other in (*stage.input_stages, *stage.after) if other in known}
        waits[name] = own or {"data"}
    for name, stage in added.items():
        for later in stage.before:
            if later in known:
                waits[later].add(name)
    for reader, replaced in stands_in(added).items():
        waits[reader] |= set(replaced.values())
    return sorted_graph(waits, [*sorted(added), *STAGES])


def by_person(added: Mapping[str, AddedStage]) -> list[str]:
    """The stages that wait for a person's work, in order."""
    return [name for name in graph_of(added).stages if name in added and added[name].hand_out is not None]


def parameters_model(stage: AddedStage) -> type[Strict]:
    """The model of an added stage's parameters, as `PARAMETERS` has it for a built-in one."""
    fields: dict[str, Any] = {}
    for name, p in stage.parameters.items():
        kind: Any = type(p.value)
        if p.choices is not None:
            kind = Literal[tuple(p.choices)]
        elif kind in (int, float):
            kind = int if all(float(n).is_integer() for n in (p.value, p.min, p.max) if n is not None) else float
        limits: dict[str, Any] = {"ge": p.min, "le": p.max} if isinstance(p.value, int | float) else {}
        unit = f", in {p.unit}" if p.unit else ""
        text = (p.description or name.replace("_", " ")) + unit
        fields[name] = (kind, Field(p.value, description=text, **{k: v for k, v in limits.items() if v is not None}))
    model: type[Strict] = create_model("AddedParameters", __base__=Strict, **fields)
    return model


def definitions_of(name: str, stage: AddedStage) -> list[MetricDefinition]:
    """The metrics of an added stage as the tables of reports read them."""
    judged = {c.metric: c for c in stage.judged_by()}
    found = []
    for metric, about in stage.metrics.items():
        how = "self-reported" if about.self_reported else stage.verify or " ".join(stage.verify_command or ())
        found.append(
            MetricDefinition(stage=name, name=metric, unit=about.unit, recomputed=how, title=about.titles(metric))
        )
    found += [d.model_copy(update={"stage": name}) for d in stage.measured_besides]
    return [
        d.model_copy(update={"op": c.op, "bound": c.bound, "blocking": c.blocking})
        if (c := judged.get(d.name)) is not None
        else d
        for d in found
    ]


def _is_title(text: Any) -> bool:
    return (
        isinstance(text, str)
        and bool(text.strip())
        and len(text) <= LONGEST_TITLE
        and text.isprintable()
        and not set(text) & _MARKUP
    )
