"""One training step, one evaluation batch, of the real model code on fake tensors, with every storage followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.memory import kernels, losses, optimizers
from tasks.memory import model as models
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, ROUNDING, TraceSettings
from tasks.memory.timeline import Peak, Place, outliving, peaks
from tasks.memory.tracker import StorageTracker


@dataclass
class Trace:
    """Peaks by place, and what the account needs beside them. Bytes, except the two counts."""

    peaks: dict[Place, Peak]
    trainable_parameters: int
    total_parameters: int
    weight_bytes: int
    trainable_bytes: int
    state_bytes: int
    paged_bytes: int
    buffer_bytes: int = 0
    layers: int = 0
    layer_weight_bytes: int = 0
    layer_parameters: int = 0
    layer_input_bytes: int = 0


def trace(settings: TraceSettings, depth: int | None = None, optimizer_step: bool = True) -> Trace:
    """Trace the model cut to `depth` layers (null: all): evaluation, then a step with optimizer states in place.

    The optimizer states are made before, as by the first step of a run. With gradient accumulation the gradients of
    an earlier micro batch are resident while one runs. Without `optimizer_step` the peaks of that phase, which do
    not depend on the batch, are left out.
    """
    with _one_sequence_a_row():
        return _trace(settings, depth, optimizer_step)


def _trace(settings: TraceSettings, depth: int | None, optimizer_step: bool) -> Trace:
    model = models.build(settings, depth)
    layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
    with FakeTensorMode(allow_non_fake_inputs=True):
        models.materialise(model)
        tracker = StorageTracker()
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        forward = _with_autocast(model, settings)
        entered = _watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        for parameter in trainable:
            parameter.register_post_accumulate_grad_hook(partial(_note_gradient, tracker))
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
                tracker.at("optimizer", "clip")
                nn.utils.clip_grad_norm_(trainable, 1.0, foreach=settings.device == "cuda")
                tracker.at("optimizer", "step")
                optimizer.step()
            optimizer.zero_grad()
            tracker.at("end", "model")
            del workspaces
    timeline = tracker.timeline
    for number in outliving(timeline, "forward+loss", "backward"):
        timeline.kinds.setdefault(number, "activations")
    return Trace(
        peaks=peaks(timeline, ROUNDING[settings.device]),
        trainable_parameters=sum(p.numel() for p in trainable),
        total_parameters=_parameters(model),
        weight_bytes=_bytes([*model.parameters(), *model.buffers()]),
        trainable_bytes=_bytes(trainable),
        state_bytes=_bytes(optimizers.states(optimizer)),
        paged_bytes=_bytes(optimizers.states(optimizer)) if optimizers.paged(settings) else 0,
        buffer_bytes=_bytes([*model.buffers()]),
        layers=len(layers),
        layer_weight_bytes=max((_bytes([*w.parameters()]) for w in layers), default=0),
        layer_parameters=max((_parameters(w) for w in layers), default=0),
        layer_input_bytes=max(entered, default=0),
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
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = original


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum({id(t): t.numel() * t.element_size() for t in tensors}.values())


def _parameters(model: nn.Module) -> int:
    """Values of the model, packed 4-bit ones counted as what they stand for."""
    return sum(int(getattr(p, "unpacked_values", p.numel())) for p in model.parameters())


def _note_gradient(tracker: StorageTracker, parameter: torch.Tensor) -> None:
    if parameter.grad is not None:
        tracker.see(parameter.grad, "gradients")


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


def _watch_layers(layers: list[nn.Module], tracker: StorageTracker) -> list[int]:
    """Say which layer is at work: forward by module hooks, backward by the gradient's arrival at a layer's output.

    The list returned fills with the bytes of the hidden states that enter layers in training.
    """
    depth = len(layers)
    sizes: list[int] = []

    def entering(index: int, module: nn.Module, inputs: Any) -> None:
        tracker.at(tracker.place.phase, "layer", label(index, depth))
        if module.training and inputs and isinstance(inputs[0], torch.Tensor):
            sizes.append(inputs[0].nbytes)

    def leaving(index: int, module: nn.Module, inputs: Any, output: Any) -> None:
        tracker.at(tracker.place.phase, "after")
        hidden = output[0] if isinstance(output, tuple) else output
        if isinstance(hidden, torch.Tensor) and hidden.requires_grad:
            arriving: Any = hidden.register_hook
            arriving(lambda grad: tracker.at("backward", "layer", label(index, depth)))

    for index, layer in enumerate(layers):
        layer.register_forward_pre_hook(partial(entering, index))
        layer.register_forward_hook(partial(leaving, index), always_call=True)
    return sizes


def label(index: int, depth: int) -> int:
    """Layers of the front half count from 0 on, those of the back half down from -1."""
    return index if index < depth // 2 else index - depth


def _batch(settings: TraceSettings, rows: int) -> dict[str, torch.Tensor]:
    ids = torch.zeros(rows, settings.seq_len, dtype=torch.long)
    batch = {"input_ids": ids, "labels": torch.zeros_like(ids)}
    if settings.padded and rows > 1:
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
    batch = _batch(settings, settings.micro_batch)
    items = torch.ones((), dtype=torch.long)
    with _LossPhase(model, tracker, settings):
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
