"""`project.yaml`: what a person writes. Only `project`, `base_model` and `sources` are required."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from specs.added import OWN_PACKAGE, AddedStage, definitions_of, graph_of, parameters_model
from specs.base import Language, Strict
from specs.criteria import Criterion, Op, merge
from specs.metrics import STAGES, MetricDefinition, default_criteria, definitions
from specs.parameters import PARAMETERS, Method, PlainTextKind, TrainingConfiguration
from specs.parent import Parent
from specs.policy import Policy
from specs.rehearsal import rehearsed_criteria
from specs.stage_graph import StageGraph, stage_name_problem
from specs.words import nearest

Encoding = Literal["auto", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "gb18030", "big5", "latin-1", "cp1252"]


class Source(Strict):
    """One kind of raw material: a file, a folder or a glob, relative to the project."""

    path: str = Field(min_length=1, description="file, folder or glob, relative to the project folder")
    encoding: Encoding = Field("auto", description="of text files; auto decides per file, and says what it decided")
    owner: str | None = Field(None, description="who answers for this material when its rows look wrong")

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith(("/", "\\")) or ":" in path[:2] or ".." in path.replace("\\", "/").split("/"):
            raise ValueError(
                "must be relative to the project folder and stay inside it; copy the file into the project"
            )
        return path


WorkOrderField = Literal["device_model", "phenomenon", "steps", "repair", "fault_type", "date", "order_id"]
FaultCodeField = Literal["fault_type", "meaning", "cause", "remedy", "device_model"]


class WorkOrders(Source):
    """Maintenance work orders: CSV, TSV, XLSX, XLS, JSON, JSONL, Parquet, tables of a PDF.

    `columns` maps our fields to the headers of the file; nested keys of JSON have dotted headers, such as `en.text`.
    """

    kind: Literal["work_orders"]
    columns: dict[WorkOrderField, str] = Field(description="our field to the header in the file")
    sheet: str | None = Field(None, description="sheet of a workbook; null: every sheet that has these headers")
    device_model: str | None = Field(None, description="the machine of all rows, where no column names it")
    code_meaning: Literal["in_prompt", "left_out"] = Field(
        "in_prompt", description="what the fault-code table says of the code of an order: told in the prompt, or not"
    )

    @model_validator(mode="after")
    def _enough(self) -> WorkOrders:
        missing = [f for f in ("phenomenon", "repair") if f not in self.columns]
        if missing:
            raise ValueError(
                f"columns needs {' and '.join(missing)}, because a sample is a phenomenon and its repair; "
                f"add {missing[0]}: <header in the file>"
            )
        return self


class FaultCodes(Source):
    """A fault-code table: code, meaning, cause, remedy. The formats are those of work orders."""

    kind: Literal["fault_codes"]
    columns: dict[FaultCodeField, str] = Field(description="our field to the header in the file")
    sheet: str | None = Field(None, description="sheet of a workbook; null: every sheet that has these headers")
    device_model: str | None = Field(None, description="the machine of all rows, where no column names it")
    doubled_codes: Literal["quarantine", "error"] = Field(
        "quarantine", description="what happens when a code has two contents, and so is no key"
    )

    @model_validator(mode="after")
    def _enough(self) -> FaultCodes:
        missing = [f for f in ("fault_type", "meaning") if f not in self.columns]
        if missing:
            raise ValueError(f"columns needs {' and '.join(missing)}; add {missing[0]}: <header in the file>")
        return self


class WideLog(Strict):
    """A log without header and times, such as an export for Matlab: each row one cycle, each column one sample.

    The channel has the name of the file; rows of different files may have different numbers of samples.
    """

    seconds_per_row: float = Field(gt=0, description="length of a row in seconds")
    start: str = Field(
        "1970-01-01 00:00:00", description="time of the first row; the default counts from the beginning"
    )


class SensorLogs(Source):
    """Time series of a machine (CSV, TSV, TXT, Parquet): one time column, numeric channels, optional fault events."""

    kind: Literal["sensor_logs"]
    timestamp: str = Field("timestamp", description="header of the time column")
    channels: list[str] = Field(default_factory=list, description="empty: every other numeric column")
    event: str | None = Field(None, description="column that holds the fault code of an event, else empty")
    device_model: str | None = Field(None, description="the machine this log belongs to")
    time_zone: str | None = Field(None, description="IANA name; null: the project's")
    wide: WideLog | None = Field(None, description="the log has no header and no times")

    @field_validator("time_zone")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else known_time_zone(value)

    @model_validator(mode="after")
    def _either(self) -> SensorLogs:
        if self.wide and (self.channels or self.event):
            raise ValueError("wide logs have no columns to name; leave out channels and event")
        return self


class Manuals(Source):
    """Equipment manuals: PDF, DOCX, HTML, Markdown, TXT."""

    kind: Literal["manuals"]
    device_model: str | None = Field(None, description="the machine that these texts are about")
    ocr: bool = Field(False, description="recognise pages of a PDF that are only pictures; needs gatewright[ocr]")


class Notes(Source):
    """Technicians' notes: Markdown, TXT, DOCX, HTML."""

    kind: Literal["notes"]
    device_model: str | None = Field(None, description="the machine that these texts are about")


