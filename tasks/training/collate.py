"""From encoded samples to the tensors of one micro batch: padded on the right, masked by length, answers learnt.

Samples that share a row are told apart by their positions, which begin at 0 for each: transformers builds a mask from
them by which a sample sees only itself (`masking_utils.find_packed_sequence_indices`). It does so only where no
`attention_mask` is given and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.prompts import Encoded

if TYPE_CHECKING:
    import torch

IGNORED = -100
"""The label that the loss leaves out."""


def collate(samples: Sequence[Encoded], padded_tokens: int, pad_id: int) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and `labels`, each [samples, padded_tokens], int64.

    Padding is known by each sample's length, never by a token id: in many models the padding token is the end
    token, and masking by id would leave the end unlearnt. The end token of every answer keeps its label.
    """
    import torch

    shape = (len(samples), padded_tokens)
    input_ids = torch.full(shape, pad_id, dtype=torch.int64)
    attention_mask = torch.zeros(shape, dtype=torch.int64)
    labels = torch.full(shape, IGNORED, dtype=torch.int64)
    for row, sample in enumerate(samples):
        ids = torch.as_tensor(sample.input_ids, dtype=torch.int64)
        n = len(ids)
        if n > padded_tokens:
            raise ValueError(f"a sample of {n} tokens does not fit into {padded_tokens}")
        input_ids[row, :n] = ids
        attention_mask[row, :n] = 1
        for start, end in sample.answers:
            labels[row, start:end] = ids[start:end]
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def collate_rows(
    samples: Sequence[Encoded], places: Sequence[tuple[int, int]], padded_tokens: int, pad_id: int
) -> dict[str, torch.Tensor]:
    """`input_ids`, `position_ids` and `labels`, each [rows, padded_tokens], int64; `places` are (row, first token).

    The first token of a sample has nothing of its own that predicts it and is not learnt. Padding is one more sample
    of the row, of which nothing is learnt. Raises `ValueError` for samples that overlap or do not fit.
    """
    import torch

    shape = (1 + max(row for row, _ in places), padded_tokens)
    input_ids = torch.full(shape, pad_id, dtype=torch.int64)
    position_ids = torch.zeros(shape, dtype=torch.int64)
    labels = torch.full(shape, IGNORED, dtype=torch.int64)
    filled = [0] * shape[0]
    for sample, (row, start) in zip(samples, places, strict=True):
        ids = torch.as_tensor(sample.input_ids, dtype=torch.int64)
        end = start + len(ids)
        if start != filled[row] or end > padded_tokens:
            raise ValueError(f"a sample of {len(ids)} tokens does not fit at token {start} of {padded_tokens}")
        input_ids[row, start:end] = ids
        position_ids[row, start:end] = torch.arange(len(ids))
        for first, after in sample.learnt:
            labels[row, start + first : start + after] = ids[first:after]
        filled[row] = end
    for row, end in enumerate(filled):
        position_ids[row, end:] = torch.arange(padded_tokens - end)
    return {"input_ids": input_ids, "position_ids": position_ids, "labels": labels}


def learnt_tokens(sample: Encoded) -> int:
    """Tokens whose prediction counts in the loss. The first token of a sequence has nothing that predicts it."""
    return sample.learnt_tokens


def summed_loss(logits: Any, labels: Any) -> Any:
    """Sum over learnt tokens of the negative log likelihood, in nats; the division by their number is the caller's."""
    import torch.nn.functional as F

    shifted = F.pad(labels, (0, 1), value=IGNORED)[:, 1:]
    return F.cross_entropy(logits.float().flatten(0, 1), shifted.flatten(), ignore_index=IGNORED, reduction="sum")


def row_losses(logits: Any, labels: Any) -> list[float]:
    """`summed_loss` of each row by itself; only one row of logits is widened to fp32 at a time."""
    return [float(summed_loss(logits[row : row + 1], labels[row : row + 1])) for row in range(len(labels))]
