"""One stage of a pipeline as torch runs it: `torch.distributed.pipelining`, schedule 1F1B, on a group without others.

transformers divides a model into stages for generation only, so a training needs torch's schedule around its layers;
which modules a stage keeps follows transformers. Stage s of p has run p - s micro batches forward before the first
goes backward. Activations and gradients arrive in buffers, one for every micro batch of a step, that stay for the
whole training. The last stage holds the logits of a micro batch until it has those of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from tasks.memory import model as models
from tasks.memory.settings import TraceSettings
from tasks.memory.tracker import StorageTracker


def cut(model: Any, stage: int, stages: int) -> None:
    """Take from a model what other stages hold outside of layers: a tied embedding lies on the first and the last.

    Raises `ValueError` for a model whose code has no plan of stages.
    """
    from transformers.distributed.pipeline_parallel import PipelineIdentityLayer

    base = getattr(model, model.base_model_prefix)
    if not {"embed_tokens", "layers", "norm"} <= {*(getattr(base, "_pp_plan", None) or {})}:
        raise ValueError(f"transformers has no plan of pipeline stages for {type(model).__name__}")
    nothing: Any = PipelineIdentityLayer
    first, last = stage == 0, stage == stages - 1
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    if not first and not (tied and last):
        base.embed_tokens = nothing()
    if not last:
        base.norm = nothing()
        model.lm_head = nothing()
        model.all_tied_weights_keys = {}


class Stage(nn.Module):
    """What a stage computes: from token ids or hidden states to hidden states or logits."""

    def __init__(self, model: Any, settings: TraceSettings, stage: int) -> None:
        super().__init__()
        self.model = model
        self.causal: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.first, self.last = stage == 0, stage == settings.pipeline_stages - 1
        self.compute = settings.compute

    def autocast(self) -> AbstractContextManager[Any]:
        """The types of mixed precision; between stages hidden states keep the type of the weights."""
        if not self.compute.startswith("amp"):
            return nullcontext()
        return torch.autocast("cpu", dtype=models.TORCH_DTYPE[self.compute.removeprefix("amp-")])

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """One micro batch."""
        given = {"input_ids" if self.first else "inputs_embeds": values}
        with self.autocast():
            if self.last:
                logits: torch.Tensor = self.causal(**given).logits
                return logits
            hidden: torch.Tensor = getattr(self.causal, self.causal.base_model_prefix)(**given)[0]
            return hidden

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The model's own loss, a part of a step's."""
        items = torch.ones((), dtype=torch.long)
        width = self.causal.config.vocab_size
        found: torch.Tensor = self.causal.loss_function(logits, labels, vocab_size=width, num_items_in_batch=items)
        return found


class _WatchedStage(PipelineStage):
    """Says which pass a stage is in."""

    tracker: StorageTracker

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self.tracker.at("forward", "before")
        return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        self.tracker.at("backward", "after")
        super().backward_one_chunk(*args, **kwargs)
        self.tracker.at("end", "model")


class _KnownSizes(Schedule1F1B):
    """Stages need not tell each other the sizes of what they send: all of them are given."""

    def _warmup_p2p(self, stages: Any, *args: Any, **kwargs: Any) -> None:
        from torch.distributed.pipelining._utils import InferenceMode

        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC


class Pipeline:
    """A stage with its schedule: `micro_batches` of them make a step."""

    def __init__(self, module: Stage, settings: TraceSettings, stage: int, micro_batches: int, mesh: Any) -> None:
        self.module, self.settings, self.micro_batches = module, settings, micro_batches
        rows, config = settings.micro_batch, module.causal.config
        kind = models.TORCH_DTYPE[settings.weights]
        ids = torch.empty(rows, settings.seq_len, dtype=torch.long, device="meta")
        hidden = torch.empty(rows, settings.seq_len, config.hidden_size, dtype=kind, device="meta", requires_grad=True)
        logits = torch.empty(rows, settings.seq_len, config.vocab_size, device="meta", requires_grad=True)
        self.stage = _WatchedStage(
            module,
            stage,
            settings.pipeline_stages,
            torch.device("cpu"),
            input_args=ids if module.first else hidden,
            output_args=logits if module.last else hidden,
            group=mesh["pp"].get_group(),
        )

    def step(self, tracker: StorageTracker) -> None:
        """All micro batches of a step, forward and backward."""

        def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            tracker.at("loss", "loss")
            try:
                return self.module.loss(logits, labels)
            finally:
                tracker.at("forward", "after")

        self.stage.tracker = tracker
        schedule = _KnownSizes(self.stage, self.micro_batches, loss_fn=loss, scale_grads=False)
        rows = self.settings.micro_batch * self.micro_batches
        tracker.at("end", "model")
        ids = torch.zeros(rows, self.settings.seq_len, dtype=torch.long)
        given = (ids,) if self.module.first else ()
        with _nothing_sent():
            schedule.step(*given, target=ids if self.module.last else None, return_outputs=False)
        for buffer in self.buffers():
            tracker.see(buffer, "communication")
        self.stage.clear_runtime_states()

    def evaluate(self, tracker: StorageTracker) -> None:
        """One batch forward, with the loss where it is."""
        tracker.at("evaluate", "before")
        rows, first = self.settings.evaluation_batch, self.module.first
        ids = torch.zeros(rows, self.settings.seq_len, dtype=torch.long)
        with torch.no_grad():
            given = ids if first else torch.empty(*ids.shape, self.module.causal.config.hidden_size, dtype=self.kind)
            out = self.module(given)
            if self.module.last:
                tracker.at("evaluate", "loss")
                self.module.loss(out, ids)
            del out
        tracker.at("end", "model")

    @property
    def kind(self) -> torch.dtype:
        """Of hidden states between stages."""
        return models.TORCH_DTYPE[self.settings.weights]

    def buffers(self) -> list[torch.Tensor]:
        """In which activations and gradients of all micro batches arrive."""
        infos = [
            i for r in (self.stage.args_recv_info, self.stage.grad_recv_info) for infos in r.values() for i in infos
        ]
        return [info.buffer for info in infos if info.buffer is not None]


@contextmanager
def _nothing_sent() -> Iterator[None]:
    """What is sent and received lies in tensors that are there already; without other ranks nothing is."""
    from torch.distributed.pipelining import schedules

    with patch.object(schedules, "_batch_p2p", lambda *_, **__: []):
        yield
