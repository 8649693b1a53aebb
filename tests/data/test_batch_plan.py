"""The batch plan keeps its promises for any lengths, batch shapes and seeds."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError
from specs.parameters import TrainingConfiguration
from tasks.data.batch_plan import PlanRow, plan_batches, read_plan, write_plan
from tasks.verify.packing import rows_wrong

lengths = st.lists(st.integers(1, 900), min_size=1, max_size=70)


def configuration(**changes) -> TrainingConfiguration:
    return TrainingConfiguration(**{"max_length": 2048, "micro_batch": 2, "gradient_accumulation": 4, **changes})


def samples_of(values: list[int]) -> list[tuple[str, int]]:
    return [(f"s{i:04d}", n) for i, n in enumerate(values)]


def steps_of(rows: list[PlanRow]) -> dict[int, set[str]]:
    steps: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        steps[row.step].add(row.sample_id)
    return steps


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.integers(0, 99))
def test_every_sample_is_planned_exactly_once_per_epoch(values, micro, accumulation, epochs, seed):
    training = configuration(micro_batch=micro, gradient_accumulation=accumulation, epochs=epochs, seed=seed)
    rows = plan_batches(samples_of(values), training)
    count = Counter((row.epoch, row.sample_id) for row in rows)
    assert count == Counter({(e, s): 1 for e in range(1, epochs + 1) for s, _ in samples_of(values)})
    assert [row.n_tokens for row in rows] == [values[int(row.sample_id[1:])] for row in rows]


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 4), st.integers(1, 4))
def test_only_the_last_step_of_an_epoch_is_partial(values, micro, accumulation):
    training = configuration(micro_batch=micro, gradient_accumulation=accumulation, epochs=2)
    rows = plan_batches(samples_of(values), training)
    sizes = Counter((row.epoch, row.step) for row in rows)
    last = {epoch: max(step for e, step in sizes if e == epoch) for epoch in (1, 2)}
    assert all(n == training.effective_batch for (epoch, step), n in sizes.items() if step != last[epoch])
    assert [step for _, step in sorted(sizes)] == list(range(1, len(sizes) + 1))
    micro_batches = Counter((row.step, row.micro_batch) for row in rows)
    assert max(micro_batches.values()) <= micro


@settings(max_examples=40, deadline=None)
@given(lengths, st.integers(0, 9))
def test_a_step_holds_the_same_samples_however_it_is_cut(values, seed):
    shapes = [(1, 8), (2, 4), (4, 2), (8, 1)]
    plans = [
        steps_of(
            plan_batches(
                samples_of(values),
                configuration(micro_batch=micro, gradient_accumulation=accumulation, epochs=2, seed=seed),
            )
        )
        for micro, accumulation in shapes
    ]
    assert all(plan == plans[0] for plan in plans)


@settings(max_examples=40, deadline=None)
@given(lengths, st.randoms())
def test_input_order_does_not_change_the_plan(values, rng):
    samples = samples_of(values)
    shuffled = samples.copy()
    rng.shuffle(shuffled)
    assert plan_batches(samples, configuration()) == plan_batches(shuffled, configuration())


@settings(max_examples=40, deadline=None)
@given(lengths, st.sampled_from([1, 2, 4]))
def test_ranks_share_a_step_without_overlap(values, ranks):
    rows = plan_batches(samples_of(values), configuration(epochs=1), ranks=ranks)
    assert steps_of(rows) == steps_of(plan_batches(samples_of(values), configuration(epochs=1)))
    places = Counter((row.step, row.rank, row.micro_batch, row.position) for row in rows)
    assert set(places.values()) == {1}
    assert {row.rank for row in rows} <= set(range(ranks))


@settings(max_examples=80, deadline=None)
@given(lengths, st.integers(1, 6), st.sampled_from([1, 2, 3]), st.integers(900, 4000), st.integers(0, 9))
def test_a_token_budget_bounds_every_micro_batch_and_changes_no_step(values, micro, ranks, budget, seed):
    free = configuration(micro_batch=micro, gradient_accumulation=6, seed=seed)
    bound = free.model_copy(update={"max_tokens_per_micro_batch": budget})
    rows = plan_batches(samples_of(values), bound, ranks)
    assert steps_of(rows) == steps_of(plan_batches(samples_of(values), free, ranks))
    batches: dict[tuple[int, int, int], list[PlanRow]] = defaultdict(list)
    for row in rows:
        batches[row.step, row.rank, row.micro_batch].append(row)
    assert all(sum(row.padded_tokens for row in batch) <= budget for batch in batches.values())
    assert all(len(batch) <= micro for batch in batches.values())
    assert all({row.padded_tokens for row in b} == {max(row.n_tokens for row in b)} for b in batches.values())
    for step, samples in steps_of(rows).items():
        passes = [sum(1 for s, r, _ in batches if (s, r) == (step, rank)) for rank in range(ranks)]
        assert max(passes) - min(passes) <= (len(samples) < ranks or len(samples) % ranks > 0)


@settings(max_examples=80, deadline=None)
@given(lengths, st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 2]), st.booleans(), st.integers(0, 9))
def test_filled_micro_batches_hold_no_more_than_the_longest_did_and_none_is_left_that_fits(
    values, micro, accumulation, ranks, bound, seed
):
    free = configuration(micro_batch=micro, gradient_accumulation=accumulation * ranks, seed=seed)
    limit = 1000 if bound else micro * max(values)
    free = free.model_copy(update={"max_tokens_per_micro_batch": limit if bound else None})
    filled = free.model_copy(update={"fill_micro_batches": True})
    rows = plan_batches(samples_of(values), filled, ranks)
    assert steps_of(rows) == steps_of(plan_batches(samples_of(values), free, ranks))
    assert rows_wrong([asdict(row) for row in rows], filled.model_dump()) == 0
    batches: dict[tuple[int, int, int], list[PlanRow]] = defaultdict(list)
    for row in rows:
        batches[row.step, row.rank, row.micro_batch].append(row)
    assert all(sum(row.padded_tokens for row in batch) <= limit for batch in batches.values())
    unasked = sum(len(batch) > micro for batch in batches.values())
    assert rows_wrong([asdict(row) for row in rows], free.model_dump()) == unasked
    for step in {row.step for row in rows}:
        counts = [sum(1 for s, r, _ in batches if (s, r) == (step, rank)) for rank in range(ranks)]
        assert max(counts) - min(counts) <= 1
        own = [batch for (s, r, _), batch in batches.items() if (s, r) == (step, 0)]
        for one, other in itertools.pairwise(own) if ranks == 1 else []:
            width = max(one[0].padded_tokens, other[0].padded_tokens)
            assert (len(one) + 1) * width > limit


def test_filling_saves_most_passes_where_lengths_are_skewed_and_none_where_they_are_equal():
    rng = random.Random(7)
    values = [max(24, min(480, round(rng.lognormvariate(4.2, 0.8)))) for _ in range(800)]
    free = configuration(micro_batch=4, gradient_accumulation=4)
    filled = free.model_copy(update={"fill_micro_batches": True})

    def passes(training: TrainingConfiguration, of: list[int]) -> int:
        return len({(row.step, row.micro_batch) for row in plan_batches(samples_of(of), training)})

    assert passes(free, values) == 200
    assert passes(filled, values) < 80
    assert passes(filled, [96] * 160) == passes(free, [96] * 160)


def test_a_sample_longer_than_the_token_budget_is_refused_with_a_way_out():
    with pytest.raises(InputError, match="max_tokens_per_micro_batch") as caught:
        plan_batches(samples_of([20, 60]), configuration(max_tokens_per_micro_batch=50))
    assert "60" in caught.value.hint


def test_padding_stays_at_one_percent_while_batches_are_shuffled():
    rng = random.Random(5)
    values = [min(2048, max(8, int(rng.lognormvariate(4.75, 0.95)))) for _ in range(4000)]
    rows = plan_batches(samples_of(values), configuration(micro_batch=8, gradient_accumulation=1))
    padded = sum(row.padded_tokens for row in rows)
    assert (padded - sum(values)) / padded <= 0.01
    firsts = [row.n_tokens for row in rows if row.position == 0]
    neighbours = sum(1 for a, b in itertools.pairwise(firsts) if a <= b)
    assert 0.4 < neighbours / len(firsts) < 0.6


def test_epochs_and_seeds_give_other_orders():
    samples = samples_of([10 + i % 50 for i in range(64)])
    rows = plan_batches(samples, configuration(epochs=2))
    first = [row.sample_id for row in rows if row.epoch == 1]
    assert first != [row.sample_id for row in rows if row.epoch == 2]
    assert first != [row.sample_id for row in plan_batches(samples, configuration(seed=18))]


def test_max_steps_cuts_the_plan_and_nothing_else():
    samples = samples_of(list(range(10, 60)))
    whole = plan_batches(samples, configuration(epochs=3))
    cut = plan_batches(samples, configuration(epochs=3, max_steps=9))
    assert cut == [row for row in whole if row.step <= 9]
    assert cut[-1].epoch == 2


@pytest.mark.parametrize(
    ("changes", "ranks", "words"),
    [
        ({"max_length": 50}, 1, "longer than max_length"),
        ({"max_tokens_per_step": 100}, 1, "max_tokens_per_step"),
        ({}, 3, "cannot be shared by 3 ranks"),
    ],
)
def test_a_plan_that_breaks_a_limit_is_refused_with_a_way_out(changes, ranks, words):
    with pytest.raises(InputError, match=words) as caught:
        plan_batches(samples_of([20] * 20 + [60] * 8), configuration(**changes), ranks)
    assert caught.value.hint


def test_no_samples_and_double_ids_are_refused():
    with pytest.raises(InputError):
        plan_batches([], configuration())
    with pytest.raises(InputError):
        plan_batches([("a", 3), ("a", 4)], configuration())


def test_a_written_plan_reads_back_and_has_stable_bytes(tmp_path):
    rows = plan_batches(samples_of(list(range(10, 60))), configuration(epochs=2))
    write_plan(rows, tmp_path / "a.parquet")
    write_plan(rows, tmp_path / "b.parquet")
    assert read_plan(tmp_path / "a.parquet") == rows
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 100), min_size=9, max_size=60),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([None, 230, 700]),
    st.sampled_from([1, 2]),
)
def test_packing_keeps_the_steps_and_fills_rows_up_to_the_limit(values, micro, accumulation, budget, ranks):
    """Rows hold their samples one after the other, within the limit, and the padding is counted once."""
    changes = {
        "max_length": 220,
        "micro_batch": micro,
        "gradient_accumulation": 4 * accumulation,
        "max_tokens_per_micro_batch": budget,
    }
    rows = plan_batches(samples_of(values), configuration(**changes, packing=True), ranks)
    assert steps_of(rows) == steps_of(plan_batches(samples_of(values), configuration(**changes), ranks))
    batches: dict[tuple[int, int, int], list[PlanRow]] = defaultdict(list)
    for row in rows:
        batches[row.step, row.rank, row.micro_batch].append(row)
    for members in batches.values():
        assert [r.position for r in members] == list(range(len(members)))
        width = max(r.start + r.padded_tokens for r in members)
        number = 1 + max(r.row for r in members)
        assert number <= micro
        assert width <= 220
        assert sum(r.padded_tokens for r in members) == number * width
        if budget is not None:
            assert number * width <= budget
        for row in range(number):
            mine = [r for r in members if r.row == row]
            assert [r.start for r in mine] == [sum(m.n_tokens for m in mine[:k]) for k in range(len(mine))]
            assert all(r.padded_tokens == r.n_tokens for r in mine[:-1])


def test_packing_that_would_change_nothing_is_refused():
    with pytest.raises(InputError, match="no two samples of a step fit") as caught:
        plan_batches(samples_of([60, 70, 80]), configuration(max_length=100, packing=True))
    assert "packing: false" in caught.value.hint


def test_packing_needs_few_rows_and_pads_little():
    """Samples of 10 to 64 tokens, 8 in a step, rows of 128: as few rows as their tokens allow, or one more."""
    rows = plan_batches(samples_of(list(range(10, 65))), configuration(max_length=128, packing=True))
    for step in {r.step for r in rows}:
        mine = [r for r in rows if r.step == step]
        fewest = -(-sum(r.n_tokens for r in mine) // 128)
        assert len({(r.micro_batch, r.row) for r in mine}) <= fewest + 1
    assert 1 - sum(r.n_tokens for r in rows) / sum(r.padded_tokens for r in rows) < 0.03


def test_a_plan_of_an_earlier_version_has_a_row_for_every_sample(tmp_path):
    import pyarrow.parquet as pq

    rows = plan_batches(samples_of([5, 6, 7, 8, 9]), configuration())
    write_plan(rows, tmp_path / "new.parquet")
    pq.write_table(pq.read_table(tmp_path / "new.parquet").drop_columns(["row", "start"]), tmp_path / "old.parquet")
    assert read_plan(tmp_path / "old.parquet") == read_plan(tmp_path / "new.parquet") == rows
