"""Conversations as they are fed: every answer that is to be learnt has its labels, alone and in a shared row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.prompts import Encoded, PromptTemplate
from tasks.training.collate import IGNORED, collate, collate_rows, learnt_tokens
from tasks.training.feed import Feed, PlannedMicroBatch, read_samples
from tasks.training.recorder import describe_fed
from tasks.turns import Turn, rows_of, turns_of
from tasks.verify.dry_run import _masked_end_tokens

TALK = (Turn("system", "Be brief."), Turn("user", "Why?"), Turn("assistant", "Belt.", True))


@st.composite
def conversations(draw: st.DrawFn) -> Encoded:
    cuts = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=6)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    start, end = spans.pop()
    return Encoded(draw(st.lists(st.integers(0, 9), min_size=end, max_size=end)), start, tuple(spans))


@settings(deadline=None, max_examples=50)
@given(st.lists(conversations(), min_size=1, max_size=3))
def test_labels_are_those_of_every_answer_and_of_nothing_else(encoded: list[Encoded]):
    wanted = [
        [
            token if any(start <= at < end for start, end in sample.answers) else IGNORED
            for at, token in enumerate(sample.input_ids)
        ]
        for sample in encoded
    ]
    apart = collate(encoded, 25, 0)["labels"].tolist()
    assert apart == [labels + [IGNORED] * (25 - len(labels)) for labels in wanted]
    starts = [sum(len(s.input_ids) for s in encoded[:n]) for n in range(len(encoded))]
    (together,) = collate_rows(encoded, [(0, at) for at in starts], 70, 0)["labels"].tolist()
    for sample, labels, at in zip(encoded, wanted, starts, strict=True):
        assert together[at + 1 : at + len(labels)] == labels[1:], "what begins a sample is predicted by nothing"
        assert learnt_tokens(sample) == sum(label != IGNORED for label in labels[1:])


def test_a_conversation_is_fed_with_the_end_of_each_answer_and_a_masked_one_is_found(tmp_path: Path, tiny_model: Path):
    template = PromptTemplate.load(tiny_model)
    row = {"sample_id": "a", "prompt": "And then?", "answer": "Oil it.", "earlier": rows_of(TALK)}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "samples.parquet")
    samples = read_samples(tmp_path / "samples.parquet", ["a"], template)
    assert samples["a"] == template.encode("And then?", "Oil it.", turns_of(row))
    planned = PlannedMicroBatch(0, ("a",), len(samples["a"].input_ids) + 3)
    batch = Feed([], samples, 0).batch(planned)
    fed = describe_fed(batch, 0, "a", template.tokenizer)
    assert [text for text, learnt in fed["parts"] if learnt] == [f"Belt.{template.end}", f"Oil it.{template.end}"]
    assert "".join(text for text, _ in fed["parts"]) == fed["text"]
    assert (fed["ends_masked"], fed["learnt_tokens"]) == (0, samples["a"].learnt_tokens)
    assert _masked_end_tokens([fed]).value == 0
    other = describe_fed(batch, 0, "a", template.tokenizer, (fed["end_token"] + 1,))
    assert other["ends_masked"] == 2, "what the template ends answers with is what is looked for"
    assert _masked_end_tokens([other]).value == 1
    (_, end), _ = samples["a"].answers
    batch.tensors["labels"][0, end - 1] = IGNORED
    assert _masked_end_tokens([describe_fed(batch, 0, "a", template.tokenizer)]).value == 1
