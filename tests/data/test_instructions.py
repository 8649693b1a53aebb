"""Existing instruction data: each record becomes a sample with all its turns, or says why it does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data.conversations import Unusable, conversation_of
from tasks.data.reading import read_sources
from tasks.data.records import Intake
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
    "unknown_role": {"messages": [{"role": "tool", "content": "x"}]},
    "calls_a_tool": {"messages": [*said("a"), {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]}]},
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
    assert reasons[:9] == [*UNUSABLE, "damaged_text"]
    assert intake.counts["records_of_several_turns"] == 1


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
