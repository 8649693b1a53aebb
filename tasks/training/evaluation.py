"""Loss without dropout and without gradients. Keeps no logits beyond one batch, and draws no random number."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specs.stages import Progress
from tasks.interrupts import StopRequest
from tasks.prompts import Encoded
from tasks.training.collate import learnt_tokens, row_losses, summed_loss
from tasks.training.feed import MicroBatch
from tasks.training.ranks import ALONE, Ranks

STOPPED_HERE = "every step trained is saved; the loss is measured again on resume"


def shared(
    batches: Iterable[MicroBatch], ranks: Ranks, stop: StopRequest, progress: Progress | None = None
) -> Iterator[tuple[int, MicroBatch]]:
    """The numbered batches of this rank: every rank has its own, none is computed twice.

    Raises `Stopped` on all ranks between two batches when one was asked to stop.
    """
    for number, batch in enumerate(batches):
        if number % ranks.count == 0 and ranks.agree_to_stop(stop):
            stop.raise_if_requested(STOPPED_HERE)
        if number % ranks.count == ranks.rank:
            yield number, batch
        if progress:
            progress.advance()


def logits_of(model: Any, tensors: Mapping[str, Any]) -> Any:
    """Logits of a micro batch. Samples that share rows are told apart only where nothing is cached."""
    inputs = {name: tensor for name, tensor in tensors.items() if name != "labels"}
    return model(**inputs, **({} if "attention_mask" in inputs else {"use_cache": False})).logits


def mean_loss(
    model: Any,
    batches: Iterable[MicroBatch],
    device: str,
    compute: str,
    stop: StopRequest,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """`loss` in nats per learnt token, `tokens` learnt and `samples`. Draws no random number.

    The sums of batches are added in their order, whichever rank computed them: as many ranks as one likes bring the
    same loss, to the last bit where their devices compute alike. Raises `Stopped` between two batches.
    """
    import torch

    found: list[tuple[int, float, int, int]] = []
    model.eval()
    with torch.no_grad(), autocast(device, compute):
        for number, batch in shared(batches, ranks, stop, progress):
            tensors = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
            logits = logits_of(model, tensors)
            loss = float(summed_loss(logits, tensors["labels"]))
            found.append((number, loss, batch.learnt_tokens, len(batch.planned.sample_ids)))
    total, tokens, samples = 0.0, 0, 0
    for _, loss, learnt, count in sorted(line for part in ranks.gather(found) for line in part):
        total, tokens, samples = total + loss, tokens + learnt, samples + count
    return {"loss": total / tokens if tokens else math.nan, "tokens": tokens, "samples": samples}


def sample_losses(
    model: Any,
    batches: Iterable[MicroBatch],
    samples: Mapping[str, Encoded],
    device: str,
    compute: str,
    stop: StopRequest,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Mean loss of each sample in nats per learnt token. Raises `Stopped` between two batches when asked to stop."""
    import torch

    found: dict[str, float] = {}
    model.eval()
    with torch.no_grad(), autocast(device, compute):
        for _, part in shared(batches, ranks, stop):
            tensors = {name: tensor.to(device) for name, tensor in part.tensors.items()}
            logits = logits_of(model, tensors)
            losses = row_losses(logits, tensors["labels"])
            for sample_id, loss in zip(part.planned.sample_ids, losses, strict=True):
                found[sample_id] = loss / learnt_tokens(samples[sample_id])
    return {sample_id: loss for part in ranks.gather(found) for sample_id, loss in part.items()}


def pinned_loss(model: Any, batch: MicroBatch, device: str, compute: str) -> float:
    """Mean loss of one micro batch, to be computed again from the checkpoint that is being written."""
    import torch

    model.eval()
    with torch.no_grad(), autocast(device, compute):
        tensors = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        logits = logits_of(model, tensors)
        return float(summed_loss(logits, tensors["labels"])) / batch.learnt_tokens


def autocast(device: str, compute: str) -> Any:
    """Mixed precision as in training; nothing for the others."""
    import torch

    if compute == "amp-bf16":
        return torch.autocast(device, torch.bfloat16)
    if compute == "amp-fp16":
        return torch.autocast(device, torch.float16)
    return contextlib.nullcontext()
