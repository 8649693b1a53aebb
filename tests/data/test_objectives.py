"""A mix of objectives: every epoch has the questions and its share of plain text, and every text has its turn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError
from specs.parameters import TrainingConfiguration
from tasks.data.batch_plan import plan_batches
from tasks.data.objectives import samples_per_epoch
from tasks.pool import pool_of
from tasks.verify import mix


def rows_of(questions: int, plain: int, kind: str = "manual") -> list[dict]:
    made = [(f"q{i:03d}", "work_order", "what?") for i in range(questions)]
    made += [(f"t{i:03d}", kind, "") for i in range(plain)]
    return [
        {"sample_id": i, "kind": k, "prompt": p, "fault_type": "", "n_tokens": 10 + n % 30}
        for n, (i, k, p) in enumerate(made)
    ]


def configuration(**changes) -> TrainingConfiguration:
    return TrainingConfiguration(**{"max_length": 64, "micro_batch": 2, "gradient_accumulation": 4, **changes})


def planned(rows, training):
    pool = pool_of(rows, training)
    made = plan_batches(pool.samples, training, plain=pool.plain)
    return made, [{f: getattr(r, f) for f in ("epoch", "sample_id", "n_tokens")} for r in made]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 0.99), st.integers(1, 6), st.integers(0, 99))
def test_each_epoch_has_all_questions_and_its_share_and_no_text_two_turns_more_than_another(
    questions, plain, share, epochs, seed
):
    rows = rows_of(questions, plain)
    training = configuration(plain_text_share=share, epochs=epochs, seed=seed)
    exact = questions * share / (1 - share)
    if exact > plain + 1:
        with pytest.raises(InputError, match="plain text is to be"):
            planned(rows, training)
        return
    made, lines = planned(rows, training)
    for epoch in range(1, epochs + 1):
        count = Counter(r.sample_id for r in made if r.epoch == epoch)
        assert max(count.values()) == 1
        assert sum(i.startswith("q") for i in count) == questions
        assert sum(i.startswith("t") for i in count) == min(round(exact), plain)
        assert len(count) == samples_per_epoch(questions, plain, share)
    turns = Counter({f"t{i:03d}": 0 for i in range(plain)})
    turns.update(r.sample_id for r in made if r.sample_id.startswith("t"))
    assert max(turns.values()) - min(turns.values()) <= 1
    asked = training.model_dump(mode="json")
    assert mix.turns_wrong(lines, asked, mix.by_turns(rows, asked)) == 0


def test_a_share_that_cannot_be_reached_names_the_largest_that_can():
    with pytest.raises(InputError) as caught:
        planned(rows_of(90, 10), configuration(plain_text_share=0.5))
    assert "there are 10" in caught.value.message
    assert "objective_mix to 0.1 or less" in caught.value.hint
    made, _ = planned(rows_of(90, 10), configuration(plain_text_share=0.1))
    assert sum(r.sample_id.startswith("t") for r in made) == 10


def test_without_questions_only_a_share_of_one_is_a_plan():
    with pytest.raises(InputError, match="there is nothing else"):
        planned(rows_of(0, 10), configuration(plain_text_share=0.5))
    made, _ = planned(rows_of(0, 10), configuration(plain_text_share=1))
    assert len(made) == 10


@pytest.mark.parametrize(("share", "first"), [(0, "q"), (1, "t")])
def test_one_objective_alone_leaves_the_other_out_and_counts_it(share, first):
    rows, training = rows_of(20, 9), configuration(plain_text_share=share)
    pool = pool_of(rows, training)
    assert {i[0] for i, _ in pool.samples} == {first}
    assert pool.left_out == 29 - len(pool.samples)
    assert any(str(pool.left_out) in note for note in pool.notes([], training, "zh"))
    with pytest.raises(InputError, match="no training sample is of the chosen objective"):
        pool_of([r for r in rows if not r["sample_id"].startswith(first)], training)


def test_only_the_named_kinds_of_plain_text_take_part():
    rows = [*rows_of(20, 9), *({**r, "sample_id": "n" + r["sample_id"]} for r in rows_of(0, 5, "note"))]
    training = configuration(plain_text_share=0.2, plain_text_kinds=["note"])
    made, _ = planned(rows, training)
    assert {r.sample_id[0] for r in made} == {"q", "n"}
    assert len(mix.admitted(rows, training.model_dump(mode="json"))) == 25


def test_without_a_mix_every_sample_is_planned_once_as_before():
    rows = rows_of(20, 9)
    made, _ = planned(rows, configuration())
    assert Counter(r.sample_id for r in made) == Counter(r["sample_id"] for r in rows)


def test_the_verifier_counts_texts_too_many_and_turns_taken_from_others():
    rows, training = rows_of(40, 30), configuration(plain_text_share=0.2, epochs=3)
    _, lines = planned(rows, training)
    asked = training.model_dump(mode="json")
    turns = mix.by_turns(rows, asked)
    assert mix.turns_wrong(lines, {**asked, "plain_text_share": 0.4}, turns) > 0
    assert mix.turns_wrong([r for r in lines if r["sample_id"] not in turns], asked, turns) > 0
    favourite = sorted(r["sample_id"] for r in lines if r["sample_id"] in turns)[0]
    always = [{**r, "sample_id": favourite} if r["sample_id"] in turns else r for r in lines]
    assert mix.turns_wrong(always, asked, turns) > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 200), st.floats(0.05, 0.95), st.sampled_from([0.01, 0.05, 0.3]), st.integers(1, 3))
def test_what_can_be_trained_can_be_rehearsed_whatever_the_mix(questions, mixed, share, epochs):
    plain = round(questions * mixed / (1 - mixed))
    training = configuration(plain_text_share=mixed, epochs=epochs)
    pool = pool_of(rows_of(questions, plain), training, share)
    made = plan_batches(pool.samples, training, plain=pool.plain)
    lines = [{f: getattr(r, f) for f in ("epoch", "sample_id", "n_tokens")} for r in made]
    used = {r.sample_id for r in made}
    assert mix.turns_wrong(lines, training.model_dump(mode="json"), set(pool.plain) & used) == 0
