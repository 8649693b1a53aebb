"""What the worker shows of itself after a dry run, on the trained model: raw numbers, judged by the verifier.

A step cut into one micro batch or into single samples brings the same loss and gradient; what is masked has no effect
on the loss; answers stop by themselves. Nothing here draws a random number or moves a weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tasks.evaluate.scoring import greedy_answers
from tasks.training.collate import IGNORED
from tasks.training.feed import Feed, MicroBatch, PlannedMicroBatch

if TYPE_CHECKING:
    from tasks.training.trainer import PlannedTrainer

MOST_GENERATED = 96
"""Tokens of an answer at most: a model that has learnt where an answer ends needs no more than the longest one."""

MORE_TOKENS = 8
"""Tokens that an answer may be longer than the longest true one of the probe."""


PADDING = 4
"""Padding beside the longest sample of the checked step, so that there always is some to be changed."""


def training_checks(trainer: PlannedTrainer, feed: Feed, ids: Sequence[str]) -> dict[str, Any]:
    """`checks.json`: losses and gradient distances of one step cut in two ways, and losses with masked tokens changed.

    `ids` are the samples of the probe; those of `one_step` are used.
    """
    chosen = one_step({i: len(feed.samples[i].input_ids) for i in ids}, feed.most_padded_tokens)
    together = _whole(feed, chosen, PADDING)
    apart = [_whole(feed, [i]) for i in chosen]
    model: Any = trainer.model
    vocabulary = int(model.get_input_embeddings().num_embeddings)
    with _without_dropout(model):
        one, gradient = _step(trainer, [together])
        many, other = _step(trainer, apart)
        changed, _ = _step(trainer, [_with_other_padding(together, vocabulary)])
        by_hand = _loss_by_hand(trainer, together)
    return {
        "samples": chosen,
        "learnt_tokens": together.learnt_tokens,
        "masked_tokens": int((together.tensors["labels"] == IGNORED).sum()),
        "padding_tokens": together.padded_tokens - together.tokens,
        "loss_whole": one,
        "loss_split": many,
        "gradient_norm": _norm(gradient),
        "gradient_distance": _norm([a - b for a, b in zip(gradient, other, strict=True)]),
        "loss_padding_changed": changed,
        "loss_of_learnt_tokens": by_hand,
    }


def generated_answers(trainer: PlannedTrainer, feed: Feed, ids: Sequence[str]) -> list[dict[str, Any]]:
    """`generated.jsonl`: greedy answers to the probe's questions, and whether each ended by itself."""
    asked = [i for i in ids if feed.samples[i].trainable_from > 0]
    if not asked:
        return []
    longest = max(len(feed.samples[i].input_ids) - feed.samples[i].trainable_from for i in asked)
    limit = min(MOST_GENERATED, longest + MORE_TOKENS)
    prompts = [feed.samples[i].input_ids[: feed.samples[i].trainable_from] for i in asked]
    size = trainer.job.evaluation_batch
    answers = greedy_answers(
        trainer.model,
        trainer.decoder,
        prompts,
        size,
        limit,
        lambda n: trainer.stop.raise_if_requested(STOPPED),
        trainer.ends,
    )
    return [
        {"sample_id": i, "text": a.text, "ended": a.ended, "tokens": a.tokens, "most_tokens": limit}
        for i, a in zip(asked, answers, strict=True)
    ]


STOPPED = "every step trained is saved; the checks are made again on resume"


def one_step(lengths: Mapping[str, int], most_tokens: int) -> list[str]:
    """Samples that fit into one micro batch of `most_tokens`, of lengths as unequal as can be: the longest one that
    leaves room for another, and the shortest ones. Two samples in any case where there are two. Pure."""
    ordered = sorted(lengths, key=lambda i: (lengths[i], i))
    for longest in reversed(ordered):
        room = most_tokens // (lengths[longest] + PADDING)
        if room >= 2:
            others = [i for i in ordered if i != longest and lengths[i] <= lengths[longest]]
            if others:
                return [*others[: room - 1], longest]
    return ordered[:2]


def _whole(feed: Feed, ids: Sequence[str], padding: int = 0) -> MicroBatch:
    longest = max(len(feed.samples[i].input_ids) for i in ids)
    return feed.batch(PlannedMicroBatch(0, tuple(ids), longest + padding))


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Training mode, so that everything else is as in training, with every dropout off."""
    named = [(m, "p") for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    named += [(m, n) for m in model.modules() for n in _FUNCTIONAL if isinstance(getattr(m, n, None), float)]
    before = [getattr(module, name) for module, name in named]
    for module, name in named:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for (module, name), share in zip(named, before, strict=True):
            setattr(module, name, share)
        model.zero_grad(set_to_none=True)


_FUNCTIONAL = ("attention_dropout", "dropout", "activation_dropout")
"""Attributes of modules that hand a share to a dropout without a module of its own."""


def _step(trainer: PlannedTrainer, batches: Sequence[MicroBatch]) -> tuple[float, list[torch.Tensor]]:
    """Loss of one optimizer step, and its gradient by parameter in fp32 on the CPU; the optimizer does not move."""
    model: Any = trainer.model
    model.zero_grad(set_to_none=True)
    learnt = sum(batch.learnt_tokens for batch in batches)
    loss = sum(float(trainer._micro_step(model, batch, learnt)) for batch in batches)
    gradient = [p.grad.detach().float().cpu() for p in model.parameters() if p.grad is not None]
    return loss, gradient


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float((t.double() ** 2).sum()) for t in tensors))


def _with_other_padding(batch: MicroBatch, vocabulary: int) -> MicroBatch:
    """The same batch with other tokens where there is padding."""
    ids, mask = batch.tensors["input_ids"].clone(), batch.tensors["attention_mask"]
    places = torch.arange(ids.numel()).reshape(ids.shape)
    ids[mask == 0] = (places[mask == 0] * 7 + 3) % vocabulary
    return MicroBatch(
        batch.planned, {**batch.tensors, "input_ids": ids}, batch.tokens, batch.padded_tokens, batch.learnt_tokens
    )


def _loss_by_hand(trainer: PlannedTrainer, batch: MicroBatch) -> float:
    """The mean loss over the tokens that are to be learnt, picked one by one from the logits by each sample's length:
    what the training's loss would be if nothing but the mask decided what counts."""
    model: Any = trainer.model
    tensors: Any = trainer._prepare_inputs(dict(batch.tensors))
    total = 0.0
    with torch.no_grad(), trainer.compute_loss_context_manager():
        logits = model(input_ids=tensors["input_ids"], attention_mask=tensors["attention_mask"]).logits
    for row, sample_id in enumerate(batch.planned.sample_ids):
        sample = trainer.feed.samples[sample_id]
        for first, end in sample.learnt:
            chances = F.log_softmax(logits[row, first - 1 : end - 1].float(), dim=-1)
            wanted = torch.as_tensor(sample.input_ids[first:end], device=chances.device)
            total -= float(chances.gather(1, wanted[:, None]).double().sum())
    return total / batch.learnt_tokens
