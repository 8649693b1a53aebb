"""What conversations teach: no answer is lost by a merge, and none that is held out is taught elsewhere."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.canonical import sha256_file
from specs.criteria import Metric
from specs.project import Project
from specs.stages import Quiet, StageContext
from tasks.data.clusters import components
from tasks.data.merging import Flags, fingerprints, hashes, in_memory, merge_duplicates
from tasks.data.shingles import I64
from tasks.data.similarity import critical_tokens, normalise
from tasks.data.split import choose_held_out
from tasks.data.stage import run
from tasks.data.system_texts import substance
from tasks.data.taught import _keys
from tasks.data.teaching import Pairs, letters, pair_texts, pairs_said, teaches
from tasks.turns import Turn, turns_of
from tasks.verify.data import metrics
from tasks.verify.merged_records import Told, merge_faults
from tasks.verify.pair_leaks import PairLeaks
from tasks.verify.parent_leaks import parent_leakage
from tasks.verify.parquet_rows import ParquetRows
from tasks.verify.raw_instructions import Record
from tests.support.raw_project import stage_context

PARTS = [
    "spindle",
    "belt",
    "coolant",
    "gearbox",
    "turret",
    "encoder",
    "chuck",
    "conveyor",
    "probe",
    "filter",
    "motor",
    "servo",
    "brake",
    "relay",
    "cable",
]


def talk(*texts: str, system: str = "") -> dict[str, Any]:
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"messages": [*([{"role": "system", "content": system}] if system else []), *said]}


def texts(rng: random.Random, turns: int) -> list[str]:
    found = []
    for _ in range(turns):
        w = rng.sample(PARTS, 6)
        found += [f"{w[0]} and {w[1]} stop when {w[2]} starts, what now?", f"The {w[3]} presses on the {w[4]}: {w[5]}."]
    return found


def records() -> list[dict[str, Any]]:
    """#1-8 each a turn longer; #9-12 the same words said otherwise; then conversations, each with one turn alone."""
    rng = random.Random(7)
    long = texts(rng, 8)
    growing = [talk(*long[: 2 * n]) for n in range(1, 9)]
    parts = ("the lamp blinks", "replace the lamp holder", "and the other lamp", "replace that as well")
    otherwise = [
        talk(*parts),
        talk("\n".join(parts[:3]), parts[3]),
        talk(*parts, system="You answer juniors."),
        talk(*parts),
    ]
    whole = [texts(rng, 3) for _ in range(20)]
    alone = [t[2 * (n % 3) : 2 * (n % 3) + 2] for n, t in enumerate(whole)]
    return [
        *growing,
        *otherwise,
        *(talk("Hello", "Hi, how may I help?", *t) for t in whole),
        *(talk(*t) for t in alone),
        talk(*parts, system="You answer the juniors!"),
        talk(*parts, system="You answer experts."),
    ]


class Done:
    def __init__(self, folder: Path, context: StageContext) -> None:
        self.folder, self.context = folder, context
        self.artifacts = folder / "out" / "artifacts"
        self.notes = run(context, Quiet()).notes

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.artifacts / f"{name}.parquet")

    def metrics(self) -> dict[str, Metric]:
        return metrics(self.folder / "out", {}, self.context.model_dump(mode="json"))


@pytest.fixture(scope="module", params=["every_answer", "last_answer"])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Done:
    folder = tmp_path_factory.mktemp("teaching")
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, records())), encoding="utf-8")
    spec = {"project": "p", "base_model": "m", "sources": [{"kind": "instructions", "path": "c.jsonl"}]}
    project = Project.model_validate(spec)
    return Done(folder, stage_context(folder, project, tiny_model, folder / "out", conversation_loss=request.param))


def test_every_answer_that_is_to_be_learnt_is_learnt_in_some_sample(done: Done):
    last_only = done.context.parameters.get("conversation_loss") == "last_answer"
    wanted = set()
    for record in records():
        answers = [turn["content"] for turn in record["messages"] if turn["role"] == "assistant"]
        wanted.update(answers[-1:] if last_only else answers)
    learnt = set()
    for row in done.table("samples").iter_rows(named=True):
        learnt |= {row["answer"], *(turn.text for turn in turns_of(row) if turn.learnt)}
    assert learnt == wanted
    fates = {row["location"]: row for row in done.table("row_ledger").iter_rows(named=True)}
    assert fates["#8"]["fate"] == "kept", "of beginnings and the whole, the whole stays"
    assert done.metrics()["claims_unfounded"].value == 0


