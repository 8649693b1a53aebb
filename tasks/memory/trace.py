"""One training step, one evaluation batch, of the real model code on fake tensors, with every storage followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from specs.parameters import Optimizer
from tasks.memory import experts, kernels, losses, optimizers
from tasks.memory import model as models
from tasks.memory.inference import trace_inference
from tasks.memory.places import watch_layers
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, ROUNDING, TraceSettings
from tasks.memory.sizes import bytes_of, parameters_of
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
    with _one_sequence_a_row(), experts.grouped_products():
        if settings.method == "inference":
            return trace_inference(settings, depth)
        return _trace(settings, depth, optimizer_step, ()).trace


def trace_both(settings: TraceSettings, depth: int | None = None, optimizer_step: bool = True) -> tuple[Trace, Trace]:
    """`trace` of a step of one micro batch and of a step of several, from one recorded timeline."""
    with _one_sequence_a_row(), experts.grouped_products():
        alone = settings.model_copy(update={"gradient_accumulation": 1})
        found = _trace(alone, depth, optimizer_step, ())
    later = peaks(accumulating(found.timeline), ROUNDING[settings.device])
    return found.trace, replace(found.trace, peaks=later)


def record(settings: TraceSettings, depth: int, others: Sequence[Optimizer]) -> Recording:
    """A trace of training without its optimizer's step, its timeline, and the steps of `others` on the same model."""
    with _one_sequence_a_row(), experts.grouped_products():
        return _trace(settings, depth, False, others)


def _trace(settings: TraceSettings, depth: int | None, optimizer_step: bool, others: Sequence[Optimizer]) -> Recording:
    model = models.build(settings, depth)
    layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
    with FakeTensorMode(allow_non_fake_inputs=True):
        models.materialise(model)
        tracker = StorageTracker()
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        forward = _with_autocast(model, settings)
        entered = watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        hooks = [p.register_post_accumulate_grad_hook(partial(_note_gradient, tracker)) for p in trainable]
        optimizer = optimizers.build(settings, model)
        _make_states(optimizer, trainable)
        running = kernels.gpu_kernels(model, settings.generation) if settings.device == "cuda" else nullcontext()
        with tracker, running:
            workspaces = _workspaces(tracker, settings)
            states = [] if optimizers.paged(settings) else optimizers.states(optimizer)
            for state in states:
                tracker.see(state, "optimizer_states")
            model.eval()
            _evaluate(model, forward, tracker, settings)
            model.train()
            if settings.gradient_accumulation > 1:
                for parameter in trainable:
                    parameter.grad = torch.empty_like(parameter)
                    tracker.see(parameter.grad, "gradients")
            _micro_batch(model, forward, tracker, settings)
            if optimizer_step:
                _clip_and_step(optimizer, trainable, tracker, settings)
            optimizer.zero_grad()
            tracker.at("end", "model")
            del workspaces
        for hook in hooks:
            hook.remove()
        steps = {name: _step_of(model, settings.model_copy(update={"optimizer": name})) for name in others}
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
    )
    dimensions = {size for tensor in [*model.parameters(), *model.buffers()] for size in tensor.shape}
    dimensions.add(CUBLAS_WORKSPACE_BYTES)
    return Recording(found, timeline, dimensions, steps)


def _clip_and_step(
    optimizer: torch.optim.Optimizer, trainable: list[nn.Parameter], tracker: StorageTracker, settings: TraceSettings
) -> None:
    tracker.at("optimizer", "clip")
    nn.utils.clip_grad_norm_(trainable, 1.0, foreach=settings.device == "cuda")
    tracker.at("optimizer", "step")
    optimizer.step()


