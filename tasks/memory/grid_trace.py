"""A rank that divides layers, traced: tensor parallel by transformers, a pipeline's stage by torch, without data."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.memory import experts, kernels, optimizers, pipeline, step, tensor_parallel
from tasks.memory import model as models
from tasks.memory.fold import Depths, depths
from tasks.memory.grid import StageOf
from tasks.memory.pipeline import Pipeline, Stage
from tasks.memory.places import watch_layers
from tasks.memory.settings import ROUNDING, TraceSettings
from tasks.memory.sharded import local_of
from tasks.memory.sizes import bytes_of
from tasks.memory.tensor_parallel import GridTracker, Locals
from tasks.memory.timeline import Peak, outliving, peaks
from tasks.memory.traced import Trace, continued


def trace_rank(settings: TraceSettings, stage: StageOf, depth: int | None = None) -> Trace:
    """As `trace`, of the first tensor rank of a stage with `depth` layers (null: all of the stage's).

    Peaks and sizes are those of this rank. Raises whatever torch, transformers, peft or the model's code raise where
    they cannot run without data.
    """
    ranks, stages = settings.tensor_parallel, settings.pipeline_stages
    with (
        step.one_sequence_a_row(),
        experts.grouped_products(),
        tensor_parallel.grid_of(stages, ranks, stage.index * ranks) as mesh,
    ):
        return _trace(settings, stage, stage.layers if depth is None else depth, mesh)


def _trace(settings: TraceSettings, stage: StageOf, depth: int, mesh: Any) -> Trace:
    def divide(model: Any) -> None:
        if stage.stages > 1:
            pipeline.cut(model, stage.index, stage.stages)
        if settings.tensor_parallel > 1:
            tensor_parallel.divide(model, mesh)

    with tensor_parallel.attached_without_data():
        model = models.build(settings, depth, divide)
    tensor_parallel.adapter_widths(model)
    layers = models.decoder_layers(model, depth)
    tracker = GridTracker()
    with FakeTensorMode(allow_non_fake_inputs=True), tensor_parallel.tried_unseen(tracker):
        tensor_parallel.materialise(model)
        held = [local_of(t) for t in [*model.parameters(), *model.buffers()]]
        for tensor in held:
            tracker.see(tensor, "weights")
        entered = watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        own = Locals(trainable)
        optimizer = optimizers.build(settings, own)
        step.make_states(optimizer, own.values)
        states = optimizers.states(optimizer)
        kept = 0
        running = kernels.gpu_kernels(model, settings.generation) if settings.device == "cuda" else nullcontext()
        with tracker, running:
            workspaces = step.workspaces(tracker, settings)
            for state in [] if optimizers.paged(settings) else states:
                tracker.see(state, "optimizer_states")
            if stage.stages > 1:
                kept = _pipeline_step(model, settings, stage, mesh, tracker, (own, optimizer))
            else:
                _step(model, settings, tracker, (own, optimizer))
            tracker.at("end", "model")
            del workspaces
    timeline = tracker.timeline
    for number in outliving(timeline, "forward+loss", "backward"):
        timeline.kinds.setdefault(number, "activations")
    found = peaks(timeline, ROUNDING[settings.device])
    if settings.sharding == "ddp":
        kept += own.gradient_bytes  # buckets of replicas
    return Trace(
        peaks={place: _with_buffers(peak, kept) for place, peak in found.items()},
        trainable_parameters=sum(v.numel() for v in own.values),
        total_parameters=sum(t.numel() for t in held),
        weight_bytes=bytes_of(held),
        trainable_bytes=bytes_of(own.values),
        state_bytes=bytes_of(states),
        paged_bytes=bytes_of(states) if optimizers.paged(settings) else 0,
        buffer_bytes=bytes_of([*model.buffers()]),
        layers=len(layers),
        layer_input_bytes=max(entered, default=0),
        of_one_rank=True,
    )


Trained = tuple[Locals, torch.optim.Optimizer]


def _step(model: Any, settings: TraceSettings, tracker: GridTracker, trained: Trained) -> None:
    """Evaluation, one micro batch or two, as later ones are like the second, the optimizer's step."""
    own, optimizer = trained
    forward = step.with_autocast(model, settings)
    model.eval()
    step.evaluate(model, forward, tracker, settings)
    model.train()
    for _ in range(min(2, settings.gradient_accumulation)):
        step.micro_batch(model, forward, tracker, settings)
    own.take(tracker)
    step.clip_and_step(optimizer, own.values, tracker, settings)
    own.clear()


def _pipeline_step(
    model: Any, settings: TraceSettings, stage: StageOf, mesh: Any, tracker: GridTracker, trained: Trained
) -> int:
    """All micro batches, the optimizer's step, evaluation, which finds the buffers of training in place.

    Returns the bytes of the buffers of those micro batches that were left out.
    """
    own, optimizer = trained
    run = min(stage.micro_batches, stage.stages + 1)
    module = Stage(model, settings, stage.index)
    made = Pipeline(module, settings, stage.index, run, mesh)
    model.train()
    made.step(tracker)
    own.take(tracker)
    step.clip_and_step(optimizer, own.values, tracker, settings)
    own.clear()
    model.eval()
    made.evaluate(tracker)
    return sum(b.nbytes for b in made.buffers()) // run * (stage.micro_batches - run)


def _with_buffers(peak: Peak, size: int) -> Peak:
    if not size:
        return peak
    residents: dict[str, int] = {**peak.residents, "communication": peak.residents.get("communication", 0) + size}
    return Peak(peak.total + size, residents)


def folded_rank(settings: TraceSettings, stage: StageOf) -> Trace:
    """The trace of a whole stage, from two shallow ones where it has many layers."""
    cut = settings.model_copy(update={"architecture": {**settings.architecture, "num_hidden_layers": stage.layers}})
    plan: Depths = depths(cut)
    found = [trace_rank(settings, stage, depth) for depth in plan.traced]
    return found[0] if len(found) == 1 else continued(found[0], found[1], plan.traced, plan.wanted)
