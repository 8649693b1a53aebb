"""The early judgement: after the first epoch, or a share of the steps, does the held-out loss say go on? Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from specs.base import Strict
from tasks.data.batch_plan import PlanRow

MOST_JUDGED = 64
"""Held-out samples that are measured, spread over the lengths: the noise of more is not what decides."""

FEWEST_JUDGED = 4

STANDARD_ERRORS = 2.0

JUDGEMENT = "judgement.json"

GO_ON = "go_on.json"
"""In the folder of a worker: a person lets the training go on, whatever its early judgement said, and why."""

Verdict = Literal["go on", "ask", "stop", "not judged"]


class Judgement(Strict):
    """`judgement.json`: mean losses in nats per learnt token before the first step and now, and what follows."""

    step: int
    epoch: int
    samples: int
    too_long: int
    before: float | None
    now: float | None
    change: float | None
    standard_error: float | None
    bound: float
    verdict: Verdict

    @property
    def words(self) -> str:
        """The finding in one sentence."""
        if self.change is None or self.standard_error is None:
            return f"after step {self.step} nothing was judged: {self.samples} held-out samples are too few"
        return (
            f"after step {self.step} the held-out loss is {self.now:.4f} nats per token, {self.before:.4f} before "
            f"training: a change of {self.change:+.4f} with a standard error of {self.standard_error:.4f}, over "
            f"{self.samples} samples; it must be below {self.bound:g}"
        )


def judge_step(rows: Sequence[PlanRow], share: float | None) -> int | None:
    """The step after which is judged: at a share of the plan, else where its first epoch ends; null where that is
    the end of the training, which the stage `evaluate` judges."""
    last = rows[-1].step
    step = max(1, int(share * last)) if share is not None else max(r.step for r in rows if r.epoch == 1)
    return step if step < last else None


def choose_judged(samples: Sequence[tuple[str, int]], most_tokens: int) -> tuple[list[str], int]:
    """Held-out samples (id, tokens) to measure, and how many are left out because one alone has more than
    `most_tokens`: an evaluation never needs more memory than a training step."""
    fitting = sorted((n, i) for i, n in samples if n <= most_tokens)
    count = min(MOST_JUDGED, len(fitting))
    chosen = sorted({fitting[k * len(fitting) // count][1] for k in range(count)})
    return chosen, len(samples) - len(fitting)


def judge(
    before: Mapping[str, float], now: Mapping[str, float], *, step: int, epoch: int, bound: float, too_long: int = 0
) -> Judgement:
    """Compare the mean loss of each sample with what it was: go on when the change is below the bound by two standard
    errors, stop when it is above it by two, else ask."""
    ids = sorted(before.keys() & now.keys())
    if len(ids) < FEWEST_JUDGED:
        return Judgement(
            step=step,
            epoch=epoch,
            samples=len(ids),
            too_long=too_long,
            before=None,
            now=None,
            change=None,
            standard_error=None,
            bound=bound,
            verdict="not judged",
        )
    changes = [now[i] - before[i] for i in ids]
    change = statistics.fmean(changes)
    error = statistics.stdev(changes) / math.sqrt(len(ids))
    verdict: Verdict = "ask"
    if change + STANDARD_ERRORS * error < bound:
        verdict = "go on"
    elif change - STANDARD_ERRORS * error > bound:
        verdict = "stop"
    return Judgement(
        step=step,
        epoch=epoch,
        samples=len(ids),
        too_long=too_long,
        before=statistics.fmean(before[i] for i in ids),
        now=statistics.fmean(now[i] for i in ids),
        change=change,
        standard_error=error,
        bound=bound,
        verdict=verdict,
    )
