"""The story of a run: differences first, who decided what and how, expected beside actual, in both languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.audit import anchor, list_events, read_anchor, read_history, show
from flows.audit.history import BULK
from flows.audit.story import KEEP
from flows.ledger.upkeep import record_upkeep
from specs.base import Language
from specs.canonical import sha256_file
from specs.errors import InputError
from specs.events import PAYLOADS, DataRemoved, FallbackTaken, RemovedFile, RunClosed
from tests.support.run_maker import RunMaker


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    maker = RunMaker(tmp_path_factory.mktemp("eventful")).start().until_gate("dry_run")
    maker.decide("rework", comment="see [link=x]machine 3[/link]", authentication="unauthenticated")
    maker.until_gate("train")
    maker.decide(edits={"lr": "1e-4"})
    maker.work(fail="out of memory")
    maker.work(loss=2.0)
    maker.until_gate("evaluate")
    maker.decide(override=True, comment="known")
    return maker.to_the_end()


def story(maker: RunMaker, language: Language = "en") -> str:
    return show(read_history(maker.ledger, "r1", maker.run_dir, keep=KEEP), language)


def test_differences_come_first(eventful: RunMaker):
    text = story(eventful)
    head = text.split("\nData\n")[0]
    for line in (
        "Run r1 of project demo: finished",
        "Solo policy: every decision is self-approved.",
        "Training 1 failed: WorkerError: out of memory",
        "Training 2: loss is 2 nats/token, should be < 1 nats/token (blocking)",
        "me asked for rework at gate Dry run: see [link=x]machine 3[/link]",
        "me set training.lr = 0.0001 at gate Training",
        "me overrode a failed blocking criterion at gate Evaluation: known",
    ):
        assert line in head


def test_every_decision_says_how_it_was_authenticated(eventful: RunMaker):
    text = story(eventful)
    assert "(unauthenticated: the name is a claim, self-approved)" in text
    assert text.count("(confirmed at a terminal, self-approved)") == 6


def test_expected_stands_beside_actual(eventful: RunMaker):
    lines = story(eventful).splitlines()
    loss = [line.split() for line in lines if line.strip().startswith("loss ") and "FAILED" in line]
    assert loss == [["loss", "0.4", "nats/token", "2", "nats/token", "<", "1", "nats/token", "FAILED"]]


def test_a_quiet_run_says_that_nothing_differed(tmp_path: Path):
    maker = RunMaker(tmp_path).start().to_the_end()
    assert "every criterion passed" in story(maker)


def test_the_chinese_story_says_the_same_in_chinese(eventful: RunMaker):
    text = story(eventful, "zh")
    for words in ("与预期不同之处", "未认证：姓名仅为声明", "自批", "强制放行了未通过的阻断准则", "预期", "已完成"):
        assert words in text
    assert "self-approved" not in text
    assert len(text.splitlines()) == len(story(eventful).splitlines())


def test_a_run_whose_files_are_gone_can_still_be_told(tmp_path: Path):
    import shutil

    maker = RunMaker(tmp_path).start().until_gate("dry_run")
    shutil.rmtree(maker.run_dir)
    assert "its evidence cannot be read" in story(maker)


def test_events_are_listed_by_kind(eventful: RunMaker):
    decisions = list(list_events(eventful.ledger, "r1", ["decision.recorded"]))
    assert [d["payload"]["decision"]["choice"] for d in decisions].count("rework") == 1
    assert {d["kind"] for d in decisions} == {"decision.recorded"}
    everything = list(list_events(eventful.ledger, "r1"))
    assert [e["sequence"] for e in everything] == list(range(1, len(everything) + 1))
    json.dumps(everything)
    assert list(list_events(eventful.ledger, "r1", last=3)) == everything[-3:]
    with pytest.raises(InputError, match="is no kind of event"):
        list_events(eventful.ledger, "r1", ["decision.record"])


def test_an_anchor_is_read_back_and_anything_else_refused(eventful: RunMaker, tmp_path: Path):
    kept = tmp_path / "anchor.json"
    written = anchor(eventful.ledger, "r1", kept)
    assert read_anchor(kept) == written
    assert written.head == eventful.ledger.head("r1")
    with pytest.raises(InputError, match="cannot read"):
        read_anchor(tmp_path / "missing.json")
    kept.write_text("{}")
    with pytest.raises(InputError, match="is not an anchor"):
        read_anchor(kept)


def test_of_many_equal_matters_the_first_are_told_and_the_rest_counted(tmp_path: Path):
    maker = RunMaker(tmp_path).start()
    many = [
        FallbackTaken(stage="data", what=f"row {number}", why="no date", instead="read as text") for number in range(50)
    ]
    maker.ledger.append_all("r1", many, "gatewright", maker.fence)
    lines = [line for line in story(maker).splitlines() if "row" in line or "more" in line]
    assert len(lines) == 21
    assert "30 more: gatewright audit list --kind fallback.taken" in lines[-1]


def test_a_million_events_of_a_bulk_kind_are_counted_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flows.audit.history.KEPT_OF_A_BULK_KIND", 3)
    maker = RunMaker(tmp_path).start()
    fallback = FallbackTaken(stage="data", what="a date", why="no such day", instead="text")
    maker.ledger.append_all("r1", [fallback] * 10, "gatewright", maker.fence)
    kept = read_history(maker.ledger, "r1", maker.run_dir, keep=KEEP)
    assert (len(list(kept.of(FallbackTaken))), kept.kinds["fallback.taken"]) == (3, 10)
    assert list(read_history(maker.ledger, "r1", maker.run_dir).of(FallbackTaken)) == []
    assert kept.state == maker.state


def test_every_bulk_kind_exists():
    assert PAYLOADS.keys() >= BULK


def test_what_was_closed_lost_and_removed_is_told(tmp_path: Path):
    maker = RunMaker(tmp_path).start().until_gate("dry_run")
    file = maker.run_dir / "01-data" / "001" / "artifacts" / "result.txt"
    gone = RemovedFile(path="01-data/001/artifacts/result.txt", sha256=sha256_file(file), bytes=file.stat().st_size)
    record_upkeep(maker.ledger, "demo", DataRemoved(run="r1", reason="somebody asked", files=[gone]), "me")
    maker.ledger.append("r1", RunClosed(reason="the disk died", lost=["checkpoints"]), "me", maker.fence)
    text = story(maker)
    assert "me closed the run where it stood: the disk died" in text
    assert "it was lost: checkpoints" in text
    assert "1 files were removed on request: somebody asked" in text
    assert "应要求删除了 1 个文件：somebody asked" in story(maker, "zh")
