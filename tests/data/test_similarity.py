"""Near duplicates: nothing similar is missed, nothing that differs in a code is merged."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data import similarity
from tasks.data.clusters import components, similar_pairs
from tasks.data.leakage import NearIndex, bitmaps
from tasks.data.merging import Merged, fingerprints, guard_of, in_memory, merge_duplicates
from tasks.data.records import Draft, Unit
from tasks.data.shards import filled
from tasks.data.shingles import ShingleSets, dense, jaccard, offsets_of, shingle_sets
from tasks.data.similarity import critical_tokens, normalise
from tasks.data.sketches import Sketches, sketches_of

TEXTS = st.lists(st.text(alphabet="ab c12轴承坏", max_size=30), min_size=2, max_size=25)


def draft(number: int, phenomenon: str, fault_type: str = "", repair: str = "replaced it") -> Draft:
    return Draft(Unit("f.csv", f"#{number}"), "work_order", "M1", phenomenon, (), repair, fault_type)


def merge(drafts: list[Draft], threshold: float = 0.7) -> Merged:
    texts = [normalise(d.content()) for d in drafts]
    everyone = np.ones(len(drafts), np.bool_)
    prints = fingerprints(texts, [guard_of(d) for d in drafts])
    fields = np.asarray([filled(d) for d in drafts], np.int64)
    return merge_duplicates(prints, fields, everyone, everyone, threshold, in_memory(texts))


def merged_into(merged: Merged) -> dict[int, tuple[int, str]]:
    reasons = {True: "exact", False: "near"}
    return {int(i): (int(merged.into[i]), reasons[bool(merged.exact[i])]) for i in np.flatnonzero(merged.into >= 0)}


def plain_shingles(text: str) -> set[str]:
    whole, size = dense(normalise(text))
    return {whole[i : i + size] for i in range(max(1, len(whole) - size + 1))}


def plain_jaccard(a: str, b: str) -> float:
    x, y = plain_shingles(a), plain_shingles(b)
    return len(x & y) / len(x | y)


def all_pairs(count: int) -> tuple[Any, Any]:
    return np.divmod(np.arange(count * count), count)


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_hashed_shingles_give_the_similarity_of_the_sets_of_characters(texts):
    sets = shingle_sets([normalise(t) for t in texts])
    assert sets.sizes().tolist() == [len(plain_shingles(t)) for t in texts]
    a, b = all_pairs(len(texts))
    same_script = [(dense(normalise(texts[i]))[1] == dense(normalise(texts[j]))[1]) for i, j in zip(a, b, strict=True)]
    expected = [plain_jaccard(texts[i], texts[j]) for i, j in zip(a, b, strict=True)]
    found = jaccard(sets, a, sets, b)
    assert [x for x, s in zip(found, same_script, strict=True) if s] == pytest.approx(
        [x for x, s in zip(expected, same_script, strict=True) if s]
    )


@settings(max_examples=80, deadline=None)
@given(TEXTS, TEXTS, st.sampled_from([0.5, 0.7, 0.9, 1.0]))
def test_the_search_for_leakage_misses_no_pair_at_or_above_the_threshold(sought, others, threshold):
    left, right = (shingle_sets([normalise(t) for t in texts]) for texts in (sought, others))
    a, b = np.divmod(np.arange(len(sought) * len(others)), len(others))
    wanted = jaccard(left, a, right, b) >= threshold
    x, y = NearIndex(left, threshold).near(right)
    assert list(zip(x, y, strict=True)) == list(zip(a[wanted], b[wanted], strict=True))


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_bitmaps_differ_in_no_more_bits_than_sets_in_elements(texts):
    sets = shingle_sets([normalise(t) for t in texts])
    a, b = all_pairs(len(texts))
    bits = np.bitwise_count(bitmaps(sets)[a] ^ bitmaps(sets)[b]).sum(1)
    elements = [len(plain_set(sets, i) ^ plain_set(sets, j)) for i, j in zip(a, b, strict=True)]
    assert (bits <= elements).all()


def plain_set(sets: ShingleSets, row: int) -> set[int]:
    return set(sets.values[sets.offsets[row] : sets.offsets[row + 1]].tolist())


def test_clear_copies_are_found_and_nothing_else():
    rng = random.Random(4)
    words = [f"word{rng.randrange(9999)}" for _ in range(900)]
    originals = [" ".join(rng.sample(words, 14)) for _ in range(300)]
    texts = [normalise(t) for t in [*originals, *(t + " x" for t in originals)]]
    sketches = sketches_of(shingle_sets(texts))
    pairs = similar_pairs(sketches, np.arange(600), None, 0.7, in_memory(texts))
    found = set(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True))
    assert found <= {(i, i + 300) for i in range(300)}
    assert len(found) >= 299


def test_a_bucket_of_many_alike_is_found_by_its_leader_alone():
    """A thousand variants of one record are a thousand pairs, not half a million."""
    texts = [
        normalise(f"the spindle of the big lathe makes a grinding noise after warm up, order {n}") for n in range(1000)
    ]
    pairs = similar_pairs(sketches_of(shingle_sets(texts)), np.arange(1000), None, 0.7, in_memory(texts))
    assert len(set(components(1000, pairs.a, pairs.b).tolist())) == 1
    assert len(pairs) <= 16_000


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8), min_size=2, max_size=40))
def test_what_goes_is_similar_to_what_stays_and_one_of_each_cluster_stays(words):
    drafts = [draft(n, " ".join(f"word{w}word" for w in chosen)) for n, chosen in enumerate(words)]
    merged = merge(drafts)
    texts = [d.content() for d in drafts]
    for gone, (stays, reason) in merged_into(merged).items():
        assert merged.into[stays] < 0
        first = next(i for i in range(len(texts)) if normalise(texts[i]) == normalise(texts[gone]))
        centre_of = gone if reason == "near" else first
        assert merged.into[gone] == stays
        assert plain_jaccard(texts[centre_of], texts[stays]) >= 0.7
    for i in np.flatnonzero(merged.into < 0):
        assert all(normalise(texts[i]) != normalise(texts[j]) for j in np.flatnonzero(merged.into < 0) if i != j)


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
        ("axis X stops", "axis Y stops"),
        ("phase A of the motor is open", "phase B of the motor is open"),
        ("pump B leaks", "pump C leaks"),
        ("A相绕组断路", "B相绕组断路"),
        ("第一主轴", "第二主轴"),
        ("the left guide is stuck", "the right guide is stuck"),
        ("the valve stays open", "the valve stays closed"),
        ("the pump does start", "the pump does not start"),
        ("it can be reset", "it can't be reset"),
        ("左侧导轨卡死", "右侧导轨卡死"),
        ("主轴正转时停", "主轴反转时停"),
        ("压力过高", "压力过低"),
        ("能启动", "不能启动"),
        ("更换驱动器", "未更换驱动器"),
        ("上限报警", "下限报警"),
    ],
)
def test_what_tells_two_records_apart_is_critical(a, b):
    assert critical_tokens(normalise(a)) != critical_tokens(normalise(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Belt  is LOUD!", "belt is loud"),
        ("主轴 异响。", "主轴异响"),
        ("ＡＬＭ０４１２", "alm0412"),
        ("the_belt", "the belt"),
    ],
)
def test_writing_does_not_make_a_difference(a, b):
    assert normalise(a) == normalise(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a belt is loud", "the belt is loud"),
        ("it's the belt", "it is the belt"),
        ("No. 5 is worn", "no 5 is worn out"),
        ("然后检查皮带", "检查皮带"),
        ("非常响", "很响"),
    ],
)
def test_words_that_change_nothing_are_not_critical(a, b):
    assert critical_tokens(normalise(a)) == critical_tokens(normalise(b))


@given(
    st.text(
        "一十第号轴左高正反转向顺时针上前外侧圈进出口油输入"
        "打开关闭常断合松夹紧启动停止过太变大慢增减小正异不没未无非a ",
        max_size=12,
    )
)
def test_one_pass_finds_what_each_chinese_pattern_finds_alone(text):
    alone = [re.findall(p, text) for p in (similarity._NOT_CHINESE, similarity._ORDINAL, similarity._SIDE_CHINESE)]
    assert sorted(similarity._TELLING.findall(text)) == sorted(itertools.chain(*alone))


def test_one_of_each_cluster_stays_and_a_chain_is_not_merged_through():
    base = "the spindle belt makes a loud noise in the morning when the hall is still cold"
    far = base.replace("morning when the hall is still cold", "evening while somebody cleans the floor")
    merged = merge([draft(1, base), draft(2, base + " again"), draft(3, far), draft(4, base.upper())])
    assert merged_into(merged) == {1: (0, "near"), 3: (0, "exact")}


def test_variants_are_kept_and_listed():
    text = "drive alarm shows up after power on and the axis will not enable at all"
    merged = merge([draft(n, text, f"SV04{n}1") for n in range(1, 5)])
    assert not merged_into(merged)
    assert set(merged.pairs.b[merged.review].tolist()) | set(merged.pairs.a[merged.review].tolist()) == {0, 1, 2, 3}
    assert set(components(4, merged.pairs.a, merged.pairs.b).tolist()) == {0}


def test_models_and_codes_without_digits_are_critical_too():
    text = "the bucket cylinder leaks on the left side and has to be repacked again"
    a, b = draft(1, text, "LEAK"), draft(2, text + " now", "LEAK")
    assert merged_into(merge([a, b]))
    assert not merged_into(merge([a, replace(b, device_model="M")]))
    assert not merged_into(merge([a, replace(b, fault_type="DRIP")]))
    assert not merged_into(merge([a, replace(b, kind="note")]))


def test_the_record_with_more_fields_stays():
    text = "the coolant pump trips its protection after a few minutes every morning"
    poor, rich = draft(1, text), draft(2, text + " again")
    rich = Draft(rich.unit, "work_order", "M1", rich.phenomenon, ("measured current",), rich.repair)
    assert merged_into(merge([poor, rich])) == {0: (1, "near")}


def test_no_records_are_no_trouble():
    assert not merged_into(merge([]))
    x, y = NearIndex(shingle_sets([]), 0.7).near(shingle_sets(["a"]))
    assert not len(x)
    assert not len(y)


def pairs_at(similarity: float, count: int, size: int = 200) -> tuple[Sketches, Sketches]:
    """Sketches of `count` pairs of sets of `size` shingles with this Jaccard similarity."""
    rng = np.random.default_rng(0)
    shared = round(2 * size * similarity / (1 + similarity))
    values = rng.integers(0, 2**52, (count, 2 * size - shared), dtype=np.uint64)
    offsets = offsets_of(np.full(count, size))
    first, second = np.sort(values[:, :size], axis=1), np.sort(values[:, size - shared :], axis=1)
    a, b = (sketches_of(ShingleSets(half.ravel(), offsets)) for half in (first, second))
    return a, b


@pytest.mark.parametrize(("similarity", "least", "most"), [(0.5, 0.0, 0.12), (0.7, 0.72, 0.8), (0.8, 0.97, 1.0)])
def test_sketches_propose_the_share_of_pairs_that_the_docs_state(similarity: float, least: float, most: float):
    a, b = pairs_at(similarity, 2000)
    assert least <= (a.bands == b.bands).any(axis=1).mean() <= most
