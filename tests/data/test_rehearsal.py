"""A rehearsal takes a fair part of the samples, the longest among it, and the verifier sees a part that is not fair."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.criteria import Criterion
from specs.errors import InputError
from specs.rehearsal import rehearsed_criteria
from tasks.rehearsal import Candidate, choose, fewest_trained
from tasks.verify.rehearsal import part_wrong
from tests.support.samples import small_training

samples = st.lists(st.tuples(st.sampled_from("ABCD"), st.integers(1, 500)), min_size=1, max_size=300)
shares = st.floats(0.001, 0.9)


def candidates(found: list[tuple[str, int]]) -> list[Candidate]:
    return [Candidate(f"s{n:03d}", f"work_order\0{kind}", tokens) for n, (kind, tokens) in enumerate(found)]


def rows(found: list[Candidate]) -> list[dict[str, object]]:
    return [
        {"sample_id": c.sample_id, "kind": "work_order", "fault_type": c.stratum[-1], "n_tokens": c.n_tokens}
        for c in found
    ]


@given(samples, shares, st.integers(1, 20), st.randoms())
def test_every_kind_has_its_share_and_the_longest_is_there_whatever_the_order(found, share, at_least, rng):
    known = candidates(found)
    chosen = choose(known, share, at_least)
    shuffled = known[:]
    rng.shuffle(shuffled)
    assert chosen == choose(shuffled, share, at_least)
    wanted = min(len(known), max(math.ceil(share * len(known)), at_least))
    assert wanted <= len(chosen) == len(set(chosen)) <= wanted + 1
    longest = max(c.n_tokens for c in known)
    of = {c.sample_id: c for c in known}
    assert any(of[i].n_tokens == longest for i in chosen)
    counts, mine = Counter(c.stratum for c in known), Counter(of[i].stratum for i in chosen)
    assert all(abs(mine[k] - n * wanted / len(known)) <= 2 for k, n in counts.items())
    assert part_wrong(rows(known), set(chosen), share) == 0


def test_the_verifier_counts_what_is_missing_of_a_fair_part():
    known = candidates([("A", 10)] * 50 + [("B", 20)] * 49 + [("B", 99)])
    chosen = set(choose(known, 0.1))
    assert part_wrong(rows(known), chosen, 0.1) == 0
    assert part_wrong(rows(known), chosen - {"s099"}, 0.1) >= 1
    only_b = {c.sample_id for c in known if c.stratum.endswith("B")}
    assert part_wrong(rows(known), only_b, 0.1) == 5
    assert part_wrong(rows(known), set(), 0.1) == 10 + 5 + 5 + 1


def test_a_rehearsal_has_a_step_to_stop_after_and_one_to_go_on_with():
    assert fewest_trained(small_training(epochs=1)) == 7  # one more than the effective batch of 6
    assert fewest_trained(small_training(epochs=2)) == 1
    with pytest.raises(InputError, match="max_steps allows one step"):
        fewest_trained(small_training(max_steps=1))


def test_what_was_learnt_blocks_nothing_in_a_rehearsal_and_everything_else_does():
    found = rehearsed_criteria(
        "evaluate",
        [Criterion(metric=m, op=">", bound=0) for m in ("pairing_gain", "leaked_samples", "eval_loss_adapter")],
        "eval_loss_adapter",
    )
    assert [(c.metric, c.blocking) for c in found] == [
        ("pairing_gain", False),
        ("leaked_samples", True),
        ("eval_loss_adapter", False),
    ]
    assert [(c.metric, c.op, c.bound) for c in rehearsed_criteria("train", [])] == [("resumes", ">=", 1)]
