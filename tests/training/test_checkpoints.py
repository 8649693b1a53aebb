"""Checkpoints are complete or not there, and none is deleted before the next one is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import StorageError, WorkerError
from tasks.training.checkpoints import MANIFEST, CheckpointStore, find_fault
from tasks.training.launch import session_notes
from tasks.training.logbook import Logbook


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"w" * 100)
    (folder / "deep").mkdir()
    (folder / "deep" / "state").write_bytes(b"s")


def store_in(folder: Path, keep: int = 2, free: int = 10**9, session: int = 1) -> CheckpointStore:
    return CheckpointStore(folder, keep, lambda _: free, session)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir())


def test_the_newest_complete_one_is_found(tmp_path):
    store = store_in(tmp_path)
    assert store.newest() == (None, [])
    for step in (3, 20, 100):
        store.publish(step, write, 100)
    newest, passed = store.newest()
    assert newest is not None
    assert (newest.step, passed) == (100, [])
    assert names(tmp_path) == ["00000020", "00000100"]


@pytest.mark.parametrize("damage", ["cut", "changed", "removed", "no manifest", "bad manifest"])
def test_a_damaged_one_is_named_left_and_the_one_before_used(damage, tmp_path):
    store = store_in(tmp_path)
    store.publish(1, write, 100)
    store.publish(2, write, 100)
    path = tmp_path / "00000002" / "weights"
    if damage == "cut":
        path.write_bytes(b"w" * 99)
    elif damage == "changed":
        path.write_bytes(b"w" * 99 + b"v")
    elif damage == "removed":
        path.unlink()
    elif damage == "no manifest":
        (tmp_path / "00000002" / MANIFEST).unlink()
    else:
        (tmp_path / "00000002" / MANIFEST).write_text("[]")
    newest, passed = store.newest()
    assert newest is not None
    assert newest.step == 1
    assert [p.name for p in passed] == ["00000002"]
    assert passed[0].reason
    assert (tmp_path / "00000002").is_dir()


def test_a_step_reached_again_replaces_nothing_but_moves_the_damaged_aside(tmp_path):
    store_in(tmp_path).publish(2, write, 100)
    (tmp_path / "00000002" / "weights").unlink()
    store_in(tmp_path, session=2).publish(2, write, 100)
    assert names(tmp_path) == ["00000002", "00000002.s2.damaged"]
    assert find_fault(tmp_path / "00000002") is None


def test_a_save_that_fails_leaves_the_last_one(tmp_path):
    store = store_in(tmp_path, keep=1)
    store.publish(1, write, 100)

    def fail(folder: Path) -> None:
        write(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="no space left"):
        store.publish(2, fail, 100)
    newest, passed = store.newest()
    assert newest is not None
    assert newest.step == 1
    assert [p.name for p in passed] == ["00000002.s1.partial"]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=5, unique_by=lambda one: one[0]), st.integers(1, 3)
)
def test_no_damage_makes_retention_delete_what_is_whole(tmp_path_factory, saved, keep):
    """Checkpoints of any steps, any of them damaged: after a resume and one more save, that save is there, with the
    whole one that it went on from where two are kept, and what was passed over too."""
    folder = tmp_path_factory.mktemp("store")
    for step, damaged in saved:
        store_in(folder, keep=9).publish(step, write, 100)
        if damaged:
            (folder / f"{step:08d}" / "weights").unlink()
    store = store_in(folder, keep=keep, session=2)
    newest, passed = store.newest()
    step = 1 + (newest.step if newest else 0)
    store.publish(step, write, 100)
    whole = sorted([s for s, damaged in saved if not damaged and s < step] + [step])
    assert all(find_fault(folder / f"{s:08d}") is None for s in whole[-min(keep, 2) :])
    left = [p.name for p in passed if p.name != f"{step:08d}"]
    assert set(left) <= set(names(folder))


def test_why_a_checkpoint_was_passed_over_is_said_in_the_language_of_the_project(tmp_path):
    store = store_in(tmp_path, keep=9)
    for step in (1, 2, 3, 4):
        store.publish(step, write, 100)
    (tmp_path / "00000004").rename(tmp_path / "00000004.s1.partial")
    (tmp_path / "00000003" / "weights").unlink()
    (tmp_path / "00000002" / MANIFEST).unlink()
    passed = [p.model_dump(mode="json") for p in store.newest()[1]]
    sessions = [{"session": 2, "from_step": 1, "passed_over": [*passed, {"name": "9", "reason": "as it was told"}]}]
    chinese, english = (session_notes(sessions, language) for language in ("zh", "en"))
    assert [note.partition("未使用检查点 ")[2] for note in chinese] == [
        "00000004.s1.partial（保存未完成）",
        "00000003（缺少 weights）",
        "00000002（清单缺失或无法读取）",
        "9（as it was told）",
    ]
    assert english[1] == "start 2: passed over checkpoint 00000003: weights is missing"


def test_nothing_is_deleted_before_the_next_is_published(tmp_path):
    seen = []

    class Watching(CheckpointStore):
        def _make_visible(self, partial: Path, target: Path) -> None:
            seen.append([n for n in names(tmp_path) if n.isdecimal()])
            super()._make_visible(partial, target)

    store = Watching(tmp_path, 1, lambda _: 10**9)
    for step in (1, 2, 3):
        store.publish(step, write, 100)
    assert seen == [[], ["00000001"], ["00000002"]]
    assert names(tmp_path) == ["00000003"]


def test_a_pinned_one_outlives_every_later_one(tmp_path):
    store = store_in(tmp_path, keep=1)
    store.publish(1, write, 100)
    store.pin(1, "the best so far")
    for step in (2, 3):
        store.publish(step, write, 100)
    assert names(tmp_path) == ["00000001", "00000003"]
    assert "the best so far" in (tmp_path / "00000001.pin").read_text()


def test_what_a_cut_off_deletion_left_is_deleted_and_never_resumed(tmp_path):
    store = store_in(tmp_path, keep=1)
    store.publish(1, write, 100)
    (tmp_path / "00000001").rename(tmp_path / "00000001.deleting")
    assert store.newest() == (None, [])
    store.publish(2, write, 100)
    assert names(tmp_path) == ["00000002"]


def test_a_line_that_a_power_loss_cut_does_not_spoil_the_next(tmp_path):
    book = Logbook(tmp_path)
    book.write("sessions.jsonl", {"session": 1})
    with (tmp_path / "sessions.jsonl").open("a") as file:
        file.write('{"session": 2, "from')
    book.drop_unfinished()
    book.write("sessions.jsonl", {"session": 2})
    assert book.read("sessions.jsonl") == [{"session": 1}, {"session": 2}]


def test_too_little_space_is_said_before_writing(tmp_path):
    store = store_in(tmp_path, free=1000)
    with pytest.raises(StorageError, match="no space for the checkpoint of step 7"):
        store.publish(7, write, 1000)
    assert names(tmp_path) == []


def test_space_for_all_planned_saves_is_asked_for_before_the_start(tmp_path):
    store = store_in(tmp_path, keep=2, free=3000)
    with pytest.raises(StorageError, match="no space for 3 checkpoints"):
        store.require_space_for_run(1000)
    store.publish(1, write, 100)
    store.require_space_for_run(1000)  # one of the three is there


def test_a_second_worker_is_refused_while_the_first_holds_the_folder(tmp_path):
    second = store_in(tmp_path).locked(wait_s=0)
    with store_in(tmp_path).locked(), pytest.raises(WorkerError, match="another worker"):
        second.__enter__()
    with store_in(tmp_path).locked(wait_s=0):
        pass


def test_the_logbook_goes_back_to_the_checkpoint_and_refuses_what_was_lost(tmp_path):
    book = Logbook(tmp_path)
    book.write("metrics.jsonl", {"step": 1, "loss": float("nan")})
    offsets = book.offsets()
    book.write("metrics.jsonl", {"step": 2})
    book.cut(offsets)
    assert book.read("metrics.jsonl") == [{"step": 1, "loss": None}]
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(WorkerError, match="0 bytes"):
        book.cut(offsets)
