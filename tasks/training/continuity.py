"""The proof that a resumed training goes on where it stopped: same batch, same loss. Pure.

Two comparisons. A checkpoint holds the loss, without dropout, of one micro batch under exactly its weights; it is
computed again after loading. And steps that were trained before the interruption but after the checkpoint are trained
again: their losses must be those of `metrics.jsonl`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specs import tolerances
from specs.errors import ResumeRefused

RETRACED = 3
"""Steps that are compared where they may differ, since differences grow; bit for bit all of them are."""


def tolerance(device: str, compute: str, *, elsewhere: bool = False) -> float:
    """What two computations of one loss may differ by, relatively.

    `elsewhere`: on another device or with other libraries, as a person confirmed: they may add in another order.
    """
    row = tolerances.tolerance(device, compute)
    return row.regrouped if elsewhere else row.repeated


def prove_loss(was: float, compute: Callable[[], float], allowed: float, checkpoint: str) -> dict[str, float]:
    """How far the loss of the pinned batch is from what it `was`, absolutely, and how far it was at first.

    What differs is computed once more, since processors and kernels err now and then; wrong weights differ both times.
    Raises `ResumeRefused` when they do. `allowed` is relative.
    """
    first = compute()
    if _same(was, first, allowed):
        return {"largest_difference": abs(first - was)}
    now = compute() if math.isfinite(first) else first
    if _same(was, now, allowed):
        return {"largest_difference": abs(now - was), "difference_at_first": abs(first - was)}
    raise ResumeRefused(
        f"checkpoint {checkpoint} does not continue its training: the loss of its pinned batch was {was:.9g} when "
        f"it was saved and is {now:.9g} now",
        "the weights are those of the file, so the model code, a kernel or the device computes otherwise: use the "
        "machine and the versions of before, or delete the checkpoints of this stage to train from the beginning",
    )


def _same(was: float, now: float, allowed: float) -> bool:
    return abs(now - was) <= allowed * abs(was)  # never where one of them is NaN


class Retrace:
    """What the steps after a checkpoint brought before the interruption, to be compared as they are trained again."""

    def __init__(
        self, lines: Sequence[Mapping[str, Any]], device: str, compute: str, *, elsewhere: bool = False
    ) -> None:
        self.allowed = tolerance(device, compute, elsewhere=elsewhere)
        wanted = {int(r["step"]): r["loss"] for r in lines if r["loss"] is not None}
        steps = sorted(wanted) if self.allowed == 0 else sorted(wanted)[:RETRACED]
        self.wanted = {step: float(wanted[step]) for step in steps}
        self.compared = 0
        self.largest = 0.0

    def compare(self, step: int, loss: float) -> bool:
        """Whether this step was the last to compare. Raises `ResumeRefused` when it brings another loss than before."""
        was = self.wanted.pop(step, None)
        if was is None:
            return False
        difference = abs(loss - was)
        if not difference <= self.allowed * abs(was):
            raise ResumeRefused(
                f"the resumed training does not continue the curve: step {step} had a loss of {was:.9g} before the "
                f"interruption and has {loss:.9g} now, on the same batch",
                "nothing after the checkpoint was saved: use the machine and the versions of before, or delete the "
                "checkpoints of this stage to train from the beginning",
            )
        self.compared += 1
        self.largest = max(self.largest, difference)
        return not self.wanted
