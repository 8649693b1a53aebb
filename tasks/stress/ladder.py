"""The out-of-memory ladder: what is tried instead of a configuration that does not fit, and in which order. Pure.

What a rung means is done by `Hands`; the ladder only decides. Free checks come first (who else holds memory, how the
allocator divides it). Then a probe with one sample of at most 512 tokens says whether the configuration can run at
all, and the ladder climbs back up from micro batch 1, with ever more accumulation in return: a step keeps its samples.
Where micro batches do not help, activation checkpointing joins, then an 8-bit, then a paged optimizer. Length, method
and hardware are never taken: a person decides about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from specs.base import Strict
from specs.limits import limits
from specs.parameters import Optimizer, TrainingConfiguration, leaves
from specs.project import Project

PROBE_TOKENS = 512

Result = Literal["runs", "out_of_memory", "above_limit", "failed", "named", "skipped"]
RAN = ("runs", "above_limit")

TAKES = ("allocator", "micro_batch", "gradient_accumulation", "activation_checkpointing", "optimizer")
"""The only settings that a ladder may change."""

_LESS_STATE: dict[Optimizer, tuple[Optimizer, ...]] = {
    "adamw": ("adamw_8bit", "paged_adamw_8bit"),
    "adamw_fused": ("adamw_8bit", "paged_adamw_8bit"),
    "adamw_8bit": ("paged_adamw_8bit",),
}


class Rung(Strict):
    """One line of `ladder.jsonl`. `changes` are all settings that differ from the approved configuration."""

    number: int = Field(ge=1, description="1 is the approved configuration itself")
    rung: str = Field(description="approved, processes, allocator, probe, micro_batch, ...")
    changes: dict[str, Any]
    longest: int | None = Field(None, description="samples of at most so many tokens; null: every planned one")
    outcome: Result
    why: str = ""
    peak_bytes: int | None = None
    usable_bytes: int | None = None
    processes: list[dict[str, Any]] = Field(default_factory=list, description="others that hold memory: name, bytes")
    taken: bool = Field(False, description="what was measured in the end")


class Hands(Protocol):
    """What a ladder is climbed with."""

    def attempt(self, rung: str, training: TrainingConfiguration, longest: int | None = None) -> Result:
        """Run a configuration: `runs`, `out_of_memory`, `above_limit` when it ran and took too much, or `failed` when
        something else than memory ended it. For the approved one that raises."""

    def note(self, rung: str, outcome: Result, why: str, training: TrainingConfiguration) -> None:
        """Write down a rung at which nothing was run."""

    def name_processes(self) -> None:
        """Write down who else holds memory of the device."""


@dataclass(frozen=True)
class Rules:
    """What a ladder may do here. `refuses` says why a configuration is not possible; empty where it is."""

    spec: Project
    gpu: bool
    expandable: bool
    longest: int
    refuses: Callable[[TrainingConfiguration], str] = lambda training: ""

    def why_not(self, training: TrainingConfiguration, changed: Sequence[str]) -> str:
        """Why these settings may not be changed to what they are in `training`; empty where they may."""
        flat = leaves(training.model_dump(mode="json"))
        for limit in limits(self.spec, "stress_test"):
            name = limit.path.removeprefix("training.")
            if name in changed and (broken := limit.broken_by(flat[name])):
                return broken
        return self.refuses(training)


@dataclass(frozen=True)
class Found:
    """Where a ladder ended. `training` is null when nothing that it may take runs; `possible`: the probe ran."""

    training: TrainingConfiguration | None
    possible: bool = True


def climb(start: TrainingConfiguration, rules: Rules, hands: Hands) -> Found:
    """The approved configuration where it runs, else the first that runs on the way up; see the module."""
    if hands.attempt("approved", start) != "out_of_memory":
        return Found(start)
    hands.name_processes()
    start, runs = _allocator(start, rules, hands)
    if runs:
        return Found(start)
    possible, above = False, None
    for level in _levels(start, rules, hands):
        possible = possible or _probe(level, rules, hands)
        if not possible:
            continue
        best, ran = _up(level, start, rules, hands)
        if best is not None:
            return Found(best)
        above = above or ran
    return Found(above, possible)


def _allocator(start: TrainingConfiguration, rules: Rules, hands: Hands) -> tuple[TrainingConfiguration, bool]:
    """The configuration with an allocator that wastes less, and whether it runs like that."""
    if not rules.gpu:
        hands.note("allocator", "skipped", "a setting of the GPU's allocator; memory of the CPU is given back", start)
        return start, False
    if start.allocator != "default":
        hands.note("allocator", "skipped", f"it is {start.allocator} already", start)
        return start, False
    other = start.model_copy(update={"allocator": "expandable_segments" if rules.expandable else "max_split_size"})
    if why := rules.why_not(other, ["allocator"]):
        hands.note("allocator", "skipped", why, start)
        return start, False
    return other, hands.attempt("allocator", other) in RAN


@dataclass(frozen=True)
class _Level:
    rung: str
    training: TrainingConfiguration


def _levels(start: TrainingConfiguration, rules: Rules, hands: Hands) -> Iterator[_Level]:
    """`start`, then with each saving that is allowed on top of those before it, as far as it is asked for."""
    training = start
    yield _Level("micro_batch", training)
    savings: list[tuple[str, object]] = [] if start.activation_checkpointing else [("activation_checkpointing", True)]
    savings += [("optimizer", optimizer) for optimizer in _LESS_STATE.get(start.optimizer, ())]
    for name, value in savings:
        other = training.model_copy(update={name: value})
        if why := rules.why_not(other, [name]):
            hands.note(name, "skipped", f"{name} {value}: {why}", training)
            continue
        training = other
        yield _Level(name, training)


def _probe(level: _Level, rules: Rules, hands: Hands) -> bool:
    """Whether one short sample at a time can be trained at all."""
    smallest = with_micro_batch(level.training, 1)
    if rules.longest <= PROBE_TOKENS:
        why = f"no sample is longer than {PROBE_TOKENS} tokens: micro batch 1 is the probe"
        hands.note("probe", "skipped", why, smallest)
        return True
    return hands.attempt("probe", smallest, PROBE_TOKENS) in RAN


def _up(
    level: _Level, start: TrainingConfiguration, rules: Rules, hands: Hands
) -> tuple[TrainingConfiguration | None, TrainingConfiguration | None]:
    """(the largest micro batch that runs within the limit, the smallest that ran above it)."""
    best = None
    for micro in micro_batches(start):
        training = with_micro_batch(level.training, micro)
        if training == start:
            break
        rung = level.rung if best is None else "micro_batch"
        if why := rules.why_not(training, ["micro_batch", "gradient_accumulation"]):
            hands.note(rung, "skipped", why, training)
            continue
        outcome = hands.attempt(rung, training)
        if outcome != "runs":
            return best, training if outcome == "above_limit" else None
        best = training
    return best, None


def micro_batches(training: TrainingConfiguration) -> list[int]:
    """Sizes from 1 up to the one given that divide the samples of a step, and whose number the ranks can share."""
    size, ranks = training.effective_batch, training.ranks
    return [d for d in range(1, training.micro_batch + 1) if size % d == 0 and size // d % ranks == 0]


def with_micro_batch(training: TrainingConfiguration, micro: int) -> TrainingConfiguration:
    """The same step in micro batches of another size."""
    changed = {"micro_batch": micro, "gradient_accumulation": training.effective_batch // micro}
    return training.model_copy(update=changed)


def changes(approved: TrainingConfiguration, training: TrainingConfiguration) -> dict[str, Any]:
    """Settings of `training` that differ from the approved ones, by dotted path."""
    before, now = (leaves(t.model_dump(mode="json")) for t in (approved, training))
    return {path: value for path, value in now.items() if before[path] != value}


def changed(approved: TrainingConfiguration, what: dict[str, Any]) -> TrainingConfiguration:
    """The approved configuration with what a rung changed."""
    return TrainingConfiguration.model_validate(approved.model_dump(mode="json") | what)


def proposals(training: TrainingConfiguration, found: Found, longest: int) -> list[str]:
    """What a person may decide when the ladder ends without a configuration that runs, the mildest first."""
    ways = []
    if found.possible and longest > PROBE_TOKENS:
        ways.append(
            f"shorter samples (they have up to {longest} tokens; {PROBE_TOKENS} ran): rework --stage data with "
            f"max_length and an over_long rule"
        )
    if training.weights == "fp32":
        ways.append("16-bit weights: --set weights=bf16 --set compute=bf16 (amp-bf16 for method full)")
    if training.method == "full":
        ways.append("method: lora in project.yaml")
    if training.method in ("lora", "dora") and training.weights not in ("nf4", "nf4-dq"):
        ways.append("method: qlora in project.yaml")
    return [*ways, "a device with more memory, or a smaller base model"]
