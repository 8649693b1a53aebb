"""The census of an epoch: what was fed against what was planned, each sample exactly once. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specs.base import Strict
from tasks.training.feed import PlannedStep


class Census(Strict):
    """One line of `census.jsonl`. Counts are samples, except where they say otherwise."""

    epoch: int
    step: int
    planned: int
    fed: int
    too_often: int
    too_rarely: int
    micro_batches_out_of_order: int

    @property
    def fault(self) -> str:
        """What is wrong, in words; empty when every planned sample was fed exactly once and in order."""
        if not (self.too_often or self.too_rarely or self.micro_batches_out_of_order):
            return ""
        return (
            f"epoch {self.epoch}: what was fed is not what was planned: {self.too_often} samples too often, "
            f"{self.too_rarely} too rarely, {self.micro_batches_out_of_order} micro batches out of order"
        )


def take_census(
    epoch: int, steps: Sequence[PlannedStep], fed: Iterable[Mapping[str, Any]], *, whole_plan: bool = True
) -> Census:
    """Compare the lines of `micro_batches.jsonl` that belong to an epoch with its planned steps.

    In a whole plan each sample stands once in an epoch, so that "too often" also counts a plan that names it twice;
    the plan of a measurement repeats its steps.
    """
    mine = [step for step in steps if step.epoch == epoch]
    numbers = {step.step for step in mine}
    wanted = [(s.step, b.number, b.rank, list(b.sample_ids)) for s in mine for b in s.micro_batches]
    found = [(r["step"], r["micro_batch"], r.get("rank", 0), r["sample_ids"]) for r in fed if r["step"] in numbers]
    planned = Counter(i for *_, ids in wanted for i in ids)
    counted = Counter(i for *_, ids in found for i in ids)
    wanted_times = Counter(planned.keys()) if whole_plan else planned
    wrong = sum(one != other for one, other in zip(wanted, found, strict=False)) + abs(len(wanted) - len(found))
    return Census(
        epoch=epoch,
        step=mine[-1].step,
        planned=wanted_times.total(),
        fed=counted.total(),
        too_often=(counted - wanted_times).total(),
        too_rarely=(wanted_times - counted).total(),
        micro_batches_out_of_order=wrong,
    )


def ends_epoch(steps: Sequence[PlannedStep], step: int) -> bool:
    """Whether `step` (from 1) is the last of its epoch in this plan."""
    return step == len(steps) or steps[step].epoch != steps[step - 1].epoch
