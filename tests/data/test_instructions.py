"""Existing instruction data: each record becomes a sample with all its turns, or says why it does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data.conversations import Unusable, conversation_of
from tasks.data.instructions import _draft
from tasks.data.reading import read_sources
from tasks.data.records import Intake, Unit
from tasks.verify import raw_instructions


def said(*texts: str, first: str = "user") -> list[dict[str, str]]:
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


CHAT = {
    "messages": [{"role": "system", "content": "Be brief."}, *said("Why 0042?", "The belt.", "And then?", "Oil it.")]
}
SHARE = {"conversations": [{"from": "human", "value": "什么是G54？"}, {"from": "gpt", "value": "工件坐标系。"}]}
ALPACA = {"instruction": "Explain", "input": "SV0401", "output": "The servo is off.", "system": "Be brief."}


def test_the_history_of_an_alpaca_record_is_turns_before_it():
    found = conversation_of({**ALPACA, "history": [["Hello", "Hi"]]})
    assert [*found.turns] == [("Hello", "Hi"), ("Explain\nSV0401", "The servo is off.")]
    assert conversation_of(ALPACA).system == "Be brief."


def test_parts_that_are_text_are_joined_and_an_unanswered_question_is_left():
    parts = [{"type": "text", "text": "Why"}, {"type": "text", "text": "loud?"}]
    found = conversation_of(
        {"messages": [{"role": "user", "content": parts}, *said("Belt.", "So?", first="assistant")]}
    )
    assert (found.turns, found.unanswered) == ((("Why\nloud?", "Belt."),), True)


UNUSABLE: dict[str, Any] = {
    "not_a_json_object": [1],
    "unknown_format": {"text": "plain"},
    "no_question_or_no_answer": {"messages": said("a", " ")},
    "begins_with_an_answer": {"messages": said("Hello", "x", "y", first="assistant")},
    "questions_and_answers_do_not_alternate": {"messages": [*said("a"), *said("b", "c")]},
    "unknown_role": {"messages": [{"role": "critic", "content": "x"}]},
    "calls_a_tool": {"messages": [*said("a"), {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]},
    "system_text_in_between": {"messages": [*said("a", "b"), {"role": "system", "content": "c"}, *said("d", "e")]},
    "unknown_weight": {"messages": [*said("a"), {**said("", "b")[1], "weight": 0.5}]},
    "no_answer_learnt": {"messages": [*said("a"), {**said("", "b")[1], "weight": 0}]},
    "not_only_text": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
}


@pytest.mark.parametrize("reason", UNUSABLE)
def test_what_is_no_conversation_says_why(reason: str):
    with pytest.raises(Unusable, match=f"^{reason}$"):
        conversation_of(UNUSABLE[reason])


RECORDS = [CHAT, SHARE, ALPACA, *UNUSABLE.values(), {"messages": said("a \ud800", "b", "c", "d")}]


def write(path: Path, records: list[Any]) -> Path:
    text = json.dumps({"version": 1, "data": records}) if ".json" in path.name and ".jsonl" not in path.name else ""
    text = text or "\n".join([*map(json.dumps, records), "not json", ""])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def intake_of(folder: Path, path: str) -> Intake:
    spec = {"project": "p", "base_model": "m", "sources": [{"kind": "instructions", "path": path}]}
    return read_sources(folder, Project.model_validate(spec), DataParameters(), len, Quiet())


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz"])
def test_every_record_is_accounted_for_and_the_verifier_counts_the_same_units(tmp_path: Path, name: str):
    path = write(tmp_path / name, RECORDS)
    intake = intake_of(tmp_path, name)
    units = [*(d.unit for d in intake.drafts), *(f.unit for f in intake.fates)]
    assert sorted(u.location for u in units) == sorted(r.location for r in raw_instructions.records_of(path, "utf-8"))
    assert [d.unit.location for d in intake.drafts] == ["#1", "#2", "#3"]
    reasons = [f.reason for f in intake.fates]
    assert reasons[: len(UNUSABLE) + 1] == [*UNUSABLE, "damaged_text"]
    assert intake.counts["records_of_several_turns"] == 1


CALLS: dict[str, dict[str, Any]] = {
    "function_call beside a text": {"messages": [*said("a"), {**said("", "b")[1], "function_call": {"name": "f"}}]},
    "the result of a function": {"messages": [*said("a"), {"role": "function", "content": "x"}]},
    "ShareGPT": {"conversations": [{"from": "human", "value": "a"}, {"from": "function_call", "value": "{}"}]},
}


@pytest.mark.parametrize("form", CALLS)
def test_a_tool_call_of_any_form_goes_to_quarantine(form: str):
    with pytest.raises(Unusable, match=r"^calls_a_tool$"):
        conversation_of(CALLS[form])


def weighted(*weights: int | None) -> dict[str, Any]:
    turns = said(*(f"{'qa'[n % 2]}{n // 2}" for n in range(2 * len(weights))))
    return {"messages": [t | ({} if n % 2 == 0 else {"weight": weights[n // 2]}) for n, t in enumerate(turns)]}


@pytest.mark.parametrize("last_only", [False, True])
@given(st.lists(st.sampled_from([0, 1, 1.0, None]), min_size=1, max_size=6))
def test_an_answer_of_weight_0_is_never_learnt_and_every_other_one_is(last_only: bool, weights: list[int | None]):
    record = weighted(*weights)
    learnt = [f"a{n}" for n, weight in enumerate(weights) if weight != 0]
    if not learnt:
        with pytest.raises(Unusable, match=r"^no_answer_learnt$"):
            conversation_of(record)
        return
    draft = _draft(Unit("a.jsonl", "#1"), conversation_of(record), last_only)
    found = [*(t.text for t in draft.turns() if t.learnt), draft.plain]
    assert found == (learnt[-1:] if last_only else learnt)
    assert len(draft.earlier) == 2 * int(draft.plain[1:]), "what stands before an answer is kept to be read"
    again = raw_instructions.record_of(1, "", record)
    assert [a for n, (_, a) in enumerate(again.pairs) if n not in again.unlearnt] == learnt


def test_fields_that_are_not_read_are_counted_by_name(tmp_path: Path):
    turns = [{**said("a")[0], "name": "Tom"}, {**said("", "b")[1], "reasoning_content": "c", "tool_calls": None}]
    write(tmp_path / "a.jsonl", [{"messages": turns, "tools": [{"name": "f"}], "id": 0, "note": ""}, ALPACA])
    assert intake_of(tmp_path, "a.jsonl").keys_not_read == {"name": 1, "reasoning_content": 1, "tools": 1, "id": 1}


def test_a_history_of_words_is_no_history_of_pairs():
    for before in (["ab", "cd"], [["a"]], [("a", "b", "c")]):
        with pytest.raises(Unusable, match=r"^unknown_format$"):
            conversation_of({**ALPACA, "history": before})


def test_damage_in_a_question_that_nothing_answers_costs_nothing(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", [{"messages": said("a b", "c d", "e \ud800")}])
    (record,) = [r for r in raw_instructions.records_of(path, "utf-8") if r.pairs]
    (draft,) = intake_of(tmp_path, "a.jsonl").drafts
    assert record.pairs == ((draft.prompt, draft.plain),) == (("a b", "c d"),)


def test_parquet_is_read_with_its_nested_messages(tmp_path: Path):
    pq.write_table(
        pa.table({"messages": [said("a b", "c d", "e f", "g h"), said("x y", "z w")]}), tmp_path / "a.parquet"
    )
    intake = intake_of(tmp_path, "a.parquet")
    assert [(d.earlier, d.plain) for d in intake.drafts] == [(("a b", "c d"), "g h"), ((), "z w")]
    places = [d.unit.location for d in intake.drafts]
    assert places == [r.location for r in raw_instructions.records_of(tmp_path / "a.parquet", "parquet")]
    share = [{"instruction": "Explain it", "input": None, "output": "So it is."}]
    pq.write_table(pa.Table.from_pylist(share), tmp_path / "b.parquet")
    assert [d.prompt for d in intake_of(tmp_path, "b.parquet").drafts] == ["Explain it"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"a": [1]}', '"x"', "[1"])
def test_a_file_without_records_is_a_source_error(tmp_path: Path, text: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SourceError):
        intake_of(tmp_path, "a.json")
