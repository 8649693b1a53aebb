"""From recordings of shallow models to a family. Runs where torch is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.parameters import Optimizer
from tasks.memory import model as models
from tasks.memory.account import Basis
from tasks.memory.assembly import gathered_in_16_bits
from tasks.memory.family import WINDOWS, Family, PlaceMoments, Recorded, Sizes, StepBytes, Work
from tasks.memory.fold import depths
from tasks.memory.moments import Polynomial, Probe, moments_of, multiplied, probe_for, sparse, written
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, ROUNDING, TraceSettings
from tasks.memory.timeline import Timeline, accumulating
from tasks.memory.trace import Recording, record
from tasks.memory.traced import depth_factor, on_line

Steps = dict[Optimizer, list[StepBytes]]
"""Of every optimizer, at every recorded depth."""


def family(
    settings: TraceSettings, optimizers: Sequence[Optimizer], longest: int, steps: Steps | None = None
) -> Family:
    """Record one sample and several, at two depths, for lengths up to `longest`; everything else is derived.

    `steps` are those of a family that differs in checkpointing only: an optimizer's step does not know of it.
    """
    settings = gathered_in_16_bits(settings.model_copy(update={"optimizer": "sgd", "gradient_accumulation": 1}))
    config, plan = models.configuration(settings), depths(settings)
    recorded: list[Recorded] = []
    shallow: list[tuple[Recording, Probe]] = []
    own: Steps = {name: [] for name in optimizers}
    for depth in plan.traced:
        for number, (low, high, several) in enumerate(_regimes(config, longest)):
            others = optimizers if number == 0 and steps is None else ()
            found, probe = _recording(settings, depth, several, (low, high), others)
            recorded += _both(found.timeline, probe, ROUNDING[settings.device], several, depth, (low, high))
            for name in others:
                own[name].append(_step(found, name))
        shallow.append((found, probe))
    return Family(
        settings=settings,
        hidden_size=int(config.hidden_size),
        layers=plan.wanted,
        depths=list(plan.traced),
        recorded=recorded,
        steps=own if steps is None else {name: steps[name] for name in optimizers},
        sizes=[_sizes(recording) for recording, _ in shallow],
        layer_input_bytes_per_token=_per_token(*shallow[-1]),
        work=_work(shallow, plan.traced, plan.wanted, config),
    )


def _regimes(config: Any, longest: int) -> list[tuple[int, int | None, bool]]:
    """What has to be recorded apart: ranges of lengths that share their masks, one sample or several. The last is that
    of several long samples, where work is counted."""
    return [(low, high, several) for low, high in _ranges(config, longest) for several in (False, True)]


def _ranges(config: Any, longest: int) -> list[tuple[int, int | None]]:
    """Ranges of lengths that share their masks."""
    edges = sorted({int(v) for name in WINDOWS if (v := getattr(config, name, None)) and int(v) < longest})
    return list(zip([1, *(e + 1 for e in edges)], [*edges, None], strict=True))


def _recording(
    settings: TraceSettings, depth: int, several: bool, lengths: tuple[int, int | None], others: Sequence[Optimizer]
) -> tuple[Recording, Probe]:
    """Record at a probe that no dimension of the model clashes with; the dimensions are known after the first try."""
    dimensions: set[int] = {CUBLAS_WORKSPACE_BYTES, *(v for v in settings.architecture.values() if type(v) is int)}
    while True:
        probe = probe_for(several, dimensions, *lengths)
        batch = {
            "micro_batch": probe.samples,
            "seq_len": probe.seq_len,
            "padded": several,
            "evaluation_batch": probe.samples,
        }
        found = record(settings.model_copy(update=batch), depth, others)
        if not probe.clashes(found.dimensions):
            return found, probe
        dimensions |= found.dimensions


def _both(
    timeline: Timeline, probe: Probe, rounding: int, several: bool, depth: int, lengths: tuple[int, int | None]
) -> list[Recorded]:
    return [
        Recorded(
            several=several,
            accumulates=later,
            layers=depth,
            seq_len_min=lengths[0],
            seq_len_max=lengths[1],
            places=[
                PlaceMoments(phase=p.phase, part=p.part, layer=p.layer, moments=[sparse(m) for m in moments])
                for p, moments in moments_of(line, probe, rounding).items()
            ],
        )
        for later, line in ((False, timeline), (True, accumulating(timeline)))
    ]


def _step(recording: Recording, name: Optimizer) -> StepBytes:
    found = recording.steps[name]
    return StepBytes(
        state_bytes=found.state_bytes,
        paged_bytes=found.paged_bytes,
        resident_bytes=found.resident_bytes,
        peaks=[
            {**place._asdict(), "residents": {k: v for k, v in peak.residents.items() if v}}
            for place, peak in found.peaks.items()
        ],
    )


def _sizes(recording: Recording) -> Sizes:
    return Sizes(**{name: getattr(recording.trace, name) for name in Sizes.model_fields})


def _per_token(recording: Recording, probe: Probe) -> float:
    return recording.trace.layer_input_bytes / (probe.samples * probe.seq_len)


def _work(shallow: Sequence[tuple[Recording, Probe]], traced: Sequence[int], wanted: int, config: Any) -> Work:
    """Operations and written bytes of the whole model: both are linear in depth."""
    heads = int(getattr(config, "num_attention_heads", 0) or 0)
    width = int(getattr(config, "head_dim", 0) or (config.hidden_size // heads if heads else 0))
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    with_attention = [k for k in kinds if "attention" in str(k)] if kinds else [None] * wanted
    operations = [multiplied(r.timeline, probe) for r, probe in shallow]
    bytes_ = [written(r.timeline, probe) for r, probe in shallow]
    return Work(
        operations=_deep(operations, traced, wanted),
        written_bytes=_deep(bytes_, traced, wanted),
        attention_layers=len(with_attention),
        attention_width=heads * width,
        kernels=_kernels([len(r.timeline.sizes) for r, _ in shallow], traced, wanted),
    )


def _kernels(counts: Sequence[int], traced: Sequence[int], wanted: int) -> int:
    return counts[0] if len(counts) == 1 else round(on_line(counts[0], counts[1], depth_factor(traced, wanted)))


def _deep(
    shallow: Sequence[dict[str, Polynomial]], traced: Sequence[int], wanted: int
) -> dict[str, dict[Basis, float]]:
    if len(shallow) == 1:
        return dict(shallow[0])
    low, high = shallow
    far = depth_factor(traced, wanted)
    return {
        phase: {
            b: on_line(low.get(phase, {}).get(b, 0.0), high[phase].get(b, 0.0), far)
            for b in sorted({*low.get(phase, {}), *high[phase]})
        }
        for phase in high
    }
