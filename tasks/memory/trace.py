"""One training step, one evaluation batch, of the real model code on fake tensors, with every storage followed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from specs.parameters import Optimizer
from tasks.memory import experts, kernels, optimizers, step
from tasks.memory import model as models
from tasks.memory.inference import trace_inference
from tasks.memory.places import watch_layers
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, ROUNDING, TraceSettings
from tasks.memory.sizes import bytes_of, embedding_bytes, parameters_of
from tasks.memory.timeline import Peak, Place, Timeline, accumulating, outliving, peaks
from tasks.memory.traced import Trace
from tasks.memory.tracker import StorageTracker


@dataclass
class OptimizerStep:
    """One optimizer's states and the peaks of its step, on any batch. `resident_bytes` are those on the device."""

    state_bytes: int
    paged_bytes: int
    resident_bytes: int
    peaks: dict[Place, Peak]

    def on_the_host(self) -> OptimizerStep:
        """The same with its states paged: none of them is resident."""
        without = {}
        for place, peak in self.peaks.items():
            residents = {kind: size for kind, size in peak.residents.items() if kind != "optimizer_states"}
            without[place] = Peak(sum(residents.values()), residents)
        return OptimizerStep(self.state_bytes, self.state_bytes, 0, without)


@dataclass
class Recording:
    """A trace with its timeline, the sizes of the model's dimensions, and the steps of other optimizers."""

    trace: Trace
    timeline: Timeline
    dimensions: set[int] = field(default_factory=set)
    steps: dict[Optimizer, OptimizerStep] = field(default_factory=dict)


def trace(settings: TraceSettings, depth: int | None = None, optimizer_step: bool = True) -> Trace:
    """Trace the model cut to `depth` layers (null: all): evaluation, then a step with optimizer states in place.

    The optimizer states are made before, as by the first step of a run. With gradient accumulation the gradients of
    an earlier micro batch are resident while one runs. Without `optimizer_step` the peaks of that phase, which do
    not depend on the batch, are left out.
    """
    with step.one_sequence_a_row(), experts.grouped_products():
        if settings.method == "inference":
            return trace_inference(settings, depth)
        return _trace(settings, depth, optimizer_step, ()).trace


def trace_both(settings: TraceSettings, depth: int | None = None, optimizer_step: bool = True) -> tuple[Trace, Trace]:
    """`trace` of a step of one micro batch and of a step of several, from one recorded timeline."""
    with step.one_sequence_a_row(), experts.grouped_products():
        alone = settings.model_copy(update={"gradient_accumulation": 1})
        found = _trace(alone, depth, optimizer_step, ())
    later = peaks(accumulating(found.timeline), ROUNDING[settings.device])
    return found.trace, replace(found.trace, peaks=later)


def record(settings: TraceSettings, depth: int, others: Sequence[Optimizer]) -> Recording:
    """A trace of training without its optimizer's step, its timeline, and the steps of `others` on the same model."""
    with step.one_sequence_a_row(), experts.grouped_products():
        return _trace(settings, depth, False, others)


def _trace(settings: TraceSettings, depth: int | None, optimizer_step: bool, others: Sequence[Optimizer]) -> Recording:
    model = models.build(settings, depth)
    layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
    with FakeTensorMode(allow_non_fake_inputs=True):
        models.materialise(model)
        tracker = StorageTracker()
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        forward = step.with_autocast(model, settings)
        entered = watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        hooks = [p.register_post_accumulate_grad_hook(partial(step.note_gradient, tracker)) for p in trainable]
        optimizer = optimizers.build(settings, model)
        step.make_states(optimizer, trainable)
        running = kernels.gpu_kernels(model, settings.generation) if settings.device == "cuda" else nullcontext()
        with tracker, running:
            workspaces = step.workspaces(tracker, settings)
            states = [] if optimizers.paged(settings) else optimizers.states(optimizer)
            for state in states:
                tracker.see(state, "optimizer_states")
            model.eval()
            step.evaluate(model, forward, tracker, settings)
            model.train()
            if settings.gradient_accumulation > 1:
                for parameter in trainable:
                    parameter.grad = torch.empty_like(parameter)
                    tracker.see(parameter.grad, "gradients")
            step.micro_batch(model, forward, tracker, settings)
            if optimizer_step:
                step.clip_and_step(optimizer, trainable, tracker, settings)
            optimizer.zero_grad()
            tracker.at("end", "model")
            del workspaces
        for hook in hooks:
            hook.remove()
        steps = _steps(model, settings, others)
    timeline = tracker.timeline
    for number in outliving(timeline, "forward+loss", "backward"):
        timeline.kinds.setdefault(number, "activations")
    found = Trace(
        peaks=peaks(timeline, ROUNDING[settings.device]),
        trainable_parameters=sum(p.numel() for p in trainable),
        total_parameters=parameters_of(model),
        weight_bytes=bytes_of([*model.parameters(), *model.buffers()]),
        trainable_bytes=bytes_of(trainable),
        state_bytes=bytes_of(optimizers.states(optimizer)),
        paged_bytes=bytes_of(optimizers.states(optimizer)) if optimizers.paged(settings) else 0,
        buffer_bytes=bytes_of([*model.buffers()]),
        layers=len(layers),
        layer_weight_bytes=max((bytes_of([*w.parameters()]) for w in layers), default=0),
        layer_parameters=max((parameters_of(w) for w in layers), default=0),
        layer_input_bytes=max(entered, default=0),
        embedding_bytes=embedding_bytes(model),
    )
    dimensions = {size for tensor in [*model.parameters(), *model.buffers()] for size in tensor.shape}
    dimensions.add(CUBLAS_WORKSPACE_BYTES)
    return Recording(found, timeline, dimensions, steps)


def _steps(model: nn.Module, settings: TraceSettings, names: Sequence[Optimizer]) -> dict[Optimizer, OptimizerStep]:
    """The steps of several optimizers on one model. A paged one is the same but for where its states lie."""
    found: dict[Optimizer, OptimizerStep] = {}
    for name in names:
        alike = next((n for n in found if f"paged_{n}" == name), None)
        if alike is None:
            found[name] = _step_of(model, settings.model_copy(update={"optimizer": name}))
        else:
            found[name] = found[alike].on_the_host()
    return found


def _step_of(model: nn.Module, settings: TraceSettings) -> OptimizerStep:
    """Clipping and the step of one optimizer, with states and gradients in place and no batch about."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizers.build(settings, model)
    step.make_states(optimizer, trainable)
    tracker, rounding = StorageTracker(), ROUNDING[settings.device]
    for tensor in [*model.parameters(), *model.buffers()]:
        tracker.see(tensor, "weights")
    states = optimizers.states(optimizer)
    resident = [] if optimizers.paged(settings) else states
    with tracker:
        workspaces = step.workspaces(tracker, settings)
        for state in resident:
            tracker.see(state, "optimizer_states")
        for parameter in trainable:
            parameter.grad = torch.empty_like(parameter)
            tracker.see(parameter.grad, "gradients")
        step.clip_and_step(optimizer, trainable, tracker, settings)
        optimizer.zero_grad()
        tracker.at("end", "model")
        del workspaces
    return OptimizerStep(
        state_bytes=bytes_of(states),
        paged_bytes=bytes_of(states) if optimizers.paged(settings) else 0,
        resident_bytes=sum(-(-bytes_of([state]) // rounding) * rounding for state in resident),
        peaks={p: peak for p, peak in peaks(tracker.timeline, rounding).items() if p.phase == "optimizer"},
    )
