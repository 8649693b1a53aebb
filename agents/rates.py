"""Seconds from counted work: rates that were measured, set against rates of thumb. Pure.

Work is counted in a few units (operations, micro batches, rows, ...); its seconds are the sum of each unit's count
times its rate. Rates begin as rules of thumb, each right within a factor, and every piece of work that was timed moves
them as far as it speaks for them: the most probable rates under log-normal errors. They are found by Newton's method
with a line search (Nocedal and Wright, Numerical Optimization, chapter 3): every move makes the rates more probable, so
that it settles whatever was timed. The same arithmetic says how far off a prediction may be.
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
_ROUNDS = 100
_SETTLED = 1e-16
"""The search ends where a further move would change the logarithm of the probability by less."""
_ENOUGH, _SHORTEST = 1e-4, 2.0**-40
"""What a move must gain of what its slope promises (Armijo's rule), and the least part of it that is tried."""


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
    used = [piece for piece in timed if any(count > 0 for count in piece.work.values())]
    rates, precision = most_probable(
        np.array([_logarithms(piece.work, names) for piece in used]).reshape(-1, len(names)),
        np.log([max(1e-9, piece.seconds) for piece in used]),
        np.array([piece.spread**-2.0 for piece in used]),
        prior,
    )
    slopes, said = _slopes(np.array([_logarithms(work, names)]), rates)
    variance = float((slopes @ np.linalg.solve(precision, slopes.T))[0, 0]) + spread**2
    expected, factor = math.exp(float(said[0])), math.exp(WITHIN * math.sqrt(variance))
    return Estimate(expected, expected / factor, expected * factor)


def _logarithms(work: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Of the count of each unit; minus infinity for none."""
    return [math.log(count) if (count := work.get(name, 0.0)) > 0 else -math.inf for name in names]


def most_probable(counts: Numbers, seconds: Numbers, weights: Numbers, prior: Numbers) -> tuple[Numbers, Numbers]:
    """(logarithms of the rates, their precision) from rates of thumb and what was timed.

    `counts` (pieces, units), `seconds` (pieces) and `prior` (units) are logarithms, `weights` (pieces) one over the
    square of a piece's spread. A move goes by the exact second derivatives where these are positive definite, else by
    Gauss and Newton's, which always are; it is halved until it gains enough.
    """
    import numpy as np

    def cost(rates: Numbers) -> float:
        """Minus the logarithm of the probability."""
        missed = _slopes(counts, rates)[1] - seconds
        return 0.5 * float(weights @ missed**2) + 0.5 * float(np.sum((rates - prior) ** 2)) / PRIOR_SPREAD**2

    rates, own = prior.copy(), np.eye(len(prior)) / PRIOR_SPREAD**2
    for _ in range(_ROUNDS):
        slopes, said = _slopes(counts, rates)
        missed = weights * (said - seconds)
        precision = own + slopes.T @ (weights[:, None] * slopes)
        pull = -slopes.T @ missed - own @ (rates - prior)
        curved = precision + np.diag(missed @ slopes) - slopes.T @ (missed[:, None] * slopes)
        move = np.linalg.solve(curved if _is_positive(curved) else precision, pull)
        promised, part, before = float(pull @ move), 1.0, cost(rates)
        while part > _SHORTEST and cost(rates + part * move) > before - _ENOUGH * part * promised:
            part /= 2
        if promised < _SETTLED or part <= _SHORTEST:  # the last: as far as numbers of this size can tell
            break
        rates = rates + part * move
    slopes, _ = _slopes(counts, rates)
    return rates, own + slopes.T @ (weights[:, None] * slopes)


def _is_positive(matrix: Numbers) -> bool:
    """Whether a symmetric matrix is positive definite."""
    import numpy as np

    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _slopes(counts: Numbers, rates: Numbers) -> tuple[Numbers, Numbers]:
    """(share of each unit in each piece of work, logarithm of its seconds) under these rates, all in logarithms."""
    import numpy as np

    parts = counts + rates
    largest = parts.max(axis=1, initial=-np.inf)[:, None]  # taken out of the sum, which then cannot overflow
    shares = np.exp(parts - largest)
    whole = shares.sum(axis=1)
    return shares / whole[:, None], np.log(whole) + largest[:, 0]


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