class Instructions(Source):
    """Existing instruction data: JSONL, JSON or Parquet with `messages`, Alpaca or ShareGPT records."""

    kind: Literal["instructions"]


AnySource = Annotated[
    WorkOrders | FaultCodes | SensorLogs | Manuals | Notes | Instructions, Field(discriminator="kind")
]


class Bounds(Strict):
    """Limits for a parameter that the agent may propose, both ends included."""

    min: float | None = Field(None, description="lowest value allowed")
    max: float | None = Field(None, description="highest value allowed")

    @model_validator(mode="after")
    def _ordered(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both; write {min: 1, max: 3}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max; swap the two")
        return self


class Hardware(Strict):
    """The device to plan for, when it is not the one of this machine."""

    gpu: str = Field(description="name of the card, such as RTX 4090")
    count: int = Field(1, ge=1, description="cards")
    memory_gb: float | None = Field(None, gt=0, description="memory of one card in GB; null: as the card's data sheet")
    interconnect: Literal["none", "pcie3", "pcie4", "pcie5", "nvlink"] = Field(
        "none", description="how the cards talk to each other"
    )


class Objective(Strict):
    """What the model should reach on held-out samples."""

    metric: str = Field("fault_type_coverage", description="a metric of evaluate")
    at_least: float = Field(0.5, description="the value to reach")


PLAIN_TEXT_KINDS: dict[str, PlainTextKind] = {"manuals": "manual", "notes": "note", "instructions": "instruction"}
"""Sources that may hold plain text, and the kind of the samples made of it."""


class ObjectiveMix(Strict):
    """Continued pre-training on plain text beside the training on questions and answers, as one training.

    Paragraphs of manuals, notes without a found repair and records without a prompt are plain text.
    """

    sources: list[Literal["manuals", "notes", "instructions"]] = Field(
        ["manuals", "notes", "instructions"], min_length=1, description="kinds of sources whose plain text is used"
    )
    ratio: float = Field(ge=0, le=1, description="share of plain text among the samples of an epoch; 1: nothing else")

    @property
    def kinds(self) -> list[PlainTextKind] | None:
        """Kinds of samples, as a training configuration names them; null for all of them."""
        chosen = [kind for source, kind in PLAIN_TEXT_KINDS.items() if source in self.sources]
        return None if len(chosen) == len(PLAIN_TEXT_KINDS) else chosen


class Budget(Strict):
    """What the training may cost. `money` 0 means: own hardware, not counted."""

    hours: float | None = Field(None, gt=0, description="hours of training; null: no limit")
    money: float = Field(0, ge=0, description="in the currency of the prices; 0: own hardware, not counted")


class Retention(Strict):
    """What `gatewright gc` deletes when the command does not say."""

    older_than: str = Field("7d", pattern=r"^\d+(\.\d+)?[dh]$", description="days or hours: 7d, 12h, 0d")
    quota: str | None = Field(
        None, pattern=r"^\d+(\.\d+)? ?[KMGT]?B$", description="50GB: only as much as brings the project below it"
    )


class SpecCriterion(Strict):
    """A criterion as a person writes it."""

    metric: str = Field(description="a metric of this stage")
    op: Op = Field(description="how the metric compares with the bound when it passes")
    bound: float = Field(description="in the unit of the metric")
    blocking: bool = Field(True, description="false: a warning that closes nothing")

    def criterion(self) -> Criterion:
        """As the criterion that is judged."""
        return Criterion(metric=self.metric, op=self.op, bound=self.bound, blocking=self.blocking)


class DryRunSettings(Strict):
    """`model: null` is a smaller sibling of the base model where one is known, else the base model itself."""

    model: str | None = Field(None, description="as base_model; null: a smaller sibling, else the base model")


class Agent(Strict):
    """Who proposes. `llm` needs `model`, such as `openai:gpt-5-mini`; the key comes from the environment."""

    proposer: Literal["rules", "llm"] = Field("rules", description="rules need no key; llm asks a language model")
    model: str | None = Field(None, description='provider and model, such as "openai:gpt-5-mini"')
    base_url: str | None = Field(None, description="address of a compatible server")
    max_attempts: int = Field(3, ge=1, le=10, description="answers asked for before the rules take over")

    @model_validator(mode="after")
    def _model_named(self) -> Agent:
        if self.proposer == "llm" and not self.model:
            raise ValueError('proposer llm needs a model; add model: "openai:gpt-5-mini", or another')
        if self.proposer == "rules" and (self.model or self.base_url):
            raise ValueError("model and base_url have no effect with proposer rules; set proposer: llm")
        return self


class Launcher(Strict):
    """How training processes start."""

    kind: Literal["local"] = Field("local", description="processes of this machine")
    processes: int = Field(1, ge=1, le=64, description="training processes (ranks); each holds the whole model")
    memory_gb: float | None = Field(
        None, gt=0, description="memory that a training process may have, in GB; null: what can be used of the device"
    )

    @property
    def memory_limit_bytes(self) -> int | None:
        """The same in bytes."""
        return None if self.memory_gb is None else round(self.memory_gb * 2**30)


class Hub(Strict):
    """Where a hub id is downloaded from."""

    mirror: str | None = Field(None, description="address of a mirror; null: the hub itself")
    revision: str | None = Field(None, description="commit, tag or branch; null: the newest, which is then recorded")


class Split(Strict):
    """How samples are held out."""

    by: Literal["component", "time"] = Field(
        "component", description="component: seeded, spread over fault types and machines; time: the newest records"
    )


class Project(Strict):
    """The whole spec."""

    project: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="lower-case letters, digits and dashes")
    goal: str | None = Field(None, description="one line: what the model should be able to do")
    language: Language = Field("en", description="of reports and samples")
    base_model: str = Field(min_length=1, description="hub id, folder, or package:NAME")
    method: Method = Field("lora", description="what is trained: adapters, or every weight")
    sources: list[AnySource] = Field(min_length=1, description="the raw material, one block per kind and place")
    time_zone: str = Field("UTC", description="of times without an offset: an IANA name such as Asia/Shanghai")
    over_long: Literal["ask", "split", "drop_list", "truncate_prompt"] = Field(
        "ask", description="what happens to samples past the length limit; answers are never cut"
    )
    personal_data: Literal["mask", "keep"] = Field(
        "mask", description="phone, ID and card numbers, e-mails, plates, names: masked in samples, or kept and counted"
    )
    personal_data_allowed: list[str] = Field(
        default_factory=list, description="what is never masked, such as a public service number"
    )
    split: Split = Field(Split(), description="how samples are held out; similar records stay on one side in any case")
    extraction: Literal["rules", "llm"] = Field(
        "rules", description="of phenomenon and repair from notes; llm: where the rules find none, agent.model is asked"
    )
    hardware: Literal["auto"] | Hardware = Field(
        "auto", description="auto: of this machine; else the device to plan for"
    )
    objective: Objective | None = Field(None, description="what the model should reach on held-out samples")
    parent: str | None = Field(
        None,
        min_length=1,
        description="train on from an earlier adapter: a run of this project, or a folder in it with a release",
    )
    parent_record: Parent | None = Field(
        None, description="what `parent` is; the start of a run finds it out and sets it"
    )
    objective_mix: ObjectiveMix | None = Field(
        None, description="how much plain text is trained on beside questions and answers; null: all samples once"
    )
    budget: Budget = Field(Budget(), description="what the training may cost")
    retention: Retention = Field(Retention(), description="what gc deletes when the command does not say")
    acceptance: dict[str, list[SpecCriterion]] = Field(
        default_factory=dict,
        description="criteria per stage, added to its defaults; one on the same metric and side replaces the default",
    )
    stages: dict[str, dict[str, Bounds | Any]] = Field(
        default_factory=dict, description="per stage, a fixed value or bounds for what the agent may propose"
    )
    caps: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="upper limits per stage that neither agent nor person can exceed"
    )
    added_stages: dict[str, AddedStage] = Field(
        default_factory=dict, description="stages of this project, by name; docs/stages.md says how they run"
    )
    task_packages: list[str] = Field(
        default_factory=lambda: [OWN_PACKAGE], description="packages whose functions added stages may run"
    )
    dry_run: DryRunSettings = Field(DryRunSettings(), description="settings of the dry run")
    launcher: Launcher = Field(Launcher(), description="how training processes start")
    agent: Agent = Field(Agent(), description="who proposes parameters")
    policy: Policy = Field(Policy(), description="who may decide at a gate")
    hub: Hub = Field(Hub(), description="where a hub id is downloaded from")
    rehearsal: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of the samples for a rehearsal, which releases nothing; `gatewright run --rehearse` sets it",
    )
    ledger: str | None = Field(None, description="database URL; null: SQLite in .gatewright/")

    def criteria(self, stage: str) -> list[Criterion]:
        """What a stage is judged by: its defaults, the objective (for `evaluate`), what the spec adds or loosens."""
        if stage in self.added_stages:
            return self.added_stages[stage].judged_by()
        criteria = default_criteria(stage)
        if self.objective and stage == "evaluate":
            goal = Criterion(metric=self.objective.metric, op=">=", bound=self.objective.at_least)
            criteria = merge(criteria, [goal])
        criteria = merge(criteria, [added.criterion() for added in self.acceptance.get(stage, [])])
        objective = self.objective.metric if self.objective else ""
        return criteria if self.rehearsal is None else rehearsed_criteria(stage, criteria, objective)

    @property
    def graph(self) -> StageGraph:
        """Built-in and added stages with what each waits for. Raises `CycleError`."""
        return graph_of(self.added_stages)

    def metrics_of(self, stage: str) -> list[MetricDefinition]:
        """The metrics of a stage, built-in or added."""
        added = self.added_stages.get(stage)
        return definitions_of(stage, added) if added else definitions(stage)

    def parameters_of(self, gate: str) -> type[Strict] | None:
        """The model of the parameters that a gate shows; None for a gate that does not exist."""
        added = self.added_stages.get(gate)
        return parameters_model(added) if added else PARAMETERS.get(gate)

    @field_validator("added_stages")
    @classmethod
    def _plain_names(cls, value: dict[str, AddedStage]) -> dict[str, AddedStage]:
        for name in value:
            if problem := stage_name_problem(name):
                raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _extraction_has_a_model(self) -> Project:
        if self.extraction == "llm" and not self.agent.model:
            raise ValueError('extraction: llm needs agent.model; write agent: {proposer: llm, model: "openai:..."}')
        return self

    @field_validator("acceptance", "stages", "caps")
    @classmethod
    def _known_stages(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name not in STAGES:
                raise ValueError(f"{name!r} is not a stage; stages are {', '.join(STAGES)}")
        return value

    @field_validator("stages", "caps")
    @classmethod
    def _known_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        for stage, settings in value.items():
            known = parameter_names(stage)
            for name in settings:
                if name not in known:
                    raise ValueError(f"{stage} has no parameter {name!r}; it has {', '.join(sorted(known))}")
        return value

    @field_validator("stages")
    @classmethod
    def _read_bounds(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        def read(setting: Any) -> Any:
            return Bounds.model_validate(setting) if isinstance(setting, dict) else setting

        return {stage: {name: read(s) for name, s in settings.items()} for stage, settings in value.items()}

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return known_time_zone(value)


def known_time_zone(value: str) -> str:
    """Raises `ValueError` for a name that is not in the IANA database."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a folder of the database, such as `Asia`
        near = nearest(value, available_timezones())
        raise ValueError(
            f"is not an IANA time zone; write {near[0] if near else 'a name such as Asia/Shanghai'}"
        ) from error
    return value


def parameter_names(stage: str) -> set[str]:
    """The leaf names a person may bound for a stage, the training configuration's included."""
    names = set(PARAMETERS[stage].model_fields)
    if "training" in names:
        names |= set(TrainingConfiguration.model_fields) | {"rank", "alpha", "dropout", "targets"}
        names -= {"training", "lora"}
    return names
