"""One recorded step for every micro batch and length: sizes as polynomials, the moments that can be its peaks. Pure.

A step is recorded once, with a prime number of samples B and a length S = 128 q, q prime, that divide no dimension of
the model. Every storage's size then says by its divisors how it grows: with B, with S or its square, with both, or not
at all. The order of births and deaths does not depend on B and S, so the polynomial of what is alive at a moment is the
sum over the storages alive then; at each place only moments that no other exceeds in every coefficient can be its peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy

from tasks.memory.account import Basis, powers
from tasks.memory.timeline import Peak, Place, Resident, Timeline

BASIS: tuple[Basis, ...] = get_args(Basis)
RESIDENTS: tuple[Resident, ...] = get_args(Resident)
GRANULE = 128
"""Lengths are multiples of it: blocks of attention kernels and the allocator's rounding then leave no remainder."""
CANDIDATES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
"""Primes from which samples and granules of a recording are chosen."""


@dataclass(frozen=True)
class Probe:
    """The batch of a recording: `samples` is 1 or a prime, the length is GRANULE times the prime `granules`."""

    samples: int
    granules: int

    @property
    def seq_len(self) -> int:
        """Tokens of a sample."""
        return GRANULE * self.granules

    def clashes(self, dimensions: set[int]) -> bool:
        """Whether a dimension of the model could be taken for samples or tokens."""
        taken = {self.granules, *(_largest_prime(self.seq_len + k) for k in (1, -1))}
        if self.samples > 1:
            taken.add(self.samples)
        return any(d and d % prime == 0 for d in dimensions for prime in taken)


def _largest_prime(number: int) -> int:
    factor, largest = 2, 1
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            largest, number = factor, number // factor
    return max(largest, number)


def probe_for(several: bool, dimensions: set[int], at_least: int, at_most: int | None) -> Probe:
    """A probe that clashes with no dimension, its length between the bounds where primes allow it."""
    granules = [p for p in CANDIDATES if not Probe(1, p).clashes(dimensions)]
    inside = [p for p in granules if at_least <= GRANULE * p and (at_most is None or GRANULE * p <= at_most)]
    chosen = (inside or granules)[0]
    samples = [p for p in CANDIDATES if p != chosen and not Probe(p, p).clashes(dimensions)] if several else [1]
    return Probe(samples[0], chosen)


