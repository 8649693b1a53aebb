"""Loss of one model on given answers, and its greedy answers. Belongs to the worker program: imports torch.

Shapes: B sequences of a batch, T tokens of its longest, K tokens before which a logit is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional

from tasks.evaluate.selection import batches_by_length
from tasks.prompts import Encoded


@dataclass(frozen=True)
class Summed:
    """Summed negative log likelihood in nats, and the number of tokens that it sums over."""

    nats: float
    tokens: int


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `ended`: the model produced its end token within the limit; it is not counted in `tokens`."""

    text: str
    ended: bool
    tokens: int


def learnt_tokens(encoded: Encoded) -> int:
    """Tokens whose loss counts. The very first token of a sequence has nothing before it and is never predicted."""
    return encoded.learnt_tokens


@torch.inference_mode()
def summed_losses(
    model: Any, sequences: Sequence[Encoded], batch: int, pad: int, done: Callable[[int], None]
) -> list[Summed]:
    """The loss of every sequence on its learnt tokens, in the order of `sequences`.

    Batches are sorted by length and padded on the right; logits are made for learnt positions only and dropped
    with their batch. `done` is called with the number of sequences finished.
    """
    result: list[Summed | None] = [None] * len(sequences)
    order = batches_by_length([(len(s.input_ids), index) for index, s in enumerate(sequences)], batch)
    for indices in order:
        for index, summed in zip(indices, _batch_losses(model, [sequences[i] for i in indices], pad), strict=True):
            result[index] = summed
        done(len(indices))
    return [summed for summed in result if summed is not None]


def _batch_losses(model: Any, sequences: Sequence[Encoded], pad: int) -> list[Summed]:
    longest = max(len(s.input_ids) for s in sequences)
    first = min(start for s in sequences for start, _ in s.learnt)
    ids_BT = torch.full((len(sequences), longest), pad, dtype=torch.long)
    mask_BT = torch.zeros_like(ids_BT)
    learnt_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        length = len(sequence.input_ids)
        ids_BT[row, :length] = torch.tensor(sequence.input_ids)
        mask_BT[row, :length] = 1
        for start, end in sequence.learnt:
            learnt_BT[row, start:end] = True
    ids_BT, mask_BT, learnt_BT = (t.to(model.device) for t in (ids_BT, mask_BT, learnt_BT))
    kept = longest - first + 1
    logits_BKV = model(input_ids=ids_BT, attention_mask=mask_BT, use_cache=False, logits_to_keep=kept).logits
    targets_BK, learnt_BK = ids_BT[:, first:], learnt_BT[:, first:]
    sums = torch.zeros(len(sequences), dtype=torch.float64)
    for row in range(len(sequences)):  # one row at a time: a float copy of all logits would double the peak
        chosen = learnt_BK[row]
        nats = functional.cross_entropy(logits_BKV[row, :-1][chosen].float(), targets_BK[row][chosen], reduction="none")
        sums[row] = nats.double().sum().cpu()
    return [Summed(float(s), learnt_tokens(q)) for s, q in zip(sums, sequences, strict=True)]


@torch.inference_mode()
def greedy_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    batch: int,
    limit: int,
    done: Callable[[int], None],
    ends: Sequence[int] = (),
) -> list[Answer]:
    """Greedy answers of at most `limit` tokens to encoded prompts, in their order; padded on the left.

    An answer stops at the first of `ends` (`PromptTemplate.ends`), by default at the end token of the tokenizer.
    """
    from transformers import GenerationConfig

    stops, pad = list(ends) or [tokenizer.eos_token_id], padding_id(tokenizer)
    make_settings: Any = GenerationConfig
    settings = make_settings(
        do_sample=False, num_beams=1, max_new_tokens=limit, eos_token_id=stops, pad_token_id=pad, use_cache=True
    )
    result: list[Answer | None] = [None] * len(prompts)
    for indices in batches_by_length([(len(p), index) for index, p in enumerate(prompts)], batch):
        longest = max(len(prompts[i]) for i in indices)
        rows = [[pad] * (longest - len(prompts[i])) + prompts[i] for i in indices]
        masks = [[0] * (longest - len(prompts[i])) + [1] * len(prompts[i]) for i in indices]
        ids_BT = model.generate(
            input_ids=torch.tensor(rows, device=model.device),
            attention_mask=torch.tensor(masks, device=model.device),
            generation_config=settings,
        )
        for index, row in zip(indices, ids_BT[:, longest:].tolist(), strict=True):
            end = next((at for at, token in enumerate(row) if token in stops), None)
            ended, tokens = end is not None, row[:end]
            text = tokenizer.decode(tokens, skip_special_tokens=True).strip()
            result[index] = Answer(text, ended, len(tokens))
        done(len(indices))
    return [answer for answer in result if answer is not None]


def padding_id(tokenizer: Any) -> int:
    """The pad token, else the end token: masks go by length, so any id serves."""
    pad: int | None = tokenizer.pad_token_id
    return pad if pad is not None else int(tokenizer.eos_token_id)
