"""A language model may divide a note, and nothing it says is believed unless the note says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.extraction import extraction_for, extractor
from specs.errors import InputError
from specs.project import Project
from tasks.data.extraction import Asking, Extraction, grounded, stands_in, tokens, using
from tasks.data.records import Draft, Unit
from tests.agents.fake_openai import failure, fake_openai, prose
from tests.support.raw_project import make_project, run_stage

NOTE = "Z轴下滑约2 mm，问过[姓名]师傅。抱闸线圈电阻只有8欧，换上库存抱闸就好了。"
ANSWER = Extraction(phenomenon="Z轴下滑约2mm", steps=["抱闸线圈电阻只有8欧"], repair="换上库存抱闸就好了。")


def test_what_the_note_says_is_kept_and_what_it_does_not_say_is_dropped_and_counted():
    assert grounded(NOTE, ANSWER)[1] == 0
    invented = Extraction(
        phenomenon="Z轴下滑约2 mm。主轴异响。",
        steps=["抱闸线圈电阻只有8欧", "测量电压380V"],
        repair="换上库存抱闸就好了。",
    )
    parts, dropped = grounded(NOTE, invented)
    assert (parts.phenomenon, parts.steps, dropped) == ("Z轴下滑约2 mm。", ("抱闸线圈电阻只有8欧",), 2)


@pytest.mark.parametrize("piece", ["Z轴下滑约3 mm", "电阻只有80欧", "换上抱闸", "ed", "", "。"])
def test_another_number_a_left_out_word_or_half_a_word_is_not_grounded(piece: str):
    assert not stands_in(piece, NOTE + " replaced relay")


words = st.lists(st.sampled_from(["spindle", "K7", "2", "mm", "油", "泵", "replaced", "no"]), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(words, words)
def test_every_word_that_is_kept_stands_in_the_note_in_the_same_order(note: list[str], said: list[str]):
    text, piece = " ".join(note), " ".join(said)
    parts, dropped = grounded(text, Extraction(phenomenon=piece, repair=""))
    spans = [tokens(text)[i : i + len(tokens(piece))] for i in range(len(tokens(text)))]
    assert bool(parts.phenomenon) == (tokens(piece) in spans)
    assert dropped == (0 if parts.phenomenon else 1)


def plain(text: str = NOTE) -> Draft:
    return Draft(Unit("n.md", "#1", text), "note", plain=text)


def test_a_note_without_a_grounded_repair_stays_plain_and_other_drafts_are_never_shown():
    asked: list[str] = []

    def model(text: str) -> Extraction | None:
        asked.append(text)
        return None if "nothing" in text else Extraction(phenomenon="Z轴下滑约2 mm", repair="更换编码器。")

    asking = Asking(model)
    order = Draft(Unit("o.csv", "#1"), "work_order", phenomenon="a", repair="b")
    assert [asking.draft(d) for d in (plain(), plain("nothing"), order)] == [plain(), plain("nothing"), order]
    assert asked == [NOTE, "nothing"]
    assert asking.counts == {"llm_asked": 2, "llm_without_answer": 1, "llm_pieces_dropped": 1}


def test_llm_extraction_needs_a_model_in_the_spec_and_one_that_is_connected():
    with pytest.raises(ValueError, match=r"needs agent\.model"):
        Project.model_validate(
            {"project": "p", "base_model": "b", "extraction": "llm", "sources": [{"kind": "notes", "path": "n"}]}
        )
    with pytest.raises(InputError, match="none is connected"):
        Asking.current()


def with_model(spec: Project, url: str) -> Project:
    agent = {"proposer": "llm", "model": "openai:m", "base_url": url}
    document = spec.model_dump(mode="json", exclude={"stages"}) | {"extraction": "llm", "agent": agent}
    return Project.model_validate(document)


def call(arguments: dict) -> dict:
    function = {"name": "Extraction", "arguments": json.dumps(arguments, ensure_ascii=False)}
    tool = {"id": "c1", "type": "function", "function": function}
    return {
        "status": 200,
        "message": {"role": "assistant", "content": None, "tool_calls": [tool]},
        "finish_reason": "stop",
    }


def test_the_model_of_the_spec_is_asked_through_its_server_and_odd_answers_are_none(tmp_path: Path):
    spec = make_project(tmp_path, "zh")
    with fake_openai(call(ANSWER.model_dump()), prose("no idea"), failure(400)) as server:
        ask = extractor(with_model(spec, server.url))
        assert ask(NOTE) == ANSWER
        assert ask(NOTE) is None
        assert ask(NOTE) is None
    assert NOTE in json.dumps(server.requests[0], ensure_ascii=False)


def test_the_stage_asks_about_plain_notes_only_sends_masked_text_and_tells_what_was_dropped(
    tmp_path: Path, tiny_model: Path
):
    spec = make_project(tmp_path, "zh")
    notes = tmp_path / "raw" / "notes.md"
    notes.write_text(
        notes.read_text("utf-8") + "\n\n问过张师傅，Z轴下滑约2 mm。抱闸线圈只有8欧，库存抱闸装上去就没事了。\n", "utf-8"
    )
    answer = Extraction(phenomenon="Z轴下滑约2 mm。", steps=["测量了电压"], repair="库存抱闸装上去就没事了。")
    seen: list[str] = []

    def model(text: str) -> Extraction:
        seen.append(text)
        return answer

    document = spec.model_dump(mode="json", exclude={"stages"}) | {
        "extraction": "llm",
        "agent": {"proposer": "llm", "model": "openai:m"},
    }
    with using(model):
        result = run_stage(tmp_path, Project.model_validate(document), tiny_model, tmp_path / "out")
    assert seen
    assert all("张" not in text for text in seen)
    assert any("[姓名]" in text for text in seen)
    assert any("原文中没有、已丢弃的语言模型语句" in note for note in result.notes)
    import pyarrow.parquet as pq

    samples = pq.read_table(tmp_path / "out" / "artifacts" / "samples.parquet").to_pylist()
    assert [s["repair"] for s in samples if s["kind"] == "note" and s["phenomenon"] == "Z轴下滑约2 mm。"] == [
        answer.repair
    ]


def test_nothing_is_connected_for_other_stages_or_without_the_setting(tmp_path: Path):
    spec = make_project(tmp_path, "en")
    with extraction_for(spec, "data"), pytest.raises(InputError):
        Asking.current()
    with extraction_for(with_model(spec, "http://127.0.0.1:9"), "train"), pytest.raises(InputError):
        Asking.current()
