"""From traces at a few batches to coefficients for all batches in a range. Runs where torch is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.memory.account import Account, AccountCoefficients, Basis, PlacePolynomial, Regime, assemble
from tasks.memory.fold import by_phase, folded
from tasks.memory.host import Host, host
from tasks.memory.settings import FRAMEWORK_BYTES, RESERVED_SHARE, TraceSettings
from tasks.memory.timeline import Place
from tasks.memory.trace import Trace

ONE: tuple[Basis, ...] = ("1", "S", "SS")
SEVERAL: tuple[Basis, ...] = ("1", "S", "SS", "B", "BS", "BSS")

Point = tuple[int, int]
"""Samples in a micro batch, padded tokens."""


def account(settings: TraceSettings) -> Account:
    """One account, traced."""
    trace = folded(settings)
    beside = host(trace, settings)
    return assemble(
        {phase: _named(peak.residents) for phase, peak in by_phase(trace.peaks).items()},
        framework_bytes=FRAMEWORK_BYTES[settings.device],
        reserved_share=RESERVED_SHARE[settings.device],
        host_fixed_bytes=beside.peak_bytes,
        disk_bytes=beside.disk_bytes,
        trainable_parameters=trace.trainable_parameters,
        total_parameters=trace.total_parameters,
        method="traced",
        micro_batch=settings.micro_batch,
        seq_len=settings.seq_len,
        notes=notes(settings),
    )


def notes(settings: TraceSettings) -> list[str]:
    """What the account assumes beside the trace, in words."""
    found = []
    if settings.attention == "flash":
        found.append("flash attention is traced as fused SDPA, which keeps the same tensors")
    if settings.optimizer.endswith("8bit"):
        found.append("8-bit optimizer states are modelled by their layout: 2 bytes a value, 2 scales per 256")
    if settings.weights.startswith("nf4"):
        found.append("4-bit weights are modelled by their layout; fused kernels of the GPU may need less")
    return found


def _named(residents: dict[str, int]) -> dict[str, int]:  # type: ignore[misc]
    return {name: size for name, size in residents.items() if size > 0}


@dataclass(frozen=True)
class Grid:
    """Where to trace: for one sample at three lengths, for several at three lengths and two sizes."""

    lengths: tuple[int, int, int]
    several: tuple[int, int]


def grid(micro_batch: int, seq_len: int) -> Grid:
    """A range that holds what is asked for and its neighbourhood: half to double the batch, down to 32 tokens."""
    longest = max(64, -(-seq_len // 8) * 8)
    middle = max(48, longest // 2)
    return Grid((32, middle, longest), (2, max(4, 2 * micro_batch)))


def coefficients(settings: TraceSettings) -> AccountCoefficients:
    """Trace the grid and fit every resident at every place; the fit is exact at the grid and checked beside it."""
    where = grid(settings.micro_batch, settings.seq_len)
    one = [(1, s) for s in where.lengths]
    several = [(b, s) for b in where.several for s in where.lengths]
    traces = {p: folded(batch(settings, p)) for p in (*one, *several)}
    sample = traces[several[-1]]
    beside: Host = host(sample, settings)
    draft = AccountCoefficients(
        seq_len_min=where.lengths[0],
        seq_len_max=where.lengths[-1],
        regimes=[
            Regime(micro_batch_min=1, micro_batch_max=1, places=_places(one, traces, ONE)),
            Regime(micro_batch_min=2, micro_batch_max=where.several[1], places=_places(several, traces, SEVERAL)),
        ],
        framework_bytes=FRAMEWORK_BYTES[settings.device],
        reserved_share=RESERVED_SHARE[settings.device],
        host_fixed_bytes=beside.peak_bytes,
        disk_bytes=beside.disk_bytes,
        trainable_parameters=sample.trainable_parameters,
        total_parameters=sample.total_parameters,
        relative_error=0.0,
        notes=notes(settings),
    )
    errors = [_error(draft, settings, p) for p in _beside(where)]
    return draft.model_copy(update={"relative_error": round(max(errors), 6)})


def batch(settings: TraceSettings, point: Point) -> TraceSettings:
    """The settings of a grid point: several samples of one micro batch are padded, one is not."""
    changed = {"micro_batch": point[0], "seq_len": point[1], "padded": point[0] > 1, "evaluation_batch": point[0]}
    return settings.model_copy(update=changed)


def _beside(where: Grid) -> list[Point]:
    low, middle, high = where.lengths
    return [(1, (low + middle) // 2), (sum(where.several) // 2, (middle + high) // 2)]


def _error(fitted: AccountCoefficients, settings: TraceSettings, point: Point) -> float:
    traced = account(batch(settings, point)).peak_allocated_bytes
    return abs(fitted.peak(*point) - traced) / traced


def _places(points: Sequence[Point], traces: dict[Point, Trace], basis: Sequence[Basis]) -> list[PlacePolynomial]:
    import numpy

    from tasks.memory.account import powers

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
