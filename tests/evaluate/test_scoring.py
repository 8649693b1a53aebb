"""Losses are the model's own; batching, padding and the adapter switch change nothing but speed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

from tasks.evaluate.merge_worker import _stop_where_answers_end
from tasks.evaluate.scoring import greedy_answers, learnt_tokens, padding_id, summed_losses
from tasks.prompts import PromptTemplate
from tasks.training.models import load_base, load_trained


def nothing(units: int) -> None:
    """No progress."""


TEXTS = (
    ("spindle noise", "replace the bearing"),
    ("主轴异响，转速到三千时最明显", "更换轴承"),
    ("", "The chuck holds the workpiece."),
    ("alarm 0410 on the X axis after a cold start, only on Mondays", "tighten the coupling and set the gain to 35"),
)


@pytest.fixture(scope="module")
def loaded(tiny_model):
    torch.set_num_threads(1)
    return load_base(tiny_model), PromptTemplate.load(tiny_model)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_losses_equal_those_of_transformers_in_any_batch(loaded, batch):
    model, template = loaded
    sequences = [template.encode(prompt, answer) for prompt, answer in TEXTS]
    found = summed_losses(model, sequences, batch, padding_id(template.tokenizer), nothing)
    for sequence, summed in zip(sequences, found, strict=True):
        ids = torch.tensor([sequence.input_ids])
        targets = ids.clone()
        targets[:, : sequence.trainable_from] = -100
        with torch.inference_mode():
            expected = model(input_ids=ids, labels=targets).loss.item()
        assert summed.nats / summed.tokens == pytest.approx(expected, rel=1e-5)
        assert summed.tokens == learnt_tokens(sequence) == int((targets[:, 1:] != -100).sum())


@pytest.mark.parametrize("batch", [2, 4])
def test_answers_are_the_same_alone_and_padded_on_the_left(loaded, batch):
    model, template = loaded
    prompts = [template.encode_prompt(prompt) for prompt, _ in TEXTS if prompt]
    alone = greedy_answers(model, template.tokenizer, prompts, 1, 12, nothing)
    assert greedy_answers(model, template.tokenizer, prompts, batch, 12, nothing) == alone
    assert all(a.tokens == 12 or a.ended for a in alone)


def test_an_answer_stops_at_whatever_ends_answers(loaded):
    model, template = loaded
    prompts = [template.encode_prompt(prompt) for prompt, _ in TEXTS if prompt][:1]
    (whole,) = greedy_answers(model, template.tokenizer, prompts, 1, 12, nothing)
    stop = template.tokenizer.as_text([whole.text])[0][2]
    ends = (stop, template.tokenizer.eos_token_id)
    (found,) = greedy_answers(model, template.tokenizer, prompts, 1, 12, nothing, ends)
    assert found.ended
    assert found.tokens < whole.tokens
    assert whole.text.startswith(found.text)


@pytest.mark.parametrize(
    ("known", "ends", "wanted"),
    [(2, (2,), 2), (2, (7, 2), [2, 7]), ([1, 106], (106, 1), [1, 106]), (None, (7, 2), [7, 2])],
)
def test_the_merged_model_stops_where_its_answers_end(known, ends, wanted):
    model = SimpleNamespace(generation_config=GenerationConfig(eos_token_id=known))
    _stop_where_answers_end(model, ends)
    assert model.generation_config.eos_token_id == wanted


def test_the_switched_off_adapter_is_the_base_model(lab, loaded):
    base, template = loaded
    artifacts = lab.evaluated("en", "true").inputs["train"] / "artifacts"
    adapted = load_trained(lab.model, artifacts)
    sequences = [template.encode(prompt, answer) for prompt, answer in TEXTS]

    def losses(model):
        return [s.nats for s in summed_losses(model, sequences, 2, padding_id(template.tokenizer), nothing)]

    with adapted.disable_adapter():
        assert losses(adapted) == losses(base)
    assert losses(adapted) != losses(base)
