"""Near duplicates: nothing similar is missed, nothing that differs in a code is merged."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.duplicates import merge_duplicates, split_components
from tasks.data.records import Draft, Unit
from tasks.data.similarity import critical_tokens, jaccard, normalise, shingles, similar_pairs
from tasks.data.split import choose_held_out

texts = st.lists(st.text(alphabet="ab c12轴承坏", max_size=30), min_size=2, max_size=25)


def draft(number: int, phenomenon: str, fault_type: str = "", repair: str = "replaced it") -> Draft:
    return Draft(Unit("f.csv", f"#{number}"), "work_order", "M1", phenomenon, (), repair, fault_type)


@settings(max_examples=100, deadline=None)
@given(texts, st.sampled_from([0.5, 0.7, 0.9, 1.0]))
def test_no_pair_at_or_above_the_threshold_is_missed(values, threshold):
    sets = [shingles(normalise(v)) for v in values]
    wanted = [
        (a, b) for a in range(len(sets)) for b in range(a + 1, len(sets)) if jaccard(sets[a], sets[b]) >= threshold
    ]
    assert [(p.a, p.b) for p in similar_pairs(sets, threshold)] == wanted


def test_minhash_finds_what_the_exact_search_finds_on_clear_copies():
    rng = random.Random(4)
    words = [f"word{rng.randrange(9999)}" for _ in range(900)]
    originals = [" ".join(rng.sample(words, 14)) for _ in range(60)]
    copies = [text + " x" for text in originals]
    sets = [shingles(normalise(t)) for t in originals + copies]
    exact = {(p.a, p.b) for p in similar_pairs(sets, 0.7)}
    sketched = {(p.a, p.b) for p in similar_pairs(sets, 0.7, exact_up_to=0)}
    assert exact == {(i, i + 60) for i in range(60)}
    assert sketched <= exact
    assert len(sketched) >= 58


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Alarm SV0401 on axis", "Alarm SV0402 on axis"),
        ("pressure 0.5 bar", "pressure 0.6 bar"),
        ("offset -5 um", "offset 5 um"),
        ("x axis jerks", "Y axis jerks"),
        ("VMC-850 stops", "VMC-855 stops"),
        ("一号轴异响", "二号轴异响"),
        ("G07.1 refused", "G071 refused"),
    ],
)
def test_codes_numbers_axes_and_ordinals_are_critical(a, b):
    assert critical_tokens(normalise(a)) != critical_tokens(normalise(b))


@pytest.mark.parametrize(
    ("a", "b"), [("Belt  is LOUD!", "belt is loud"), ("主轴 异响。", "主轴异响"), ("ＡＬＭ０４１２", "alm0412")]
)
def test_writing_does_not_make_a_difference(a, b):
    assert normalise(a) == normalise(b)


def test_one_of_each_cluster_stays_and_a_chain_is_not_merged_through():
    base = "the spindle belt makes a loud noise in the morning when the hall is still cold"
    far = base.replace("morning when the hall is still cold", "evening while somebody cleans the floor")
    drafts = [draft(1, base), draft(2, base + " again"), draft(3, far), draft(4, base.upper())]
    merged = merge_duplicates(drafts, 0.7)
    assert merged.into == {1: (0, "near_duplicate"), 3: (0, "exact_duplicate")}
    assert merged.kept == [0, 2]


def test_variants_are_kept_listed_and_in_one_component():
    text = "drive alarm shows up after power on and the axis will not enable at all"
    drafts = [draft(n, text, f"SV04{n}1") for n in range(1, 5)]
    merged = merge_duplicates(drafts, 0.7)
    assert merged.kept == [0, 1, 2, 3]
    assert len(merged.review) == 6
    contents = [d.content() for d in drafts]
    assert set(split_components(contents, contents, [""] * 4)) == {0}


def test_models_and_codes_without_digits_are_critical_too():
    text = "the bucket cylinder leaks on the left side and has to be repacked again"
    a, b = draft(1, text, "LEAK"), draft(2, text + " now", "LEAK")
    assert merge_duplicates([a, b], 0.7).into
    assert not merge_duplicates([a, replace(b, device_model="M")], 0.7).into
    assert not merge_duplicates([a, replace(b, fault_type="DRIP")], 0.7).into


def test_the_record_with_more_fields_stays():
    text = "the coolant pump trips its protection after a few minutes every morning"
    poor, rich = draft(1, text), draft(2, text + " again")
    rich = Draft(rich.unit, "work_order", "M1", rich.phenomenon, ("measured current",), rich.repair)
    assert merge_duplicates([poor, rich], 0.6).into == {0: (1, "near_duplicate")}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "A", "B", "C"])), min_size=1, max_size=120),
    st.floats(0.05, 0.4),
    st.integers(0, 9),
)
def test_a_fault_type_is_never_only_held_out(items, share, seed):
    component, types = [c for c, _ in items], [t for _, t in items]
    chosen = choose_held_out(component, types, share, seed)
    assert chosen == choose_held_out(component, types, share, seed)
    trained = {t for c, t in items if c not in chosen}
    assert set(types) - {""} <= trained
    assert sum(c in chosen for c in component) <= round(share * len(items))