def test_only_conversations_with_equal_turns_and_system_text_are_duplicates_to_the_letter(done: Done):
    reasons = dict(done.table("row_ledger").filter(fate="merged").select("location", "reason").iter_rows())
    assert reasons.get("#12") == "exact_duplicate"
    assert [place for place, reason in reasons.items() if reason == "exact_duplicate"] == ["#12"]
    assert done.metrics()["exact_duplicates_left"].value == 0


def test_records_under_another_system_text_stay_apart_and_are_listed_but_for_trivial_differences(done: Done):
    fates = {row["location"]: row for row in done.table("row_ledger").iter_rows(named=True)}
    count = len(records())
    trivial, other = fates[f"#{count - 1}"], fates[f"#{count}"]
    assert (trivial["reason"], trivial["merged_into"]) == ("near_duplicate", "c.jsonl|#11")
    assert {fates[place]["fate"] for place in ("#9", "#11")} == {other["fate"]} == {"kept"}
    pairs = done.table("review_pairs").filter(pl.col("why").str.contains("what the system text says"))
    assert {"#9", "#11", f"#{count}"} <= {*pairs["location_a"], *pairs["location_b"]}
    side = dict(done.table("samples").select("location", "split").iter_rows())
    assert side["#9"] == side["#11"] == side[f"#{count}"], "the same words are on one side of the split"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("You answer juniors.", "you answer the juniors!", True),
        ("You're a helpful assistant.", "You are a helpful assistant", True),
        ("Don't invent codes; you can't know them", "Please do not invent codes, you cannot know them.", True),
        ("你是一名数控机床的维修专家。", "您是数控机床维修专家", True),
        ("请简短回答", "简短回答。", True),
        ("You answer juniors.", "You answer experts.", False),
        ("Answer in English " + "and to the point " * 30, "Answer in German " + "and to the point " * 30, False),
        ("Invent codes.", "Do not invent codes.", False),
        ("You know Fanuc 0i.", "You know Fanuc 31i.", False),
        ("不要编造代码", "编造代码", False),
        ("", "Be brief.", False),
        ("###", "***", False),
    ],
)
def test_a_system_text_is_the_same_where_only_idle_words_differ(one: str, other: str, same: bool):
    assert (substance(one) == substance(other)) == same
    said = [Told.of(Record(1, system, (("why?", "oil"),), ""), False) for system in (one, other)]
    said[0] = replace(said[0], letters=("another spelling",))
    found = [fault for fault in merge_faults(*said, "near_duplicate", 0.6) if "system text" in fault]
    assert bool(found) != same
    assert not [*merge_faults(*said, "near_duplicate", 0.6, by_system=False)], "older runs merged them"


def test_a_question_alone_and_the_conversation_that_teaches_it_stand_on_one_side(done: Done):
    samples = done.table("samples")
    assert samples.filter(split="eval").height >= 2
    assert all(done.metrics()[name].value == 0 for name in ("exact_duplicate_leakage", "near_duplicate_leakage"))
    if done.context.parameters.get("conversation_loss") == "last_answer":
        return  # earlier answers are only read
    assert any("tie none together" in note and note.endswith(": 1") for note in done.notes), "the greeting"
    side = {row["location"]: row["split"] for row in samples.iter_rows(named=True)}
    assert all(side[f"#{n}"] == side[f"#{n + 20}"] for n in range(13, 33))


def test_the_verifier_finds_an_answer_lost_by_a_merge_and_a_turn_on_both_sides(done: Done):
    samples, ledger = done.table("samples"), done.table("row_ledger")
    held = samples.filter(split="eval", source="c.jsonl").row(0, named=True)
    other = (
        next(
            r["sample_id"]
            for r in samples.iter_rows(named=True)
            if r["component"] == held["component"] and r["sample_id"] != held["sample_id"]
        )
        if done.context.parameters.get("conversation_loss") == "every_answer"
        else ""
    )
    lost = pl.col("location") == "#8"
    try:
        moved = pl.when(pl.col("sample_id") == other).then(pl.lit("train")).otherwise("split").alias("split")
        samples.with_columns(moved).filter(pl.col("location") != "#8").write_parquet(done.artifacts / "samples.parquet")
        ledger.with_columns(
            pl.when(lost).then(pl.lit("merged")).otherwise("fate").alias("fate"),
            pl.when(lost).then(pl.lit("near_duplicate")).otherwise("reason").alias("reason"),
            pl.when(lost).then(pl.lit("c.jsonl|#1")).otherwise("merged_into").alias("merged_into"),
        ).write_parquet(done.artifacts / "row_ledger.parquet")
        found = done.metrics()
    finally:
        samples.write_parquet(done.artifacts / "samples.parquet")
        ledger.write_parquet(done.artifacts / "row_ledger.parquet")
    assert "is learnt in no sample" in found["claims_unfounded"].reason
    assert (found["exact_duplicate_leakage"].value or 0) == (1 if other else 0)


