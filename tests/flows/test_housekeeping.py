"""Keeping house loses nothing that is recorded, and every deletion is recorded itself."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from flows.audit import verify
from flows.cleaning import parse_age, parse_bytes
from flows.ledger import Ledger
from flows.ledger.chain import verify_chain
from flows.ledger.lease import process_start, this_process
from flows.ledger.upkeep import chain_of, stored_upkeep, upkeep_of
from flows.ledgers import ledger_of_run
from flows.removal import removed_files
from flows.workspace import Workspace, ledger_url
from specs.errors import InputError
from tests.support import light_run
from tests.support.cli import called

pytestmark = pytest.mark.usefixtures("light_stages")

PERSON = "Wáng Xiǎomíng 王小明"


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A light project whose only run is finished."""
    light_run.HOW["workers"] = False
    project = light_run.make_project(tmp_path_factory.mktemp("house") / "p")
    assert light_run.complete(project).ending == "finished"
    light_run.HOW["workers"] = True
    return project


@pytest.fixture
def project(finished_once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(finished_once, tmp_path / "p")
    return tmp_path / "p"


def files(folder: Path) -> dict[str, bytes]:
    """Every file but the ledger's."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and ".gatewright" not in p.parts)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def write(path: Path, text: str = "left") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# ---- gc


def littered(project: Path) -> set[str]:
    """Put everything there that may go; returns the paths."""
    write(project / "runs/r1/02-dry_run/002.partial-left-1/artifacts/x.txt")
    write(project / "runs/r1/release.partial/adapter.bin")
    write(project / "runs/r1/proposals/abc.json.part")
    write(project / "runs/never/spec.json", "{}")
    write(project / "ungated/20260101-000000/02-dry_run/001/evidence.json")
    return {
        "runs/r1/02-dry_run/002.partial-left-1",
        "runs/r1/release.partial",
        "runs/r1/proposals/abc.json.part",
        "runs/r1/checkpoints/train-001",
        "runs/never",
        "ungated/20260101-000000",
    }


def test_gc_shows_first_and_deletes_only_what_nothing_refers_to(project: Path):
    kept = {n: d for n, d in files(project).items() if not n.startswith("runs/r1/checkpoints/")}
    expected = littered(project)
    shown = called("gc", "--older-than", "0", "--json", cwd=project).json
    assert {c["path"] for c in shown["candidates"]} == expected
    assert not shown["deleted"]
    assert all((project / path).exists() for path in expected)
    done = called("gc", "--older-than", "0", "--yes", "--as", "me", "--json", cwd=project).json
    assert done["freed_bytes"] == sum(c["bytes"] for c in shown["candidates"]) > 0
    assert files(project) == kept
    entries = upkeep_of(Ledger.open(ledger_url(project)), "light")
    assert {p for e in entries for p in e.payload["paths"]} == expected
    assert {e.actor for e in entries} == {"me"}
    assert called("gc", "--older-than", "0", "--json", cwd=project).json["candidates"] == []
    workspace = Workspace(project, "r1")
    assert verify(ledger_of_run(workspace), "r1", workspace.folder).ok


def test_gc_leaves_young_files_pinned_checkpoints_and_links_outside_alone(project: Path, tmp_path: Path):
    outside = write(tmp_path / "outside" / "precious.txt")
    left = write(project / "runs/r1/02-dry_run/002.partial-left-1/x.txt")
    (left.parent / "link").symlink_to(outside.parent)
    write(project / "runs/r1/checkpoints/train-001/5.pin", "the released one")
    assert called("gc", "--json", cwd=project).json["candidates"] == []
    old = 1_700_000_000
    for path in (left, left.parent):
        os.utime(path, (old, old))
    os.utime(left.parent / "link", (old, old), follow_symlinks=False)
    found = called("gc", "--yes", "--json", cwd=project).json["candidates"]
    assert [c["path"] for c in found] == ["runs/r1/02-dry_run/002.partial-left-1"]
    assert outside.exists()
    assert (project / "runs/r1/checkpoints/train-001/5/weights.bin").exists()


def test_gc_leaves_a_run_alone_that_a_process_works_on(tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    left = write(workspace.folder / "01-data/001.partial-left-1/x.txt")
    ledger = ledger_of_run(workspace)
    parent = os.getppid()
    owner = type(this_process())(this_process().host, this_process().boot, parent, process_start(parent) or "")
    with ledger.take_lease("r1", owner=owner):
        answer = called("gc", "--older-than", "0", "--yes", "--json", cwd=workspace.project_dir).json
        assert [b["run"] for b in answer["left_alone"]] == ["r1"]
        assert left.exists()
    assert called("gc", "--older-than", "0", "--yes", cwd=workspace.project_dir).code == 0
    assert not left.exists()


def test_a_quota_deletes_the_oldest_first_and_says_what_it_cannot_reach(project: Path):
    for number in range(3):
        path = write(project / f"ungated/2026010{number}/x.txt", "x" * 1000)
        for place in (path, path.parent):
            os.utime(place, (1_700_000_000 + number, 1_700_000_000 + number))
    size = called("gc", "--json", cwd=project).json["project_bytes"]
    one = called("gc", "--quota", str(size - 500), "--json", cwd=project).json
    assert [c["path"] for c in one["candidates"]] == ["ungated/20260100"]
    assert one["over_quota_bytes"] == 0
    all_of_it = called("gc", "--quota", "1KB", "--json", cwd=project).json
    assert len(all_of_it["candidates"]) == 3
    assert all_of_it["over_quota_bytes"] > 0


@pytest.mark.parametrize(("text", "value"), [("50GB", 50 * 10**9), ("1.5 MB", 1_500_000), ("10", 10), ("0", 0)])
def test_sizes_are_read_as_people_write_them(text: str, value: int):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [(parse_bytes, "much"), (parse_bytes, "5XB"), (parse_bytes, "nan"), (parse_age, "soon"), (parse_age, "")],
)
def test_what_is_no_size_and_no_age_is_refused(read: Callable[[str], object], text: str):
    with pytest.raises(InputError):
        read(text)


# ---- removal


def test_a_persons_data_is_removed_and_the_history_says_so_instead_of_damaged(project: Path):
    workspace = Workspace(project, "r1")
    table = workspace.folder / "01-data/001/artifacts/samples.parquet"
    pl.DataFrame({"text": [f"{PERSON} changed the belt"], "n": [1]}).write_parquet(table, compression="zstd")
    note = write(workspace.folder / "04-train/001/logs/worker.log", f"... {PERSON} ...")
    escaped = write(workspace.folder / "checkpoints/train-001/5/state.json", json.dumps({"who": PERSON}))
    shown = called("forget", "--containing", PERSON, "--as", "me", "--json", cwd=project).json
    found = {p.relative_to(workspace.folder).as_posix() for p in (table, note, escaped)}
    assert set(shown["found"]) == found
    assert shown["removed"] == []
    assert table.exists()
    assert called("forget", "--containing", PERSON, "--as", "me", "--yes", cwd=project).code == 2  # no reason
    done = called(
        "forget", "--containing", PERSON, "--as", "me", "-m", "asked on 3 May", "--yes", "--json", cwd=project
    )
    assert {f["path"] for f in done.json["removed"]} == found
    assert not any((workspace.folder / path).exists() for path in found)
    ledger = ledger_of_run(workspace)
    assert set(removed_files(ledger, "light", "r1")) == found
    assert verify_chain(chain_of("light"), stored_upkeep(ledger, "light")) == []
    assert verify_chain("r1", ledger.stored("r1")) == []
    assert not any(PERSON.encode() in data for data in files(project).values())


def test_verifiers_say_removed_on_request_where_it_was_and_damaged_where_it_was_not(project: Path):
    workspace = Workspace(project, "r1")
    gone = "04-train/001/artifacts/more.txt"
    words = ["forget", "--path", gone, "--as", "me", "-m", "a person asked", "--yes"]
    assert called(*words, cwd=project).code == 0
    audited = called("audit", "verify", "--json", cwd=project)
    assert audited.code == 0, audited.out
    assert f"{gone} was removed on request: a person asked" in audited.out
    verified = called("verify", "r1", "train", "--json", cwd=project)
    assert verified.code == 0, verified.out
    assert verified.json["stages"][0]["removed"] == ["artifacts/more.txt"]
    assert "removed on request" in called("verify", "r1", "train", cwd=project).out
    for name in ("more.txt", "result.json"):
        (workspace.folder / "05-evaluate/001/artifacts" / name).unlink()
        assert called("audit", "verify", cwd=project).code == 7
        assert called("verify", "r1", "evaluate", cwd=project).code == 7


def test_what_cannot_be_taken_back_is_said(tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    light_run.passage(workspace)
    light_run.decide(workspace, "reject", comment=f"{PERSON} says no")
    answer = called("forget", "--containing", PERSON, "--as", "me", "--json", cwd=workspace.project_dir).json
    assert (answer["found"], answer["in_the_record"]) == ([], [])
    assert len(answer["in_events"]) == 1


@pytest.mark.parametrize(
    "path", ["spec.json", "../../project.yaml", "/etc/passwd", "01-data/001/evidence.json", "nothing"]
)
def test_the_record_and_files_elsewhere_cannot_be_removed(project: Path, path: str):
    before = files(project)
    answer = called("forget", "--path", path, "--as", "me", "-m", "x", "--yes", cwd=project)
    assert answer.code == 2
    assert files(project) == before


# ---- backup and restore


@pytest.mark.parametrize("name", ["copy.tar", "copy.tar.gz"])
def test_a_project_moves_to_another_place_and_its_audit_stays_green(project: Path, tmp_path: Path, name: str):
    write(project / ".git" / "config")
    (project / "link").symlink_to(tmp_path)
    saved = called("backup", tmp_path / name, "--json", cwd=project)
    assert saved.code == 0, saved.err
    assert saved.json["links_left_out"] == ["link"]
    there = tmp_path / "other machine" / "p"
    assert called("restore", tmp_path / name, there, cwd=tmp_path).code == 0
    kept = {n: d for n, d in files(project).items() if not n.startswith(".git/")}
    assert files(there) == kept
    assert called("status", "--json", cwd=there).json["state"] == "finished"
    audited = called("audit", "verify", "--json", cwd=there)
    assert audited.code == 0, audited.out
    ledger = Ledger.open(ledger_url(there))
    assert [row.project_dir for row in ledger.runs()] == [there]
    assert upkeep_of(ledger, "light")[-1].kind == "project.restored"


def test_an_open_run_goes_on_where_it_was_restored(tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    assert light_run.passage(workspace).ending == "waiting"
    assert called("backup", tmp_path / "b.tar", cwd=workspace.project_dir).code == 0
    there = tmp_path / "q"
    assert called("restore", tmp_path / "b.tar", there, cwd=tmp_path).code == 0
    moved = Workspace(there, "r1")
    light_run.decide(moved)
    assert light_run.passage(moved).ending == "waiting"
    assert verify(ledger_of_run(moved), "r1", moved.folder).ok


def test_a_backup_that_was_cut_changed_or_added_to_is_refused_and_leaves_nothing(project: Path, tmp_path: Path):
    good = tmp_path / "b.tar"
    assert called("backup", good, cwd=project).code == 0
    data = good.read_bytes()
    spot = data.index(b"more of train")
    bad = {
        "cut": data[: len(data) // 2],
        "changed": data[:spot] + b"MORE" + data[spot + 4 :],
        "empty": b"",
        "no archive": b"x" * 4096,
        "outside": _with(good, "../escape.txt"),
        "absolute": _with(good, "/tmp/escape.txt"),
        "unlisted": _with(good, "runs/r1/extra.txt"),
        "twice": _with(good, "project.yaml"),
    }
    for what, content in bad.items():
        file = tmp_path / "bad.tar"
        file.write_bytes(content)
        answer = called("restore", file, tmp_path / "q", "--json", cwd=tmp_path)
        assert (answer.code, answer.json["error"]["kind"]) == (7, "VerificationFailed"), (what, answer.out)
        assert not (tmp_path / "q").exists(), what
        assert not list(tmp_path.glob("*.restoring")), what
    assert not (tmp_path / "escape.txt").exists()
    assert called("restore", tmp_path / "none.tar", tmp_path / "q", cwd=tmp_path).code == 2
    assert called("restore", good, project, cwd=tmp_path).code == 2


def _with(archive: Path, name: str) -> bytes:
    copy = archive.with_name("with.tar")
    shutil.copyfile(archive, copy)
    with tarfile.open(copy, "a") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"bad"))
    return copy.read_bytes()
