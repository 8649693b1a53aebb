"""A bundle is a file from somebody else: whatever is in it, the answer is a clear error or a failed step."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from flows.audit import AuditReport, anchor, diff, export, read_anchor, show, verify_bundle
from flows.audit.archive import MAX_ENTRIES, unsafe
from flows.audit.story import KEEP
from flows.audit.unpacking import unpacked
from specs.canonical import canonical_bytes, sha256_bytes
from specs.errors import GatewrightError, InputError, VerificationFailed
from tests.audit.catalogue import (
    ARTIFACTS,
    CATALOGUE,
    COLUMNS,
    DOCUMENTS,
    FROZEN,
    GAPS,
    HASHES,
    LINKS,
    NAMED,
    PROPOSALS,
    READS,
    ROW,
    SHOWN,
    TERMINAL,
)
from tests.audit.manipulations import Target
from tests.support.run_maker import RunMaker

HANDED = ("integrity", "what was handed over is whole")
Entries = dict[str, bytes]
"""Name to bytes of every entry of a bundle."""


def failed(report: AuditReport) -> set[tuple[str, str]]:
    return {(name, step.check) for name, part in report.parts.items() for step in part.steps if not step.ok}


@pytest.fixture(scope="module")
def bundle(finished: RunMaker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "run.zip"
    export(finished.ledger, "r1", finished.run_dir, path, artifacts=True)
    return path


def entries_of(path: Path) -> Entries:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def written(path: Path, entries: Entries) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            file.writestr(zipfile.ZipInfo(name), data)
    return path


def relisted(entries: Entries) -> None:
    """Make the list fit the entries, as a careful manipulator would."""
    document = json.loads(entries["bundle.json"])
    names = [name for name in entries if name != "bundle.json"]
    document["files"] = {n: {"bytes": len(entries[n]), "sha256": sha256_bytes(entries[n])} for n in names}
    lines = entries.get("events.jsonl", b"").splitlines()
    document["events"] = len(lines)
    try:
        document["head"] = json.loads(lines[-1])["hash"]
    except (IndexError, ValueError, KeyError, TypeError):
        document["head"] = None
    entries["bundle.json"] = canonical_bytes(document)


# ---- manipulations of the run, seen through its bundle

LIVE_ONLY = {
    "an event's bytes replaced by noise": "its sequence is gone with it: found as another step",
    "a column's actor changed": "a bundle has no columns",
    "a column's time changed": "a bundle has no columns",
    "a column's kind changed": "a bundle has no columns",
    "an event's number made a word": "a bundle has no columns",
    "an event's actor made a number": "a bundle has no columns",
    "a gate's round made a word": "a bundle holds no tables",
    "a decision's row added": "a bundle holds no tables",
    "a gate's row removed": "a bundle holds no tables",
    "the run's count raised": "a bundle holds no row of the run",
    "a hidden file added among the artifacts": "files that nobody listed are not exported",
    "a dangling link added among the artifacts": "files that nobody listed are not exported",
    "a released file gone": "what was there is not known to be gone: said as not verified",
    "a released file added": "files that nobody listed are not exported",
    "a decision's row changed": "a bundle holds no tables",
    "a decision's row removed": "a bundle holds no tables",
    "a gate's row changed": "a bundle holds no tables",
    "the run's state changed": "a bundle holds no row of the run",
    "the run's head changed": "a bundle holds no row of the run",
    "the run moved to another project": "a bundle holds no row of the run",
    "the tail cut": "the list is made of the events that are there: an anchor finds it",
    "rebuilt: the end left out": "as the tail cut",
    "an artifact gone": "what was there is not known to be gone: said as not verified",
    "the artifacts' folder made a link": "what lies behind a link is not exported: said as not verified",
    "an attempt's folder made a link": "what is exported are the bytes; they are the right ones",
    "an artifact replaced by a link": "links are not exported: said as not verified",
    "a file added among the artifacts": "files that nobody listed are not exported",
    "a file added in a new folder among the artifacts": "files that nobody listed are not exported",
}


def test_every_exception_is_one_of_the_catalogue():
    assert LIVE_ONLY.keys() <= CATALOGUE.keys()


@pytest.mark.parametrize("name", [n for n in CATALOGUE if n not in LIVE_ONLY])
def test_a_manipulation_of_the_run_is_found_in_its_bundle(target: Target, tmp_path: Path, name: str):
    manipulate, expected = CATALOGUE[name]
    manipulate(target)
    ledger = target.ledger()
    try:
        export(ledger, "r1", target.run_dir, tmp_path / "run.zip", artifacts=True)
    finally:
        ledger.close()
    assert expected in failed(verify_bundle(tmp_path / "run.zip"))


# ---- manipulations of the bundle itself


def edit_lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        entries["events.jsonl"] = b"".join(line + b"\n" for line in change(entries["events.jsonl"].splitlines()))
        relisted(entries)

    return edit


def edit_file(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Entries], None]:
    """Change or remove every entry whose name begins with `name`, with the list made to fit."""

    def edit(entries: Entries) -> None:
        for found in [n for n in entries if n.startswith(name)]:
            changed = change(entries.pop(found))
            if changed is not None:
                entries[found] = changed
        relisted(entries)

    return edit


def edit_list(**changes: Any) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        entries["bundle.json"] = canonical_bytes({**json.loads(entries["bundle.json"]), **changes})

    return edit


def swap_objects(entries: Entries) -> None:
    one, other = sorted(name for name in entries if name.startswith("objects/"))[:2]
    entries[one], entries[other] = entries[other], entries[one]
    relisted(entries)


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


def add(entries: Entries) -> None:
    entries["notes.json"] = b"{}"


def remove(name: str) -> Callable[[Entries], None]:
    return lambda entries: entries.pop(name) and None


BUNDLES: dict[str, tuple[Callable[[Entries], None], tuple[str, str]]] = {
    "a line changed": (edit_lines(lambda x: [x[0].replace(b"demo", b"dema"), *x[1:]]), HASHES),
    "a line dropped": (edit_lines(lambda x: [*x[:6], *x[7:]]), GAPS),
    "the first line dropped": (edit_lines(lambda x: x[1:]), LINKS),
    "two lines swapped": (edit_lines(lambda x: [*x[:6], x[7], x[6], *x[8:]]), LINKS),
    "a line doubled": (edit_lines(lambda x: [*x[:7], x[6], *x[7:]]), LINKS),
    "a line of noise": (edit_lines(lambda x: [*x[:6], b"\xff\x00", *x[7:]]), HASHES),
    "a line of a number": (edit_lines(lambda x: [*x[:6], b"7", *x[7:]]), HASHES),
    "a line of deep brackets": (edit_lines(lambda x: [*x[:6], b"[" * 200_000, *x[7:]]), HASHES),
    "a line with a body of deep brackets": (
        edit_lines(lambda x: [*x[:6], b'{"body":"' + b"[" * 200_000 + b'","hash":""}', *x[7:]]),
        HASHES,
    ),
    "a line with a body that is no text": (edit_lines(lambda x: [*x[:6], b'{"body":7,"hash":"a"}', *x[7:]]), HASHES),
    "a line with odd fields": (
        edit_lines(lambda x: [*x[:6], b'{"body":"{\\"sequence\\":[]}","hash":"a"}', *x[7:]]),
        READS,
    ),
    "a line with bad base64": (edit_lines(lambda x: [*x[:6], b'{"body_base64":"?","hash":"a"}', *x[7:]]), HASHES),
    "no line at all": (edit_lines(lambda x: []), GAPS),
    "the tail cut, the list as it was": (
        lambda e: e.update({"events.jsonl": b"\n".join(e["events.jsonl"].splitlines()[:-3]) + b"\n"}),
        ROW,
    ),
    "the events gone": (remove("events.jsonl"), HANDED),
    "the policy changed": (edit_file("policy.json", replaced(b'"me"', b'"ma"')), FROZEN),
    "the spec gone": (edit_file("spec.json", lambda _: None), FROZEN),
    "evidence gone": (edit_file("04-train/002/evidence.json", lambda _: None), DOCUMENTS),
    "a report changed": (edit_file("04-train/002/report.md", lambda d: d + b" "), DOCUMENTS),
    "a plot changed": (edit_file("04-train/002/plots/", lambda d: d + b" "), SHOWN),
    "proposals gone": (edit_file("proposals/", lambda _: None), PROPOSALS),
    "a gate gone": (edit_file("gates/04-train/002/gate.json", lambda _: None), SHOWN),
    "two objects swapped": (swap_objects, ARTIFACTS),
    "every object changed": (edit_file("objects/", lambda d: d + b" "), ARTIFACTS),
    "a file that the list lacks": (add, HANDED),
    "a file gone that the list has": (remove("environment.json"), HANDED),
    "a list with another count": (edit_list(events=3), ROW),
    "a list with another head": (edit_list(head="b" * 64), ROW),
    "a list of another run": (edit_list(run="r2"), LINKS),
    "the events of one run under the id of another": (edit_list(run="r2"), COLUMNS),
    "an end in the middle": (edit_lines(lambda x: [*x[:-2], x[-1], x[-2]]), TERMINAL),
    "a gate's opening dropped": (
        edit_lines(lambda x: [line for line in x if b'\\"kind\\":\\"gate.opened\\"' not in line]),
        NAMED,
    ),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_a_manipulation_of_a_bundle_is_found_where_it_belongs(bundle: Path, tmp_path: Path, name: str):
    manipulate, expected = BUNDLES[name]
    entries = entries_of(bundle)
    manipulate(entries)
    assert expected in failed(verify_bundle(written(tmp_path / "run.zip", entries)))


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b"\xff\x00", b"7", b'{"a":1}'], ids=["deep", "noise", "number", "other"]
)
@pytest.mark.parametrize(
    "name",
    [
        "policy.json",
        "spec.json",
        "environment.json",
        "04-train/002/evidence.json",
        "gates/04-train/002/gate.json",
        "gates/03-stress_test/001/amended/",
        "proposals/",
        "release/manifest.json",
        "upkeep.jsonl",
    ],
)
def test_whatever_a_document_holds_is_a_failed_step(bundle: Path, tmp_path: Path, name: str, content: bytes):
    entries = entries_of(bundle)
    entries.setdefault("upkeep.jsonl", b"")
    edit_file(name, lambda _: content)(entries)
    path = written(tmp_path / "run.zip", entries)
    assert failed(verify_bundle(path)) != set()
    with unpacked(path, keep=KEEP) as (history, _):
        assert show(history).startswith("Run r1")
        assert diff(history, history).runs == ("r1", "r1")


def test_a_bundle_that_was_only_packed_anew_passes(bundle: Path, tmp_path: Path):
    entries = entries_of(bundle)
    relisted(entries)
    assert failed(verify_bundle(written(tmp_path / "run.zip", entries))) == set()


def test_a_cut_tail_whose_list_fits_is_found_by_the_anchor_alone(finished: RunMaker, bundle: Path, tmp_path: Path):
    anchor(finished.ledger, "r1", tmp_path / "anchor.json")
    known = read_anchor(tmp_path / "anchor.json")
    entries = entries_of(bundle)
    edit_lines(lambda lines: lines[:-1])(entries)
    cut = written(tmp_path / "run.zip", entries)
    assert failed(verify_bundle(cut)) == set()
    assert failed(verify_bundle(cut, known)) == {("completeness", "the head equals the anchor")}
    assert failed(verify_bundle(bundle, known)) == set()


# ---- files that must not be unpacked


def entry(name: str, **changes: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("safe.json")
    info.filename = info.orig_filename = name
    info.compress_type = zipfile.ZIP_DEFLATED
    info.file_size = 10
    for key, value in changes.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("../evil.json")], "leads out of its folder"),
        ([entry("a/../../evil.json")], "leads out of its folder"),
        ([entry("/etc/passwd")], "leads out of its folder"),
        ([entry("a\\..\\evil.json")], "leads out of its folder"),
        ([entry("C:evil.json")], "leads out of its folder"),
        ([entry("a//b.json")], "leads out of its folder"),
        ([entry("./a.json")], "leads out of its folder"),
        ([entry("a.json\0.txt")], "control character"),
        ([entry("a\n.json")], "control character"),
        ([entry("folder/")], "is no file"),
        ([entry("")], "is no file"),
        ([entry("a" * 300)], "is too long"),
        ([entry("a.json"), entry("a.json")], "is there twice"),
        ([entry("a.json"), entry("A.JSON")], "is there twice"),
        ([entry("\u00e9.json"), entry("e\u0301.json")], "is there twice"),
        ([entry("a"), entry("a/b.json")], "is a file and a folder"),
        ([entry("a.json", external_attr=(stat.S_IFLNK | 0o777) << 16)], "is a link or a device"),
        ([entry("a.json", external_attr=(stat.S_IFIFO | 0o777) << 16)], "is a link or a device"),
        ([entry("a.json", flag_bits=1)], "is encrypted"),
        ([entry("a.json", compress_type=zipfile.ZIP_LZMA)], "compressed in a way that no bundle is"),
        ([entry("a.json", file_size=10 << 30)], "that is a bomb"),
        ([entry(f"{n}.json", file_size=1 << 20) for n in range(300)], "that is a bomb"),
        ([entry("a.json")] * (MAX_ENTRIES + 1), "entries, more than"),
    ],
)
def test_an_unsafe_list_of_entries_is_named(entries: list[zipfile.ZipInfo], said: str):
    assert any(said in fault for fault in unsafe(entries, 1000))


def test_an_honest_list_is_safe(bundle: Path):
    with zipfile.ZipFile(bundle) as file:
        assert unsafe(file.infolist(), bundle.stat().st_size) == []


def test_nothing_of_an_unsafe_bundle_is_unpacked(bundle: Path, tmp_path: Path):
    entries = entries_of(bundle) | {"../evil.json": b"{}"}
    (tmp_path / "deep").mkdir()
    with pytest.raises(VerificationFailed, match="leads out of its folder"):
        verify_bundle(written(tmp_path / "deep" / "run.zip", entries))
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", "run.zip"]


def test_a_real_bomb_is_refused_before_it_unpacks(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bundle.json", b" " * (80 << 20))
    with pytest.raises(VerificationFailed, match="that is a bomb"):
        verify_bundle(tmp_path / "bomb.zip")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_bundle_that_was_cut_is_said_to_be(bundle: Path, tmp_path: Path, share: float):
    data = bundle.read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(GatewrightError, match="end is missing" if share else "is not a bundle"):
        verify_bundle(tmp_path / "cut.zip")


@pytest.mark.parametrize(
    ("entries", "error", "said"),
    [
        ({}, VerificationFailed, "bundle.json is missing"),
        ({"bundle.json": b"noise"}, VerificationFailed, "does not read as the list"),
        ({"bundle.json": b"[" * 100_000}, VerificationFailed, "does not read as the list"),
        ({"bundle.json": b'{"format": "other"}'}, VerificationFailed, "does not read as the list"),
        ({"bundle.json": b'{"format": "gatewright-bundle", "version": 99}'}, InputError, "version 99"),
    ],
)
def test_a_file_without_a_list_is_no_bundle(tmp_path: Path, entries: Entries, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        verify_bundle(written(tmp_path / "run.zip", entries))


def test_what_is_no_zip_is_said_to_be_none(tmp_path: Path):
    (tmp_path / "run.zip").write_bytes(b"hello")
    with pytest.raises(InputError, match="is not a bundle"):
        verify_bundle(tmp_path / "run.zip")
    with pytest.raises(InputError, match="cannot read the bundle"):
        verify_bundle(tmp_path / "missing.zip")
    with pytest.raises(InputError, match="cannot read the bundle"):
        verify_bundle(tmp_path)


@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_damage_anywhere_is_an_error_or_a_failed_step(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    original = bundle.read_bytes()
    changed = bytearray(original)
    for place in data.draw(st.lists(st.integers(0, len(original) - 1), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "run.zip"
    path.write_bytes(changed)
    try:
        report = verify_bundle(path)
    except GatewrightError:
        return
    if report.ok:  # only what a ZIP does not read by may differ: times, comments, second copies of fields
        assert entries_of(path) == entries_of(bundle)


def test_what_somebody_wrote_steers_no_terminal(finished: RunMaker, bundle: Path, tmp_path: Path):
    entries = entries_of(bundle)
    edit_list(run="r\x1b[2J\u202egpj")(entries)
    text = verify_bundle(written(tmp_path / "run.zip", entries)).model_dump_json()
    assert "\\u001b" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