def test_a_conversation_whose_turn_a_parent_taught_is_known(done: Done, tmp_path: Path):
    samples = done.table("samples")
    held = samples.filter(split="eval").row(0, named=True)
    taught = [("user", held["prompt"], False), ("assistant", held["answer"], True)]
    earlier = [{"role": role, "text": text, "learnt": learnt} for role, text, learnt in taught]
    samples.head(1).with_columns(
        split=pl.lit("train"),
        earlier=pl.Series([earlier], dtype=samples.schema["earlier"]),
        prompt=pl.lit("Something else entirely is asked here, at some length and in other words?"),
        answer=pl.lit("Quite another text. " * 40),
    ).write_parquet(tmp_path / "parent.parquet")
    learnt = [{"run": "one", "path": "parent.parquet", "sha256": sha256_file(tmp_path / "parent.parquet")}]
    record = {"named": "one", "learnt_unknown": False, "learnt": learnt}
    context = {"project_dir": str(tmp_path), "spec": {"parent_record": record}}
    assert parent_leakage(ParquetRows(done.artifacts / "samples.parquet"), context).value == 1
    pairs = Pairs.of(
        [hashes(pair_texts(pairs_said(turns_of(row), row["prompt"], row["answer"]))).tolist() for row in [held]]
    )
    flagged = pairs.given_away(np.isin(pairs.key, _keys(pq.read_table(tmp_path / "parent.parquet").to_pylist())))
    assert flagged.all(), "the stage bars it"


# -- the rules


WORDS = st.sampled_from(["a", "b", "c"])  # nine pairs, so that among 24 samples some are commonplaces
SAMPLES = st.lists(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4), min_size=1, max_size=24)


