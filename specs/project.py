"""`project.yaml`: what a person writes. Only `project`, `base_model` and `sources` are required."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from specs.added import OWN_PACKAGE, AddedStage, definitions_of, graph_of, parameters_model
from specs.base import Language, Strict
from specs.criteria import Criterion, Op, merge
from specs.metrics import STAGES, MetricDefinition, default_criteria, definitions
from specs.parameters import PARAMETERS, Method, PlainTextKind, TrainingConfiguration
from specs.parent import Parent
from specs.policy import Policy
from specs.rehearsal import rehearsed_criteria
from specs.sources import AnySource, GeneralText, known_time_zone
from specs.stage_graph import StageGraph, stage_name_problem
from specs.trials import TrialSettings


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
    trials: TrialSettings = Field(
        TrialSettings(), description="small trials of rank, learning rate and length; vary: [] makes none"
    )


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
    revision: str | None = Field(
        None, description="of base_model: commit, tag or branch; null: the newest. Each run is frozen with the commit"
    )


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
    general_text: GeneralText | None = Field(
        None, description="general text that the training must not forget; null: not measured"
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
        """What a stage is judged by: its defaults, objective and general text of `evaluate`, what the spec adds."""
        if stage in self.added_stages:
            return self.added_stages[stage].judged_by()
        criteria = default_criteria(stage)
        if self.objective and stage == "evaluate":
            goal = Criterion(metric=self.objective.metric, op=">=", bound=self.objective.at_least)
            criteria = merge(criteria, [goal])
        if self.general_text and stage == "evaluate":
            kept = Criterion(metric="general_text_loss_change", op="<=", bound=self.general_text.at_most)
            criteria = merge(criteria, [kept])
        criteria = merge(criteria, [added.criterion() for added in self.acceptance.get(stage, [])])
        objective = self.objective.metric if self.objective else ""
        return criteria if self.rehearsal is None else rehearsed_criteria(stage, criteria, objective)

    @property
    def fillable(self) -> float | None:
        """The share of usable memory above which the stress test blocks; null where it only warns."""
        judged = [c for c in self.criteria("stress_test") if c.metric == "usable_share" and c.op in ("<", "<=")]
        return min((c.bound for c in judged if c.blocking), default=None)

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


def parameter_names(stage: str) -> set[str]:
    """The leaf names a person may bound for a stage, the training configuration's included."""
    names = set(PARAMETERS[stage].model_fields)
    if "training" in names:
        names |= set(TrainingConfiguration.model_fields) | {"rank", "alpha", "dropout", "targets"}
        names -= {"training", "lora", "trials"}
    return names
