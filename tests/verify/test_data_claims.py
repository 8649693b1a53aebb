"""What samples say of their sources, and what the artifacts claim of themselves: every planted fault is named."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.criteria import Metric
from specs.project import Project
from tasks.data.similarity import critical_tokens, normalise
from tasks.prompts import PromptTemplate
from tasks.turns import turns_of
from tasks.verify.data import metrics
from tasks.verify.data_opposites import opposed
from tasks.verify.data_review import chance_allows
from tasks.verify.data_words import in_order, same_code, says_otherwise, without_marks
from tests.support.raw_project import EXACT_ROW, NEAR_ROW, VARIANT_ROWS, make_project, run_stage, stage_context

Rows = list[dict[str, Any]]
Measured = dict[str, Metric]
CONVERSATIONS = [
    {"instruction": "Why does the coolant pump hum?", "input": "It is new.", "output": "Bleed the line, then restart."},
    {
        "messages": [
            {"role": "system", "content": "Answer shortly."},
            {"role": "user", "content": "What does the red lamp of the chiller mean?"},
            {"role": "assistant", "content": "The water is above 35 degrees."},
            {"role": "user", "content": "And the yellow one? Call 13800138000."},
            {"role": "assistant", "content": "The filter must be changed within 40 hours, not later."},
        ]
    },
    {"messages": [{"role": "user", "content": "Only a question"}]},
]


@pytest.fixture(scope="session")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """(attempt, context) of a finished run of six kinds of sources."""
    folder = tmp_path_factory.mktemp("claims")
    spec = make_project(folder, "en").model_dump(mode="json", exclude={"stages"})
    text = "".join(json.dumps(record) + "\n" for record in CONVERSATIONS)
    (folder / "raw" / "chats.jsonl").write_text(text, encoding="utf-8")
    spec["sources"].append({"kind": "instructions", "path": "raw/chats.jsonl"})
    project = Project.model_validate(spec)
    run_stage(folder, project, tiny_model, folder / "out")
    return folder / "out", stage_context(folder, project, tiny_model, folder / "out").model_dump(mode="json")


@pytest.fixture
def spoilt(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> Callable[..., Measured]:
    """`spoilt(table, change)` changes the rows of one artifact in a copy of the attempt and measures again."""

    def spoil(name: str, change: Callable[[Rows], Rows | None]) -> Measured:
        shutil.copytree(run[0], tmp_path / "attempt")
        path = tmp_path / "attempt" / "artifacts" / f"{name}.parquet"
        table = pq.read_table(path)
        rows = table.to_pylist()
        rows = change(rows) or rows
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
        return metrics(tmp_path / "attempt", {}, run[1])

    return spoil


def say(sample: dict[str, Any], template: PromptTemplate, **texts: str) -> None:
    """Change what a sample says so that nothing about the sample itself gives it away."""
    sample |= texts
    said = sample["prompt"], sample["answer"], turns_of(sample)
    sample |= {"n_tokens": len(template.encode(*said).input_ids), "text": template.text(*said)}


def test_an_honest_run_has_no_unfounded_claim(run):
    found = metrics(run[0], {}, run[1])
    assert {n: (found[n].value, found[n].reason) for n in ("claims_unfounded", "samples_without_provenance")} == {
        "claims_unfounded": (0, ""),
        "samples_without_provenance": (0, ""),
    }
    assert found["rows_unaccounted"].value == found["code_variants_lost"].value == 0


ALTERED = (
    ("note", "bearing", "encoder"),
    ("instruction", "the line", "the tank"),
    ("instruction", ", not later", ", later"),
    ("sensor", "Remedy: ", "Remedy: do not "),
)


def test_every_altered_answer_is_named_with_its_place(spoilt, tiny_model):
    template = PromptTemplate.load(tiny_model)
    places: set[str] = set()

    def change(rows: Rows) -> None:
        for kind, before, after in ALTERED:
            untouched = [r for r in rows if f"{r['source']}|{r['location']}" not in places]
            one = next(r for r in untouched if r["kind"] == kind and before in r["answer"])
            columns = {"repair": f"do not {one['repair']}"} if kind == "sensor" else {}
            columns |= {"repair": one["repair"].replace(before, after)} if kind == "note" else {}
            say(one, template, answer=one["answer"].replace(before, after), **columns)
            places.add(f"{one['source']}|{one['location']}")

    found = spoilt("samples", change)["samples_without_provenance"]
    assert found.value == len(places) >= 4
    assert all(place in found.reason for place in places)


def test_an_altered_turn_before_the_question_is_named(spoilt, tiny_model):
    template = PromptTemplate.load(tiny_model)

    def change(rows: Rows) -> None:
        one = next(r for r in rows if r["earlier"])
        one["earlier"][2]["text"] = "The water is below 35 degrees."
        say(one, template)

    found = spoilt("samples", change)["samples_without_provenance"]
    assert (found.value, found.reason) == (1, "raw/chats.jsonl|#2: its answer is not that of the record")


def test_a_run_whose_samples_know_no_turns_is_read_as_it_was_made(run, tiny_model, tmp_path):
    """Older runs made a sample of each answer, with the turns before it as text in its prompt."""
    template = PromptTemplate.load(tiny_model)
    shutil.copytree(run[0], tmp_path / "attempt")
    folder = tmp_path / "attempt" / "artifacts"
    rows, ledger = (pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("samples", "row_ledger"))
    for row in [r for r in rows if r["earlier"]]:
        rows.remove(row)
        system, asked, told = (turn["text"] for turn in row["earlier"])
        prompts = [
            f"{system}\n{asked}",
            f"{system}\nQuestion 1: {asked}\nAnswer 1: {told}\nQuestion 2: {row['prompt']}",
        ]
        for number, (prompt, answer) in enumerate(zip(prompts, (told, row["answer"]), strict=True), start=1):
            place = {"location": f"record 2#{number}", "sample_id": f"old{number}"}
            rows.append({**row, **place, "earlier": None, "prompt": prompt, "answer": answer})
            say(rows[-1], template)
            fate = next(r for r in ledger if (r["source"], r["location"]) == (row["source"], "#2"))
            ledger.append({**fate, **place, "sample_ids": [place["sample_id"]]})
        ledger.remove(fate)
    table = pa.Table.from_pylist(rows, schema=pq.read_schema(folder / "samples.parquet"))
    pq.write_table(table.drop_columns(["earlier"]), folder / "samples.parquet")
    schema = pq.read_schema(folder / "row_ledger.parquet")
    pq.write_table(
        pa.Table.from_pylist([{n: r[n] for n in schema.names} for r in ledger], schema=schema),
        folder / "row_ledger.parquet",
    )
    found = metrics(tmp_path / "attempt", {}, run[1])
    names = ("samples_without_provenance", "rows_unaccounted", "samples_not_trainable")
    assert [(found[n].value, found[n].reason) for n in names] == [(0, "")] * 3


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("note", "Checked the grease", "grease the Checked"), ("sensor", "(", "(almost "), ("work_order", "(", "(not ")],
)
def test_words_in_another_order_and_meanings_of_no_table_are_named(spoilt, tiny_model, kind, before, after):
    template = PromptTemplate.load(tiny_model)

    def change(rows: Rows) -> None:
        one = next(r for r in rows if r["kind"] == kind and before in r["prompt"] + r["answer"])
        texts = {n: one[n].replace(before, after, 1) for n in ("prompt", "answer", "steps")}
        say(one, template, **texts)

    assert spoilt("samples", change)["samples_without_provenance"].value == 1


def test_every_changed_column_is_named(spoilt):
    changed: list[str] = []

    def change(rows: Rows) -> None:
        for kind in ("work_order", "fault_code", "note", "sensor"):
            mine = [r for r in rows if r["kind"] == kind and r["prompt"]]
            for one, column in zip(mine, ("device_model", "fault_type", "phenomenon", "steps", "repair"), strict=False):
                one[column] += " 7"
                changed.append(column)

    found = spoilt("samples", change)["samples_without_provenance"]
    assert set(changed) == {"device_model", "fault_type", "phenomenon", "steps", "repair"}
    assert found.value >= len(changed)


def test_another_machine_in_column_and_prompt_is_named(spoilt, tiny_model):
    template = PromptTemplate.load(tiny_model)
    kinds = ("work_order", "sensor", "manual", "instruction")

    def change(rows: Rows) -> None:
        for kind in kinds:
            one = next(r for r in rows if r["kind"] == kind)
            prompt = one["prompt"].replace(one["device_model"] or "\0", "VMC-999")
            say(one, template, device_model="VMC-999", prompt=prompt)

    found = spoilt("samples", change)["samples_without_provenance"]
    assert found.value == len(kinds)
    assert "VMC-999" in found.reason


def test_numbers_and_labels_of_windows_that_are_not_those_of_the_log_are_named(spoilt):
    def change(rows: Rows) -> None:
        rows[4]["mean"] += 0.01
        for row in rows:
            row["fault_type"] = row["fault_type"].replace("2", "3")

    reason = spoilt("windows", change)["claims_unfounded"].reason
    assert "are not those of its rows" in reason
    assert "next event" in reason


def orders(rows: Rows) -> dict[int, dict[str, Any]]:
    return {int(r["location"].rpartition("#")[2]): r for r in rows if r["source"].startswith("raw/orders")}


def test_the_reason_of_a_merge_is_checked(spoilt):
    def change(rows: Rows) -> None:
        orders(rows)[EXACT_ROW]["reason"] = "near_duplicate"
        orders(rows)[NEAR_ROW]["reason"] = ""
        next(r for r in rows if r["fate"] == "kept" and r["source"] == "raw/manual.md")["cut_tokens"] = 3

    found = spoilt("row_ledger", change)["claims_unfounded"]
    assert found.value == 3
    assert all(f"#{number}:" in found.reason for number in (EXACT_ROW, NEAR_ROW))
    assert "no cut" in found.reason


def test_a_merge_of_two_rows_that_are_not_alike_is_named(spoilt):
    def change(rows: Rows) -> None:
        mine, other = orders(rows)[NEAR_ROW], orders(rows)[19]
        mine["merged_into"] = f"{other['source']}|{other['location']}"

    found = spoilt("row_ledger", change)
    assert found["claims_unfounded"].value + found["code_variants_lost"].value == 1


def test_a_list_without_the_variants_is_named_although_the_summary_agrees(run, tmp_path):
    shutil.copytree(run[0], tmp_path / "attempt")
    artifacts = tmp_path / "attempt" / "artifacts"
    table = pq.read_table(artifacts / "review_pairs.parquet")
    pq.write_table(table.slice(0, 0), artifacts / "review_pairs.parquet")
    summary = json.loads((artifacts / "summary.json").read_bytes())
    (artifacts / "summary.json").write_text(json.dumps({**summary, "review_pairs": 0}))
    found = metrics(tmp_path / "attempt", {}, run[1])["claims_unfounded"]
    assert found.value >= len(VARIANT_ROWS)
    assert "not on the review list" in found.reason


def test_pairs_on_the_review_list_that_do_not_hold_are_named(spoilt):
    def change(rows: Rows) -> None:
        for row, wrong in zip(rows, ({"why": ""}, {"similarity": 0.99}, {"text_b": "something else"}), strict=False):
            row.update(wrong)

    assert spoilt("review_pairs", change)["claims_unfounded"].value == 3


def test_an_altered_text_in_quarantine_is_named(spoilt):
    def change(rows: Rows) -> None:
        for row in rows:
            row["original"] = row["original"].replace("VMC-850", "VMC-860").replace("question", "answer")

        rows[0]["reason"] = "ocr_unsure"

    found = spoilt("quarantine", change)["claims_unfounded"]
    assert found.value == 5
    assert "quarantine" in found.reason


def test_a_sample_that_went_from_eval_to_train_is_named(spoilt):
    def change(rows: Rows) -> None:
        held = [r for r in rows if r["split"] == "eval"]
        held[1]["component"] = held[2]["component"]
        held[0]["split"] = held[1]["split"] = "train"
        rows[0]["bucket"] = 5 if rows[0]["bucket"] != 5 else 0

    reason = spoilt("samples", change)["claims_unfounded"].reason
    assert "on the other side of the split" in reason
    assert "bucket" in reason
    assert "samples is not what the tables hold" in reason


def test_one_sample_that_went_to_the_other_side_is_named_though_it_resembles_no_other(spoilt):
    moved: list[str] = []

    def change(rows: Rows) -> None:
        groups = Counter(r["component"] for r in rows)
        for side, other in (("eval", "train"), ("train", "eval")):
            one = next(r for r in rows if r["split"] == side and groups[r["component"]] == 1)
            moved.append(f"{one['source']}|{one['location']}")
            one["split"] = other
            groups[one["component"]] = 0

    found = spoilt("samples", change)["claims_unfounded"]
    assert found.value == 2
    assert all(place in found.reason for place in moved)


def test_cut_tokens_are_counted_again(tiny_model, tmp_path):
    words = "the spindle of unit {} makes a noise like gravel in a drum when it turns fast and then slow"
    rows = [f"{words.format(n)}{' and hums' * 40 if n == 5 else ''},Replaced bearing {n * 7}\n" for n in range(1, 61)]
    (tmp_path / "a.csv").write_text("Problem,Repair\n" + "".join(rows))
    columns = {"phenomenon": "Problem", "repair": "Repair"}
    source = {"kind": "work_orders", "path": "a.csv", "columns": columns}
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    template = PromptTemplate.load(tiny_model)
    longest = max(
        len(template.encode(f"Problem: {row}\nWhat should be checked, and how is it repaired?", "").input_ids)
        for number, row in enumerate(rows, start=1)
        if number != 5
    )
    parameters = {"max_length": longest + 20, "over_long": "truncate_prompt"}
    run_stage(tmp_path, spec, tiny_model, tmp_path / "out", **parameters)
    context = stage_context(tmp_path, spec, tiny_model, tmp_path / "out", **parameters).model_dump(mode="json")
    honest = metrics(tmp_path / "out", {}, context)
    assert (honest["claims_unfounded"].value, honest["samples_without_provenance"].value) == (0, 0)
    path = tmp_path / "out" / "artifacts" / "row_ledger.parquet"
    ledger = pq.read_table(path).to_pylist()
    assert ledger[4]["cut_tokens"] > 0
    ledger[4]["cut_tokens"] -= 1
    pq.write_table(pa.Table.from_pylist(ledger, schema=pq.read_schema(path)), path)
    assert "said to be cut" in metrics(tmp_path / "out", {}, context)["claims_unfounded"].reason


WORDS = st.lists(st.sampled_from(["pump", "leaks", "10", "01", "轴", "承", "replaced", "not"]), min_size=2, max_size=12)


@given(WORDS, st.data())
def test_words_that_changed_places_are_out_of_order(words: list[str], data: st.DataObject):
    shuffled = data.draw(st.permutations(words))
    assert in_order(" ".join(shuffled), " ".join(words)) == (shuffled == words)
    assert not says_otherwise(" ".join(words), " ".join(words), 0, False, "")


@given(WORDS, st.integers(0, 11), st.integers(1, 3))
def test_masked_words_may_be_missing_and_no_others(words: list[str], at: int, count: int):
    at = min(at, len(words) - 1)
    masked = [*words[:at], "[NAME]", *words[at + count :]]
    assert in_order(" ".join(masked), " ".join(words))
    assert not in_order(" ".join([*words[:at], *words[at + 1 :]]), " ".join(words))


SPOKEN = st.lists(
    st.sampled_from(
        [
            "pump",
            "Left",
            "on",
            "won't",
            "won:t",
            "isn’t",
            "not",
            "No. 5",
            "no",
            "first",
            "阀",
            "左侧",
            "打开",
            "未",
            "过高",
        ]
    ),
    min_size=1,
    max_size=8,
)


@given(SPOKEN, st.randoms(use_true_random=False), st.sampled_from([" ", ", ", "; "]))
def test_what_the_stage_may_merge_is_no_opposite_for_the_verifier(words, random, glue):
    other = list(words)
    random.shuffle(other)
    a, b = " ".join(words), glue.join(other)
    if critical_tokens(normalise(a)) == critical_tokens(normalise(b)):
        assert not opposed(a, b) or not opposed(without_marks(a), without_marks(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("valve is open", "valve is closed"),
        ("spindle starts", "spindle does not start"),
        ("主轴左侧漏油", "主轴右侧漏油"),
        ("压力过高", "压力过低"),
        ("未更换轴承", "更换轴承"),
    ],
)
def test_opposites_and_denials_are_told_apart(a: str, b: str):
    assert opposed(a, b)
    assert not opposed(a, f"{a}.")


def test_codes_are_the_same_however_they_are_written():
    assert same_code("ALM-0012", "alm 0012")
    assert same_code("报警 E-01", "E01")
    assert not same_code("E01", "E10")
    assert not same_code("", "E10")


def test_chance_excuses_few_and_never_all():
    assert chance_allows(0.0) == 0
    assert chance_allows(1e-7) == 0
    assert 1 <= chance_allows(0.01) < 5
    assert chance_allows(100.0) < 200
