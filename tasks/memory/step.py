"""The pieces of a step on fake tensors, as `Trainer` takes them: batch, loss, backward pass, clipping, optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from tasks.memory import losses
from tasks.memory import model as models
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, TraceSettings
from tasks.memory.tracker import StorageTracker


def clip_and_step(
    optimizer: torch.optim.Optimizer, trainable: list[nn.Parameter], tracker: StorageTracker, settings: TraceSettings
) -> None:
    """Clipping of all gradients together, and the optimizer's step."""
    tracker.at("optimizer", "clip")
    nn.utils.clip_grad_norm_(trainable, 1.0, foreach=settings.device == "cuda")
    tracker.at("optimizer", "step")
    optimizer.step()


def workspaces(tracker: StorageTracker, settings: TraceSettings) -> list[torch.Tensor]:
    """What cuBLAS keeps for matrix products: one buffer for the forward thread and one for the backward thread."""
    if settings.device != "cuda":
        return []
    buffers = [torch.empty(CUBLAS_WORKSPACE_BYTES, dtype=torch.uint8) for _ in range(2)]
    for buffer in buffers:
        tracker.see(buffer, "temporary")
    return buffers


@contextmanager
def one_sequence_a_row() -> Iterator[None]:
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
    """Within `one_sequence_a_row`: these rows are packed, and the mask for it is built."""
    from transformers import masking_utils

    current: Any = masking_utils.find_packed_sequence_indices
    with patch.object(masking_utils, "find_packed_sequence_indices", current.__wrapped__):
        yield


def note_gradient(tracker: StorageTracker, parameter: torch.Tensor) -> None:
    """A hook: this parameter's gradient has arrived."""
    if parameter.grad is not None:
        tracker.see(parameter.grad, "gradients")
        tracker.accumulated(parameter.grad)


def make_states(optimizer: torch.optim.Optimizer, trainable: list[torch.nn.Parameter]) -> None:
    """The states that the first step of a run makes."""
    for parameter in trainable:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def with_autocast(model: nn.Module, settings: TraceSettings) -> Any:
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


class LossPhase(AbstractContextManager[None]):
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


def micro_batch(model: nn.Module, forward: Any, tracker: StorageTracker, settings: TraceSettings) -> None:
    """What `Trainer.training_step` does: only the loss outlives forward, and inputs are dropped before backward."""
    tracker.at("forward", "before")
    batch = _batch(settings, settings.micro_batch, packed=settings.packed)
    items = torch.ones((), dtype=torch.long)
    rows = _several_sequences_a_row() if settings.packed else nullcontext()
    with rows, LossPhase(model, tracker, settings):
        outputs = forward(**batch, num_items_in_batch=items)
    loss = outputs["loss"]
    del outputs, batch
    tracker.at("backward", "after")
    loss.backward()
    tracker.at("end", "model")
    del loss


def evaluate(model: nn.Module, forward: Any, tracker: StorageTracker, settings: TraceSettings) -> None:
    """An evaluation batch: a loss without gradients."""
    tracker.at("evaluate", "before")
    batch = _batch(settings, settings.evaluation_batch)
    with torch.no_grad(), LossPhase(model, tracker, settings):
        outputs = forward(**batch, num_items_in_batch=torch.ones((), dtype=torch.long))
        del outputs
    tracker.at("end", "model")
