"""Proof, before anything is trained, that samples which share a row do not see each other in this model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specs.base import Strict
from specs.errors import ModelError
from tasks.training.collate import summed_loss
from tasks.training.evaluation import autocast, logits_of
from tasks.training.feed import Feed, MicroBatch, PlannedMicroBatch, PlannedStep

MOST_LOSS_DIFFERENCE = 0.01
"""Nats per token between a sample in a shared row and the same sample alone: kernels sum in another order."""


class SharedRow(Strict):
    """What was seen of one sample in a shared row."""

    sample_id: str
    row: int
    start: int
    logit_difference: float | None
    """Largest difference of its logits after the first sample of its row was exchanged; null for that one."""
    loss: float
    """In nats per learnt token, in the shared row."""
    loss_alone: float
    """The same in a row of its own."""


class PackingProof(Strict):
    """`packing.json`."""

    attention: str
    samples: list[SharedRow]


def chosen_batch(steps: Sequence[PlannedStep]) -> PlannedMicroBatch | None:
    """The planned micro batch to look at: with the most rows, of these the smallest; null when no row is shared."""
    packed = [b for step in steps for b in step.micro_batches if b.places]
    return max(packed, key=lambda b: (b.rows, -b.tokens)) if packed else None


def prove_separation(model: Any, feed: Feed, device: str, compute: str) -> PackingProof | None:
    """Exchange the first sample of every row and compare the logits of the others; compare losses with those alone.

    Nothing of the other samples may change, not by one bit. Draws no random number. Null when no row is shared.
    """
    import torch

    planned = chosen_batch(feed.steps)
    if planned is None:
        return None
    batch, exchanged = feed.batch(planned), _first_exchanged(feed, planned, model)
    model.eval()
    with torch.no_grad(), autocast(device, compute):
        logits = logits_of(model, _on(device, batch.tensors))
        other = logits_of(model, _on(device, exchanged.tensors))
        seen = []
        for position, sample_id in enumerate(planned.sample_ids):
            (row, start), size = planned.place(position), len(feed.samples[sample_id].input_ids)
            mine = logits[row : row + 1, start : start + size]
            labels = batch.tensors["labels"][row : row + 1, start : start + size].to(device)
            alone = feed.batch(PlannedMicroBatch(0, (sample_id,), size))
            alone_logits = logits_of(model, _on(device, alone.tensors))
            difference = float((mine - other[row : row + 1, start : start + size]).abs().max()) if start else None
            seen.append(
                SharedRow(
                    sample_id=sample_id,
                    row=row,
                    start=start,
                    logit_difference=difference,
                    loss=float(summed_loss(mine, labels)) / alone.learnt_tokens,
                    loss_alone=float(summed_loss(alone_logits, alone.tensors["labels"].to(device)))
                    / alone.learnt_tokens,
                )
            )
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return PackingProof(attention=str(base.config._attn_implementation), samples=seen)


def require_separation(proof: PackingProof) -> None:
    """Raise `ModelError` when samples of a row see each other, or have another loss than alone."""
    touched = [s for s in proof.samples if s.logit_difference]
    off = [s for s in proof.samples if not abs(s.loss - s.loss_alone) <= MOST_LOSS_DIFFERENCE]
    if not touched and not off:
        return
    worst = max(proof.samples, key=lambda s: (s.logit_difference or 0.0, abs(s.loss - s.loss_alone)))
    raise ModelError(
        f"packing: with attention {proof.attention} this model does not keep samples of a row apart: {len(touched)} of "
        f"{len(proof.samples)} samples changed with the first of their row, {len(off)} have another loss than alone; "
        f"{worst.sample_id}: loss {worst.loss:.4f}, alone {worst.loss_alone:.4f}",
        "set packing: false; or another attention, as sdpa or eager",
    )


def _first_exchanged(feed: Feed, planned: PlannedMicroBatch, model: Any) -> MicroBatch:
    """The same micro batch with every token of each row's first sample exchanged for another one."""
    batch = feed.batch(planned)
    ids = batch.tensors["input_ids"].clone()
    size = int(model.config.vocab_size)
    for position, sample_id in enumerate(planned.sample_ids):
        row, start = planned.place(position)
        if start == 0:
            end = len(feed.samples[sample_id].input_ids)
            ids[row, :end] = (ids[row, :end] + 1) % size
    return replace(batch, tensors={**batch.tensors, "input_ids": ids})


def _on(device: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}