def row(pairs: list[tuple[str, str]], split: str) -> dict[str, Any]:
    *before, (prompt, answer) = pairs
    said = [turn for q, a in before for turn in (("user", q, False), ("assistant", a, True))]
    earlier = [{"role": role, "text": text, "learnt": learnt} for role, text, learnt in said]
    return {"prompt": prompt, "answer": answer, "earlier": earlier, "split": split}


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.integers(0, 5))
def test_what_the_stage_ties_together_leaves_nothing_that_the_verifier_finds(samples, seed):
    keys = [hashes(pair_texts(pairs_said(turns_of(row(s, "")), *s[-1]))).tolist() for s in samples]
    pairs = Pairs.of(keys)
    component = components(len(samples), *pairs.links())
    barred = set(component[pairs.given_away(pairs.common())].tolist())
    none = [""] * len(samples)
    chosen = choose_held_out(component, none, none, max(1, len(samples) // 2), seed, barred)
    leaks = PairLeaks()
    for said, number in zip(samples, component.tolist(), strict=True):
        leaks.take(row(said, "eval" if number in chosen else "train"))
    assert leaks.leaks() == set()


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.lists(st.booleans(), min_size=24, max_size=24))
def test_the_verifier_finds_every_telling_pair_on_both_sides(samples, sides):
    leaks = PairLeaks()
    count: Counter[tuple[str, str]] = Counter(pair for said in samples for pair in set(said))
    taught = {pair for said, held in zip(samples, sides, strict=False) if not held for pair in said}
    wanted, number = set(), 0
    for said, held in zip(samples, sides, strict=False):
        leaks.take(row(said, "eval" if held else "train"))
        telling = {pair for pair in said if count[pair] <= max(5, 0.01 * len(samples))}
        if held and (telling & taught or set(said) <= taught):
            wanted.add(number)
        number += held
    assert leaks.leaks() == wanted


@pytest.mark.parametrize(
    ("stays", "goes", "allowed"),
    [
        (["replace the belt of the spindle drive now"], ["replace the belt of the spindle drive"], True),
        (["replace the belt", "oil it"], ["oil it"], True),
        (["oil it"], ["replace the belt", "oil it"], False),
        (
            ["turn the left screw of the clamping unit until it stops"],
            ["turn the right screw of the clamping unit until it stops"],
            False,
        ),
        (["yes"], ["no"], False),
    ],
)
def test_a_record_goes_only_into_one_that_teaches_what_it_teaches(stays: list[str], goes: list[str], allowed: bool):
    assert teaches([stays], [goes], 0.7) == [allowed]
    told = [Told(("x", *answers), tuple(answers)) for answers in (goes, stays)]
    lost = [*merge_faults(*told, "near_duplicate", 0.6)]
    assert not (allowed and lost)
    assert lost or allowed or "left" in stays[0], "sides and directions are looked at apart"


class Lists:
    """What rows teach, held in memory."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: set[tuple[int, int]] = set()

    def may(self, stays: I64, goes: I64) -> Flags:
        self.asked.update(zip(stays.tolist(), goes.tolist(), strict=True))
        kept, gone = ([self.answers[i] for i in rows.tolist()] for rows in (stays, goes))
        return np.asarray(teaches(kept, gone, 0.7), np.bool_)

    def lacking(self, stays: I64, goes: I64) -> list[list[str]]:
        pairs = zip(stays.tolist(), goes.tolist(), strict=True)
        return [sorted(set(self.answers[b]) - set(self.answers[a])) for a, b in pairs]


def merged(talks: list[list[str]]) -> tuple[set[int], Lists]:
    """The talks that go, each a list of questions and answers."""
    said = [[normalise(text) for text in t] for t in talks]
    content = [normalise("\n".join(t)) for t in talks]
    teaching, everyone = Lists([sorted(set(t[1::2])) for t in said]), np.ones(len(talks), np.bool_)
    fields = np.asarray([len(t) for t in talks])
    prints = fingerprints(content, [critical_tokens(text) for text in content])
    found = merge_duplicates(prints, fields, everyone, everyone, 0.7, in_memory(content), teaching)
    return {i for i, into in enumerate(found.into.tolist()) if into >= 0}, teaching


def test_the_copies_among_many_answers_to_one_long_question_are_found_at_little_cost():
    rng = random.Random(3)
    question = " ".join(texts(rng, 10))
    answers = [" ".join(texts(rng, 2)) for _ in range(200)]
    copies = [f"{answer} Test it." for answer in answers[::8]]
    gone, teaching = merged([[question, answer] for answer in (*answers, *copies)])
    assert gone == set(range(len(answers), len(answers) + len(copies)))
    assert len(teaching.asked) < 10 * len(answers), "of 25,200 pairs"


def test_a_copy_of_a_row_that_went_itself_is_nearly_what_stays():
    near = "the belt of the spindle drive is worn and slips under load"
    content = [f"{near} now", near, near]
    everyone = np.ones(3, np.bool_)
    prints = fingerprints(content, [frozenset()] * 3)
    found = merge_duplicates(prints, np.asarray([2, 1, 1]), everyone, everyone, 0.5, in_memory(content))
    assert found.into.tolist() == [-1, 0, 0]
    assert not found.exact.any()


def test_beginnings_of_conversations_with_one_first_question_go_each_into_its_own_whole():
    rng = random.Random(4)
    question = " ".join(texts(rng, 10))
    whole = [[question, *texts(rng, 4)[1:]] for _ in range(12)]
    beginnings = [t[:n] for t in whole for n in (4, 6)]
    gone, _ = merged([*beginnings, *whole])
    assert gone == set(range(len(beginnings)))


def test_roles_system_text_and_what_is_learnt_are_part_of_the_letter():
    before = (Turn("user", "a"), Turn("assistant", "b", True))
    several = {
        letters(before, "c", "d"),
        letters((), "a\nb\nc", "d"),
        letters((Turn("system", "s"), *before), "c", "d"),
        letters((before[0], Turn("assistant", "b")), "c", "d"),
    }
    assert len(several) == 4
    assert letters(before, "C!", "d") == letters(before, "c", "D.")
    one, other = (Told.of(Record(1, system, (("a", "b"),), ""), False) for system in ("", "s"))
    assert [*merge_faults(one, other, "exact_duplicate", 0.6)]
    assert [*merge_faults(one, one, "near_duplicate", 0.6)]
    assert not [*merge_faults(one, one, "exact_duplicate", 0.6)]


def test_of_a_set_of_pairs_some_are_held_out():
    component = np.repeat(np.arange(30), 2)
    chosen = choose_held_out(component, [""] * 60, [""] * 60, 6, 1)
    assert len(chosen) == 3
