"""Writing is atomic and durable: the old bytes or the new ones, and a full disk is said in words."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specs.errors import StorageError
from specs.files import (
    keep_if_possible,
    publish_folder,
    read_lines,
    storage_errors,
    write_bytes,
    write_json,
    write_lines,
)

LIMITED = """
import resource, sys
from pathlib import Path
from specs.files import write_bytes
from specs.errors import GatewrightError
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(Path(sys.argv[1]), b"n" * 100_000)
except GatewrightError as error:
    print(type(error).__name__, error.message, "|", error.hint)
    sys.exit(error.exit_code)
"""


def test_a_file_is_written_with_its_folders_and_no_trace_is_left(tmp_path: Path):
    target = tmp_path / "a" / "b.json"
    assert write_json(target, {"b": 1, "a": [1.0]}) == b'{"a":[1],"b":1}'
    assert target.read_bytes() == b'{"a":[1],"b":1}'
    assert [p.name for p in target.parent.iterdir()] == ["b.json"]
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are a POSIX thing")
def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "evidence.json"
    write_bytes(target, b"old")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(target)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("StorageError")
    assert "Traceback" not in done.stderr
    assert str(target) in done.stdout
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "no space left"),
        (errno.EFBIG, "no space left"),
        (errno.EACCES, "cannot write"),
        (errno.EROFS, "cannot write"),
    ],
)
def test_what_the_disk_says_becomes_a_message_with_a_way_out(tmp_path: Path, code: int, word: str):
    with pytest.raises(StorageError, match=word) as caught, storage_errors(tmp_path):
        raise OSError(code, os.strerror(code))
    assert caught.value.hint
    assert str(tmp_path) in caught.value.message


def test_what_can_be_made_again_is_kept_where_there_is_room_and_said_where_not(tmp_path: Path):
    said: list[str] = []
    assert keep_if_possible(tmp_path / "a" / "b.json", b"1", said.append)
    assert (tmp_path / "a" / "b.json").read_bytes() == b"1"
    assert said == []
    assert not keep_if_possible(tmp_path / "a" / "b.json" / "c.json", b"2", said.append)
    assert "not kept for the next time" in said[0]
    assert str(tmp_path) in said[0]


def test_other_failures_are_not_disguised(tmp_path: Path):
    with pytest.raises(IsADirectoryError), storage_errors(tmp_path):
        raise IsADirectoryError(errno.EISDIR, "is a folder")


def test_a_folder_is_published_once_and_never_over_another(tmp_path: Path):
    partial, target = tmp_path / "001.partial", tmp_path / "001"
    (partial / "artifacts").mkdir(parents=True)
    (partial / "artifacts" / "x.json").write_text(json.dumps({}))
    publish_folder(partial, target)
    assert (target / "artifacts" / "x.json").is_file()
    assert not partial.exists()
    partial.mkdir()
    with pytest.raises(FileExistsError):
        publish_folder(partial, target)
    assert (target / "artifacts" / "x.json").is_file()


def test_a_text_with_a_line_break_of_unicode_stays_in_its_record(tmp_path: Path):
    path, records = tmp_path / "lines.jsonl", [{"text": "one\u2028two\x85three\rfour\nfive"}, {"text": "六"}]
    write_lines(path, records)
    assert read_lines(path) == records
    path.write_text('{"text": "one\u2028two"}\n', encoding="utf-8")
    assert read_lines(path) == [{"text": "one\u2028two"}]


def test_a_line_that_is_no_json_is_named_and_a_file_that_is_not_there_has_no_records(tmp_path: Path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n')
    with pytest.raises(ValueError, match=r"^lines\.jsonl:3: "):
        read_lines(path)
    path.write_bytes(b"[" * 200_000)
    with pytest.raises(ValueError, match=r"^lines\.jsonl:1: "):
        read_lines(path)
    assert read_lines(tmp_path / "none.jsonl", missing_ok=True) == []
    with pytest.raises(FileNotFoundError):
        read_lines(tmp_path / "none.jsonl")