def coefficients_of(size: int, probe: Probe, rounding: int) -> list[float]:
    """A storage's bytes in the order of BASIS; what does not depend on the batch is rounded as the allocator does."""
    found = dict.fromkeys(BASIS, 0.0)
    with_samples = probe.samples > 1 and size > 0 and size % probe.samples == 0
    rest = size // probe.samples if with_samples else size
    prefix = "B" if with_samples else ""
    length = probe.seq_len
    if rest and rest % probe.granules**2 == 0:
        found[f"{prefix}SS"] = rest / length**2  # type: ignore[index]
    elif rest and rest % probe.granules == 0:
        found[f"{prefix}S"] = rest / length  # type: ignore[index]
    elif rest and any(rest % (length + k) == 0 for k in (1, -1)):
        k = next(k for k in (1, -1) if rest % (length + k) == 0)
        per_token = rest / (length + k)
        found[f"{prefix}S"] = per_token  # type: ignore[index]
        found[prefix or "1"] = per_token * k  # type: ignore[index]
    elif with_samples:
        found["B"] = float(rest)
    else:
        found["1"] = float(-(-size // rounding) * rounding)
    return [found[b] for b in BASIS]


def moments_of(timeline: Timeline, probe: Probe, rounding: int) -> dict[Place, Any]:
    """Per place an array (moments, RESIDENTS, BASIS) of the moments that can be its peak for some batch."""
    sizes = numpy.array([coefficients_of(size, probe, rounding) for size in timeline.sizes])
    kinds = [RESIDENTS.index(timeline.kinds.get(n, "temporary")) for n in range(len(timeline.sizes))]
    now = numpy.zeros((len(RESIDENTS), len(BASIS)))
    place, found = Place("build", "model"), dict[Place, list[Any]]()
    for event in timeline.events:
        if isinstance(event, Place):
            place = event
        else:
            number, sign = (event, 1) if event >= 0 else (~event, -1)
            now[kinds[number]] += sign * sizes[number]
        if isinstance(event, Place) or event >= 0:  # a death is never a peak
            found.setdefault(place, []).append(now.copy())
    return {
        place: _undominated(numpy.stack(moments))
        for place, moments in found.items()
        if place.phase not in ("build", "end")
    }


def _undominated(moments: Any) -> Any:
    """Moments whose total no other one reaches in every coefficient; the first of equal ones."""
    totals = numpy.round(moments.sum(axis=1), 6)
    _, first = numpy.unique(totals, axis=0, return_index=True)
    order = sorted((int(i) for i in first), key=lambda i: tuple(-totals[i]))
    kept: list[int] = []
    for index in order:
        if not any((totals[other] >= totals[index]).all() for other in kept):
            kept.append(index)
    return moments[sorted(kept)]


class Peaks:
    """The peaks of every place of a recorded step at any batch."""

    def __init__(self, moments: dict[Place, Any]) -> None:
        self.places = list(moments)
        self._stacked = numpy.concatenate([moments[p] for p in self.places])
        edges = numpy.cumsum([0, *(len(moments[p]) for p in self.places)])
        self._ranges = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))

    def at(self, micro_batch: int, seq_len: int) -> dict[Place, Peak]:
        """Bytes by place and resident."""
        values = powers(micro_batch, seq_len)
        sizes = self._stacked @ numpy.array([values[b] for b in BASIS])
        totals = sizes.sum(axis=1)
        found = {}
        for place, (start, end) in zip(self.places, self._ranges, strict=True):
            best = start + int(totals[start:end].argmax())
            parts = {name: round(size) for name, size in zip(RESIDENTS, sizes[best].tolist(), strict=True) if size > 0}
            found[place] = Peak(sum(parts.values()), parts)  # type: ignore[arg-type]
        return found


def sparse(moment: Any) -> dict[str, dict[str, float]]:
    """One moment for a file: bytes by resident and power, without zeros."""
    return {
        name: {b: float(c) for b, c in zip(BASIS, row, strict=True) if c}
        for name, row in zip(RESIDENTS, moment.tolist(), strict=True)
        if any(row)
    }


def dense(moments: Sequence[dict[str, dict[str, float]]]) -> Any:
    """The inverse of `sparse`, for all moments of a place."""
    return numpy.array([[[m.get(name, {}).get(b, 0.0) for b in BASIS] for name in RESIDENTS] for m in moments]).reshape(
        len(moments), len(RESIDENTS), len(BASIS)
    )


Polynomial = dict[Basis, float]


def written(timeline: Timeline, probe: Probe) -> dict[str, Polynomial]:
    """Bytes that operators write in each phase: what memory bandwidth has to carry at least."""
    born, phase = list[tuple[str, int]](), ""
    for event in timeline.events:
        if isinstance(event, Place):
            phase = event.phase
        elif event >= 0:
            born.append((phase, timeline.sizes[event]))
    return _summed(born, probe)


def multiplied(timeline: Timeline, probe: Probe) -> dict[str, Polynomial]:
    """Floating-point operations of matrix products in each phase."""
    return _summed(timeline.products, probe)


def _summed(amounts: Sequence[tuple[str, int]], probe: Probe) -> dict[str, Polynomial]:
    """(phase, amount) pairs added up by phase, without zeros."""
    found: dict[str, Any] = {}
    for phase, amount in amounts:
        now = found.setdefault(phase, numpy.zeros(len(BASIS)))
        now += numpy.array(coefficients_of(amount, probe, 1))
    return {phase: {b: float(c) for b, c in zip(BASIS, row.tolist(), strict=True) if c} for phase, row in found.items()}


def value(polynomial: Polynomial, micro_batch: float, seq_len: float) -> float:
    """A polynomial at one batch."""
    at = powers(micro_batch, seq_len)
    return sum(c * at[b] for b, c in polynomial.items())
