"""From traces at a few batches to coefficients for all batches in a range. Runs where torch is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.memory import grid_account
from tasks.memory.account import Account, AccountCoefficients, Basis, PlacePolynomial, Regime, powers
from tasks.memory.assembly import (
    assembled,
    gathered_in_16_bits,
    named,
    not_traced,
    notes,
    peaks_of_rank,
    with_autocast,
)
from tasks.memory.fold import folded, folded_both, folded_sharded
from tasks.memory.host import host
from tasks.memory.model import configuration
from tasks.memory.settings import FRAMEWORK_BYTES, LIBRARY_BYTES, TraceSettings
from tasks.memory.timeline import Place
from tasks.memory.traced import Trace, by_phase

LINEAR: tuple[Basis, ...] = ("1", "S")
ONE: tuple[Basis, ...] = ("1", "S", "SS")
SEVERAL: tuple[Basis, ...] = ("1", "S", "BS", "BSS")
"""Sizes are constant (weights), follow the length (positions), the tokens, or the attention mask of every sample."""

Point = tuple[int, int]
"""Samples in a micro batch, padded tokens."""


def account(settings: TraceSettings) -> Account:
    """One account, traced; with several ranks that of one, traced where torch shards on fake tensors, else in closed
    form over the trace of one device. The notes say which, and why."""
    if settings.divides_layers:
        return grid_account.account(settings)
    settings = with_autocast(settings)
    why = not_traced(settings)
    if settings.sharding != "none" and not why:
        try:
            return assembled(folded_sharded(settings), settings, int(configuration(settings).hidden_size), "traced")
        except Exception as error:  # private parts of torch and any model's code: the closed form answers, and says so
            if settings.generation.own is not None:
                raise  # the closed form knows accelerate's way alone
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            why = f"fully_shard cannot be run on fake tensors ({type(error).__name__}: {first[:160]})"
    found = divided(settings)
    return found.model_copy(update={"notes": [*found.notes, f"not traced on a rank: {why}"]}) if why else found


def divided(settings: TraceSettings) -> Account:
    """The account over the trace of one device, which several ranks divide in closed form."""
    settings = gathered_in_16_bits(with_autocast(settings))
    return assembled(folded(settings), settings, int(configuration(settings).hidden_size), "traced")


@dataclass(frozen=True)
class Grid:
    """Where to trace: one sample, where no mask is built, and several, where one is."""

    one: tuple[Point, ...]
    several: tuple[Point, ...]
    check: Point

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest."""
        return self.one[0][1], self.one[-1][1]


SHORTEST = 32
"""Tokens; below it the padding of kernels and the framework weigh more than the tensors."""


def grid(settings: TraceSettings) -> Grid:
    """A range that holds what is asked for and its neighbourhood: up to twice the micro batch, down to 32 tokens."""
    longest = max(64, -(-settings.seq_len // 8) * 8)
    middle, most = (SHORTEST + longest) // 2, max(4, 2 * settings.micro_batch)
    lengths = (SHORTEST, middle, longest) if settings.attention == "eager" or settings.packed else (SHORTEST, longest)
    several = tuple((b, s) for b in (2, most) for s in (SHORTEST, longest))
    return Grid(tuple((1, s) for s in lengths), several, (max(2, most // 2), middle))


def coefficients_of_both(settings: TraceSettings) -> tuple[AccountCoefficients, AccountCoefficients]:
    """Trace the grid once, and fit it for a step of one micro batch and for one of several, which no peak tells apart.

    What is asked for first by a project is the one, soon after the other.
    """
    settings = gathered_in_16_bits(settings)
    where = grid(settings)
    points = (*where.one, *where.several, where.check)
    traces = {p: folded_both(batch(settings, p), optimizer_step=False) for p in points}
    whole = folded_both(settings)
    alone, several = (
        _fitted(
            changed := settings.model_copy(update={"gradient_accumulation": micro_batches}),
            where,
            {p: _of_rank(both[which], changed) for p, both in traces.items()},
            _of_rank(whole[which], changed),
        )
        for which, micro_batches in enumerate((1, max(2, settings.gradient_accumulation)))
    )
    return alone, several


def _of_rank(trace: Trace, settings: TraceSettings) -> Trace:
    return replace(trace, peaks=peaks_of_rank(trace, settings, int(configuration(settings).hidden_size)))


def _fitted(settings: TraceSettings, where: Grid, traces: dict[Point, Trace], whole: Trace) -> AccountCoefficients:
    """Every resident at every place as a polynomial; exact at the grid, and checked beside it."""
    basis = ONE if len(where.one) == len(ONE) else LINEAR
    beside = host(whole, settings)
    draft = AccountCoefficients(
        seq_len_min=where.lengths[0],
        seq_len_max=where.lengths[1],
        regimes=[
            Regime(micro_batch_min=1, micro_batch_max=1, places=_places(where.one, traces, basis)),
            Regime(
                micro_batch_min=2, micro_batch_max=where.several[-1][0], places=_places(where.several, traces, SEVERAL)
            ),
        ],
        fixed=[
            PlacePolynomial(phase=place.phase, residents={k: {"1": v} for k, v in named(peak.residents).items()})
            for place, peak in whole.peaks.items()
            if place.phase == "optimizer"
        ],
        framework_bytes=FRAMEWORK_BYTES[settings.device],
        library_bytes=LIBRARY_BYTES[settings.device],
        host_fixed_bytes=beside.peak_bytes,
        disk_bytes=beside.disk_bytes,
        pinned_bytes=beside.pinned_bytes,
        trainable_parameters=whole.trainable_parameters,
        total_parameters=whole.total_parameters,
        relative_error=0.0,
        notes=notes(settings),
    )
    checks = {where.check: traces[where.check], (settings.micro_batch, settings.seq_len): whole}
    return draft.model_copy(update={"relative_error": max(_error(draft, p, t) for p, t in checks.items())})


def batch(settings: TraceSettings, point: Point) -> TraceSettings:
    """The settings of a grid point: several samples of one micro batch are padded, one is not."""
    changed = {"micro_batch": point[0], "seq_len": point[1], "padded": point[0] > 1, "evaluation_batch": point[0]}
    return settings.model_copy(update=changed)


def _error(fitted: AccountCoefficients, point: Point, traced: Trace) -> float:
    peak = max(p.total for p in by_phase(traced.peaks).values())
    return round(abs(fitted.peak(*point) - peak) / peak, 6)


def _places(points: Sequence[Point], traces: dict[Point, Trace], basis: Sequence[Basis]) -> list[PlacePolynomial]:
    import numpy

    matrix = numpy.array([[powers(*p)[b] for b in basis] for p in points])
    scale = numpy.abs(matrix).max(axis=0)
    places: list[Place] = [place for place in traces[points[0]].peaks if place.phase not in ("build", "end")]
    found = []
    for place in places:
        peaks = [traces[p].peaks.get(place) for p in points]
        if any(peak is None for peak in peaks):
            continue
        kinds = sorted({k for peak in peaks if peak for k in peak.residents})
        residents: dict[str, dict[Basis, float]] = {}
        for kind in kinds:
            sizes = numpy.array([peak.residents.get(kind, 0) if peak else 0 for peak in peaks], dtype=float)
            if sizes.any():
                solved = numpy.linalg.lstsq(matrix / scale, sizes, rcond=None)[0] / scale
                residents[kind] = {b: float(f"{c:.12g}") for b, c in zip(basis, solved, strict=True)}
        found.append(PlacePolynomial(phase=place.phase, residents=residents))
    return found
