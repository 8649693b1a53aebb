"""Which planned steps are the worst, and the short plan that measures them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.data.batch_plan import PlanRow

MOST_TOKENS, LONGEST_SAMPLE, HEAVIEST_MICRO_BATCH = "most_padded_tokens", "longest_sample", "heaviest_micro_batch"


@dataclass(frozen=True)
class WorstStep:
    """A planned step and why it is measured. `padded_tokens` is the sum over the step's samples."""

    step: int
    why: tuple[str, ...]
    padded_tokens: int
    longest: int


def worst_steps(rows: Sequence[PlanRow]) -> list[WorstStep]:
    """The steps with the most padded tokens, the longest sample and the largest micro batch; the heaviest first.

    One step may be the worst in several ways. The earliest wins a tie.
    """
    steps: dict[int, list[PlanRow]] = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)

    def most(key: str) -> int:
        return max(steps, key=lambda step: (_weight(steps[step], key), -step))

    chosen: dict[int, list[str]] = {}
    for why in (MOST_TOKENS, LONGEST_SAMPLE, HEAVIEST_MICRO_BATCH):
        chosen.setdefault(most(why), []).append(why)
    return [
        WorstStep(step, tuple(why), _weight(steps[step], MOST_TOKENS), _weight(steps[step], LONGEST_SAMPLE))
        for step, why in chosen.items()
    ]


def _weight(rows: Sequence[PlanRow], why: str) -> int:
    if why == LONGEST_SAMPLE:
        return max(row.n_tokens for row in rows)
    sizes: dict[tuple[int, int], int] = {}
    for row in rows:
        sizes[row.rank, row.micro_batch] = sizes.get((row.rank, row.micro_batch), 0) + row.padded_tokens
    return max(sizes.values()) if why == HEAVIEST_MICRO_BATCH else sum(sizes.values())


@dataclass(frozen=True)
class StressPlan:
    """`rows` to run, the planned step behind each run step (1, 2, ...), and the run step to save and resume at."""

    rows: list[PlanRow]
    planned: dict[int, int]
    save_at: int


def stress_plan(
    rows: Sequence[PlanRow], worst: Sequence[WorstStep], growth_steps: int, between: Sequence[int] = ()
) -> StressPlan:
    """The heaviest step `growth_steps` times, then those `between`, then the other worst ones, or the heaviest again.

    The save comes before the last part, so that a resume from it has something to train.
    """
    heaviest, others = worst[0].step, [w.step for w in worst[1:]]
    order = [heaviest] * growth_steps + [step for step in between if step not in (heaviest, *others)]
    order += others or [heaviest]
    by_step: dict[int, list[PlanRow]] = {}
    for row in rows:
        if row.step in order:
            by_step.setdefault(row.step, []).append(row)
    planned = dict(enumerate(order, start=1))
    run = [replace(row, epoch=1, step=number) for number, step in planned.items() for row in by_step[step]]
    return StressPlan(run, planned, len(order) - 1)
