"""Seconds from counted work: rates that were measured, set against rates of thumb. Pure.

Work is counted in a few units (operations, micro batches, rows, ...); its seconds are the sum of each unit's count
times its rate. Rates begin as rules of thumb, each right within a factor, and every piece of work that was timed moves
them as far as it speaks for them: the most probable rates under log-normal errors (Gauss-Newton on their logarithms).
The same arithmetic says how far off a prediction may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specs.costs import STAGE_SECONDS, Took
from specs.results import BUSY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

WITHIN = 1.28
"""Standard deviations on each side of a prediction that hold four cases of five."""
PRIOR_SPREAD = 0.7
"""Of the logarithm of a rate of thumb: two of three machines are within a factor of two of it."""
LEAST_SPREAD = 0.05
"""Of a time that was measured without any load: what the same work differs by from one time to the next."""
UNKNOWN_LOAD = 0.5
"""Added to the spread of a time on a busy machine whose processor time was not measured."""
CLEANED_LOAD = 0.15
"""Added where it was: busy neighbours take caches too."""
_ROUNDS, _UNDAMPED, _LONGEST_MOVE = 90, 30, 1.0


@dataclass(frozen=True)
class Timed:
    """Work that took so many seconds; `spread` is the standard deviation of their logarithm."""

    work: Mapping[str, float]
    seconds: float
    spread: float


@dataclass(frozen=True)
class Estimate:
    """Seconds that are expected, and what holds four cases of five."""

    seconds: float
    low: float
    high: float


def predict(
    work: Mapping[str, float], timed: Sequence[Timed], thumb: Mapping[str, float], spread: float = LEAST_SPREAD
) -> Estimate | None:
    """Seconds of some work; null for none. `thumb` has the seconds of a unit before anything was measured.

    `spread` is how far one time differs from the next by itself. Raises `KeyError` for a unit without rule of thumb.
    """
    import numpy as np

    names = sorted({name for piece in (work, *(t.work for t in timed)) for name, count in piece.items() if count > 0})
    if not any(work.get(name, 0) > 0 for name in names):
        return None
    prior = np.log([thumb[name] for name in names])
    counts = np.array([[max(0.0, t.work.get(name, 0.0)) for name in names] for t in timed]).reshape(-1, len(names))
    used = counts.sum(axis=1) > 0
    counts = counts[used]
    seconds = np.log([max(1e-9, t.seconds) for t in timed])[used] if timed else np.zeros(0)
    weights = np.array([1 / t.spread**2 for t in timed])[used] if timed else np.zeros(0)
    rates, precision = prior.copy(), np.eye(len(names)) / PRIOR_SPREAD**2
    for number in range(_ROUNDS):
        slopes, said = _slopes(counts, rates)
        precision = np.eye(len(names)) / PRIOR_SPREAD**2 + slopes.T @ (weights[:, None] * slopes)
        pull = slopes.T @ (weights * (seconds - said)) - (rates - prior) / PRIOR_SPREAD**2
        move = np.linalg.solve(precision, pull)
        longest = float(np.abs(move).max())
        damping = 1.0 if number < _UNDAMPED else 0.5  # full moves can go to and fro around the answer
        rates = rates + damping * move * min(1.0, _LONGEST_MOVE / longest if longest else 1.0)
        if longest < 1e-9:
            break
    slopes, said = _slopes(np.array([[max(0.0, work.get(name, 0.0)) for name in names]]), rates)
    variance = float((slopes @ np.linalg.solve(precision, slopes.T))[0, 0]) + spread**2
    expected, factor = math.exp(float(said[0])), math.exp(WITHIN * math.sqrt(variance))
    return Estimate(expected, expected / factor, expected * factor)


def _slopes(counts: Numbers, rates: Numbers) -> tuple[Numbers, Numbers]:
    """(share of each unit in each piece of work, logarithm of its seconds) under these rates."""
    import numpy as np

    parts = counts * np.exp(rates)
    whole = parts.sum(axis=1)
    return parts / whole[:, None], np.log(whole)


# -- how long work would have taken on an idle machine


def idle_seconds(took: Took, peers: Sequence[Took]) -> tuple[float, float]:
    """(seconds that a piece of work would have taken with the machine for itself, spread to add for that).

    Processor time hardly depends on what else runs. Where others kept the machine busy, it is divided by the
    processors that the same kind of work keeps busy when it is alone: as `peers` on a quiet machine did, else the most
    that was seen of it, and one at least. No piece took less than that, none longer than the clock says.
    """
    share = took.others_cpu_share
    if share is not None and share < BUSY:
        return took.wall_s, LEAST_SPREAD
    if took.cpu_s is None or not took.on_cpu:  # a GPU computes while its process waits
        return took.wall_s, UNKNOWN_LOAD if share is not None else UNKNOWN_LOAD / 2
    alike = [p for p in peers if (p.kind, p.model, p.setting) == (took.kind, took.model, took.setting) and p.cpu_s]
    alike = [p for p in alike if p.kind == "steps" or p.stage == took.stage]
    quiet = [_kept_busy(p) for p in alike if p.others_cpu_share is not None and p.others_cpu_share < BUSY]
    cores = sorted(quiet)[len(quiet) // 2] if quiet else max(1.0, *(_most(p) for p in (*alike, took)))
    return min(took.wall_s, took.cpu_s / cores) or took.wall_s, CLEANED_LOAD


def _kept_busy(took: Took) -> float:
    return (took.cpu_s or 0.0) / took.wall_s


def _most(took: Took) -> float:
    return max(_kept_busy(took), took.cores or 0.0)


def together(pieces: Sequence[Took], kind: str) -> Took | None:
    """The pieces of a stage that are of a kind, as one; null where there is none."""
    mine = [p for p in pieces if p.kind == kind]
    if not mine:
        return None
    cpu = [p.cpu_s for p in mine if p.cpu_s is not None]
    names = {name for p in mine for name in p.work}
    return mine[0].model_copy(
        update={
            "work": {name: sum(p.work.get(name, 0.0) for p in mine) for name in sorted(names)},
            "wall_s": sum(p.wall_s for p in mine),
            "cpu_s": sum(cpu) if len(cpu) == len(mine) else None,
            "cores": sum(p.cores or 0.0 for p in mine) / len(mine) or None,
        }
    )


def alone(pieces: Sequence[Took], metric: str, unit: str, value: float) -> float | None:
    """What a measured time of a stage would have been without other programs, as far as its own `pieces` tell.

    Null of what is no time, and where nothing was measured that tells.
    """
    took = together(pieces, "stage" if metric == STAGE_SECONDS else "steps")
    if unit not in ("s", "h") or took is None or took.others_cpu_share is None or took.cpu_s is None or not took.on_cpu:
        return None
    return value * idle_seconds(took, pieces)[0] / took.wall_s