def _step_of(model: nn.Module, settings: TraceSettings) -> OptimizerStep:
    """Clipping and the step of one optimizer, with states and gradients in place and no batch about."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizers.build(settings, model)
    _make_states(optimizer, trainable)
    tracker, rounding = StorageTracker(), ROUNDING[settings.device]
    for tensor in [*model.parameters(), *model.buffers()]:
        tracker.see(tensor, "weights")
    states = optimizers.states(optimizer)
    resident = [] if optimizers.paged(settings) else states
    with tracker:
        workspaces = _workspaces(tracker, settings)
        for state in resident:
            tracker.see(state, "optimizer_states")
        for parameter in trainable:
            parameter.grad = torch.empty_like(parameter)
            tracker.see(parameter.grad, "gradients")
        _clip_and_step(optimizer, trainable, tracker, settings)
        optimizer.zero_grad()
        tracker.at("end", "model")
        del workspaces
    return OptimizerStep(
        state_bytes=bytes_of(states),
        paged_bytes=bytes_of(states) if optimizers.paged(settings) else 0,
        resident_bytes=sum(-(-bytes_of([state]) // rounding) * rounding for state in resident),
        peaks={p: peak for p, peak in peaks(tracker.timeline, rounding).items() if p.phase == "optimizer"},
    )


def _workspaces(tracker: StorageTracker, settings: TraceSettings) -> list[torch.Tensor]:
    """What cuBLAS keeps for matrix products: one buffer for the forward thread and one for the backward thread."""
    if settings.device != "cuda":
        return []
    buffers = [torch.empty(CUBLAS_WORKSPACE_BYTES, dtype=torch.uint8) for _ in range(2)]
    for buffer in buffers:
        tracker.see(buffer, "temporary")
    return buffers


@contextmanager
def _one_sequence_a_row() -> Iterator[None]:
    """Answer the one question transformers asks of the data: rows are not packed.

    On tensors without data it would assume packing and build a mask that the run does not have.
    """
    from transformers import masking_utils

    original = masking_utils.find_packed_sequence_indices

    @wraps(original)
    def none(position_ids: torch.Tensor) -> None:
        return None

    with patch.object(masking_utils, "find_packed_sequence_indices", none):
        yield


@contextmanager
def _several_sequences_a_row() -> Iterator[None]:
    """Within `_one_sequence_a_row`: these rows are packed, and the mask for it is built."""
    from transformers import masking_utils

    current: Any = masking_utils.find_packed_sequence_indices
    with patch.object(masking_utils, "find_packed_sequence_indices", current.__wrapped__):
        yield


def _note_gradient(tracker: StorageTracker, parameter: torch.Tensor) -> None:
    if parameter.grad is not None:
        tracker.see(parameter.grad, "gradients")
        tracker.accumulated(parameter.grad)


def _make_states(optimizer: torch.optim.Optimizer, trainable: list[torch.nn.Parameter]) -> None:
    for parameter in trainable:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _with_autocast(model: nn.Module, settings: TraceSettings) -> Any:
    """The forward that accelerate prepares: autocast inside, floating outputs converted to fp32."""
    if not settings.compute.startswith("amp"):
        return model
    from accelerate.utils.operations import convert_outputs_to_fp32

    dtype = models.TORCH_DTYPE[settings.compute.removeprefix("amp-")]
    return convert_outputs_to_fp32(torch.autocast("cpu", dtype=dtype)(model.__call__))


def _batch(settings: TraceSettings, rows: int, *, packed: bool = False) -> dict[str, torch.Tensor]:
    ids = torch.zeros(rows, settings.seq_len, dtype=torch.long)
    batch = {"input_ids": ids, "labels": torch.zeros_like(ids)}
    if packed:
        batch["position_ids"] = torch.zeros_like(ids)
    elif settings.padded and rows > 1:
        batch["attention_mask"] = torch.ones_like(ids)
    return batch


class _LossPhase(AbstractContextManager[None]):
    """Names what happens inside the model's loss function, which is that of the software's generation."""

    def __init__(self, model: nn.Module, tracker: StorageTracker, settings: TraceSettings) -> None:
        base: Any = model
        self.base = base.get_base_model() if hasattr(base, "get_base_model") else base
        self.tracker = tracker
        self.original = self.base.loss_function
        self.head: Any = self.base.get_output_embeddings()
        self.deferred = settings.generation.loss == "chunked"
        self.loss = losses.of_generation(
            settings.generation, str(settings.architecture.get("model_type")), self.original, self.head, tracker.release
        )

    def __enter__(self) -> None:
        if self.deferred:
            self.head.forward = lambda hidden: hidden

        def loss(*args: Any, **kwargs: Any) -> Any:
            phase = self.tracker.place.phase
            self.tracker.at("loss" if phase == "forward" else phase, "loss")
            try:
                return self.loss(*args, **kwargs)
            finally:
                self.tracker.at(phase, "after")

        self.base.loss_function = loss

    def __exit__(self, *details: object) -> None:
        self.base.loss_function = self.original
        if self.deferred:
            del self.head.forward


def _micro_batch(model: nn.Module, forward: Any, tracker: StorageTracker, settings: TraceSettings) -> None:
    """What `Trainer.training_step` does: only the loss outlives forward, and inputs are dropped before backward."""
    tracker.at("forward", "before")
    batch = _batch(settings, settings.micro_batch, packed=settings.packed)
    items = torch.ones((), dtype=torch.long)
    rows = _several_sequences_a_row() if settings.packed else nullcontext()
    with rows, _LossPhase(model, tracker, settings):
        outputs = forward(**batch, num_items_in_batch=items)
    loss = outputs["loss"]
    del outputs, batch
    tracker.at("backward", "after")
    loss.backward()
    tracker.at("end", "model")
    del loss


def _evaluate(model: nn.Module, forward: Any, tracker: StorageTracker, settings: TraceSettings) -> None:
    tracker.at("evaluate", "before")
    batch = _batch(settings, settings.evaluation_batch)
    with torch.no_grad(), _LossPhase(model, tracker, settings):
        outputs = forward(**batch, num_items_in_batch=torch.ones((), dtype=torch.long))
        del outputs
    tracker.at("end", "model")
