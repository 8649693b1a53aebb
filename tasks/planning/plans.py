"""What a plan search takes and answers, as documents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specs.base import Strict
from specs.parameters import Method, Optimizer
from tasks.memory.account import Account
from tasks.memory.settings import Offload, Sharding, Weights

Compute = Literal["fp32", "bf16", "amp-bf16", "amp-fp16"]
TimeSource = Literal["predicted", "scaled", "measured"]
MemorySource = Literal["predicted", "calibrated", "measured"]
"""Of an account: the account itself, corrected by a stress test of the same kind of training, or its measured peak."""
Lever = Literal[
    "other_processes",
    "allocator",
    "micro_batch",
    "activation_checkpointing",
    "optimizer",
    "length",
    "lora",
    "qlora",
    "zero",
    "offload",
    "cards",
]
"""What makes a refused plan fit, in the order in which it is tried."""


class Configuration(Strict):
    """One complete candidate. `ranks` work on one batch: data parallel times tensor parallel times pipeline stages."""

    method: Method
    weights: Weights
    compute: Compute
    optimizer: Optimizer
    micro_batch: int
    gradient_accumulation: int
    data_ranks: int = Field(description="groups that take different samples")
    seq_len: int
    activation_checkpointing: bool
    attention: Literal["sdpa", "eager", "flash"]
    sharding: Sharding = "none"
    offload: Offload = "none"
    tensor_parallel: int = 1
    pipeline_stages: int = 1

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.micro_batch * self.gradient_accumulation * self.data_ranks

    @property
    def cards(self) -> int:
        """Cards that work."""
        return self.data_ranks * self.tensor_parallel * self.pipeline_stages

    @property
    def divides_layers(self) -> bool:
        """Whether a layer, or the row of layers, is divided among cards."""
        return self.tensor_parallel > 1 or self.pipeline_stages > 1

    @property
    def undivided(self) -> Configuration:
        """The same with every layer on every card."""
        return self.model_copy(update={"tensor_parallel": 1, "pipeline_stages": 1})


class Seconds(Strict):
    """Seconds of one optimizer step with an interval, and what they are made of (`parts` add up to at most `high`)."""

    expected: float
    low: float
    high: float
    parts: dict[str, float]
    bound: str = Field(description="the part that takes longest")
    source: TimeSource = "predicted"


class Duration(Strict):
    """Hours of the whole run with an interval, what they are made of, and their price."""

    hours: float
    low: float
    high: float
    parts: dict[str, float]
    steps: int
    tokens: float = Field(description="padded tokens of all epochs")
    money: float | None = None


class Step(Strict):
    """One thing that makes a refused plan fit: the lever, the settings it changes, and what is needed after it."""

    lever: Lever
    change: dict[str, str | int | bool]
    needed_bytes: int
    fits: bool = Field(description="false: a part of the way, the next step is needed too")
    slower: float | None = Field(None, description="how many times as long a step takes after it; null: not known")


Rule = Literal["memory", "host", "disk", "hours", "money", "batch", "offloaded-quantized"]


class Lack(Strict):
    """One thing there is too little of: bytes, hours, money, or ranks that divide the effective batch."""

    rule: Rule
    needed: float
    there: float


class Refusal(Strict):
    """Why a plan cannot be had. `way_out` lists single changes that suffice, in the order of the levers; where none
    does, the steps that together do. Each step says whether it is enough."""

    lacks: list[Lack] = Field(default_factory=list)
    unrecorded: str | None = Field(None, description="why the model code cannot run it, so that it has no account")
    over_bytes: int = Field(0, description="how much is missing on a card")
    way_out: list[Step] = Field(default_factory=list)


Bind = Literal["memory", "effective_batch", "longest_sample", "compute", "bandwidth", "link", "host", "launch"]


class Pipeline(Strict):
    """What a row of stages costs: the bubble as a share of the working time, and the micro batches it needs a step."""

    bubble: float
    fewest_micro_batches: int


class Plan(Strict):
    """A candidate with its account, time and price, and what binds it; `refused` where it cannot be had."""

    configuration: Configuration
    account: Account | None
    memory_source: MemorySource = "predicted"
    account_bytes: int | None = Field(None, description="what the account alone says, where a measurement stands here")
    utilisation: float
    seconds: Seconds | None
    duration: Duration | None
    samples_over_length: int = 0
    pipeline: Pipeline | None = Field(None, description="null: no pipeline")
    binds: list[Bind] = Field(default_factory=list, description="what keeps it from being larger or faster")
    refused: Refusal | None = None

    @property
    def feasible(self) -> bool:
        """Whether nothing refuses it."""
        return self.refused is None


class Limits(Strict):
    """What the person allows. `methods` and the rest are tried in their order, which is the order of preference."""

    methods: tuple[Method, ...] = ("lora", "qlora", "full")
    rank: int = Field(16, ge=1)
    dropout: float = Field(0.05, ge=0, lt=1, description="of the adapters")
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    optimizers: tuple[Optimizer, ...] = ("adamw_fused", "adamw_8bit", "paged_adamw_8bit")
    offload: bool = True
    hours: float | None = Field(None, gt=0)
    money: float | None = Field(None, gt=0)
    free_bytes: int | None = Field(None, description="what other processes leave of a card; null: all of it")


class LeftOut(Strict):
    """A way to divide layers that was looked at and gives no plan."""

    reason: Literal["pipeline_short", "heads"]
    values: dict[str, int]


class PlanSearch(Strict):
    """Feasible plans, the preferred first, and refused ones, the nearest to fitting first."""

    model: str
    device: str
    cards: int
    usable_bytes: int
    effective_batch: int
    plans: list[Plan]
    refused: list[Plan]
    candidates: int
    indivisible_ranks: list[int] = Field(description="numbers of cards that cannot share the effective batch")
    left_out: list[LeftOut] = Field(default_factory=list, description="of tensor and pipeline parallel, where needed")

    @property
    def preferred(self) -> Plan | None:
        """The plan to take."""
        return self.plans[0] if self.plans else None
