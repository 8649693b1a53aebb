"""Bad input never shows a traceback: a message that says what and where, a way out, and the exit code."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli import asking, running
from flows.cli.output import readable
from flows.run_state import Gate, RunState
from flows.standing import waiting
from flows.starting import start_run
from flows.workspace import Workspace
from specs.errors import GatewrightError, GuardRefused, InputError
from specs.policy import Policy
from tests.support.cli import Answer, called, gatewright

SPEC = """\
project: small
base_model: {model}
sources:
  - kind: work_orders
    path: raw/orders.csv
    columns: {{phenomenon: Problem, repair: Repair}}
"""
ROWS = "Problem,Repair\nspindle noisy at 8000 rpm,replaced the front bearing\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that is good until a test breaks it."""
    folder = tmp_path / "small"
    (folder / "raw").mkdir(parents=True)
    (folder / "project.yaml").write_text(SPEC.format(model="package:gatewright-tiny"), encoding="utf-8")
    (folder / "raw/orders.csv").write_text(ROWS, encoding="utf-8")
    return folder


def refused(project: Path, command: str = "check") -> Answer:
    answer = called(command, ".", "--json", cwd=project)
    assert answer.code == 2, answer.out
    assert answer.json["error"]["exit_code"] == 2
    return answer


def test_the_small_project_is_good(project: Path) -> None:
    answer = gatewright("check", ".", "--json", cwd=project)
    assert answer.code == 0, answer.err


def test_a_missing_file_is_named_with_its_line_and_a_run_does_not_start(project: Path) -> None:
    (project / "raw/orders.csv").unlink()
    for command in ("check", "run"):
        answer = refused(project, command)
        assert "raw/orders.csv" in answer.err
        assert "project.yaml:" in answer.err
    assert not (project / "runs").exists()


def test_an_empty_table_is_an_error(project: Path) -> None:
    (project / "raw/orders.csv").write_text("", encoding="utf-8")
    assert "orders.csv" in refused(project).err
    (project / "raw/orders.csv").write_text("Problem,Repair\n", encoding="utf-8")
    assert "orders.csv" in refused(project).err


def test_a_wrong_encoding_is_an_error_that_names_the_file(project: Path) -> None:
    (project / "raw/orders.csv").write_bytes("Problem,Repair\n主轴异响,更换轴承\n".encode("gb18030"))
    text = (project / "project.yaml").read_text(encoding="utf-8").replace("path:", "encoding: utf-8\n    path:")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    assert "orders.csv" in answer.err
    assert "utf-8" in answer.err.lower()


def test_an_unknown_key_names_the_nearest_known_one(project: Path) -> None:
    with (project / "project.yaml").open("a", encoding="utf-8") as file:
        file.write("acceptence: {}\n")
    answer = refused(project)
    assert "acceptence" in answer.err
    assert "acceptance" in answer.err
    assert "project.yaml:7" in answer.err


def test_a_column_mapped_to_nothing_names_the_near_columns(project: Path) -> None:
    text = (project / "project.yaml").read_text(encoding="utf-8").replace("Problem", "Problems")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    assert "Problems" in answer.err
    assert "Problem" in answer.err.replace("Problems", "")


def test_a_model_folder_without_weights_is_an_error_with_a_way_out(project: Path) -> None:
    (project / "model").mkdir()
    (project / "model/config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (project / "project.yaml").write_text(SPEC.format(model="model"), encoding="utf-8")
    answer = refused(project)
    assert "weights" in answer.err
    assert "safetensors" in answer.err


def test_all_problems_come_at_once(project: Path) -> None:
    text = SPEC.format(model="package:nothing").replace("project: small", "project: Small Project\nlanguage: fr")
    (project / "project.yaml").write_text(text, encoding="utf-8")
    answer = refused(project)
    paths = {problem["path"] for problem in answer.json["error"]["problems"]}
    assert {"project", "language"} <= paths


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are set the POSIX way")
def test_a_full_disk_is_said_in_words(project: Path) -> None:
    limit = "import resource,runpy,sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
    limit += "sys.argv=['gatewright','init','big','--example','cnc-repair'];"
    limit += "runpy.run_module('flows.cli', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit], cwd=project, capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "way out" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("approve", "--as", "me"),
        ("resume",),
        ("review",),
        ("audit", "verify"),
        ("verify", "nothing"),
        ("run", "nowhere"),
        ("run", ".", "--until", "nothing"),
        ("run", ".", "--run-id", "../up"),
        ("stage", "nothing", "."),
        ("stage", "train", "."),
        ("estimate", "--model", "no-such-model"),
        ("estimate", "--model", "llama-2-7b", "--method", "magic"),
        ("init", "."),
        ("init", "new", "--example", "nothing"),
        ("init", "new", "--lang", "fr"),
    ],
)
def test_every_command_refuses_what_it_cannot_use_with_exit_code_2(project: Path, words: tuple[str, ...]) -> None:
    answer = called(*words, "--json", cwd=project)
    assert answer.code == 2, (answer.out, answer.err)
    assert answer.json["error"]["message"]
    assert answer.json["error"]["hint"]


@pytest.fixture
def with_run(project: Path) -> Path:
    """The small project with a run `first`, which nothing has entered yet."""
    start_run(project, "first")
    return project


@pytest.mark.parametrize(
    "words",
    [
        ("approve",),
        ("status", "--wrong"),
        ("run",),
        ("nothing",),
        ("audit", "export"),
        ("status", "x" * 300),
        ("status", "--project", "raw/typo"),
        ("approve", "first", "--as", "me", "-m", "no \udcff text"),
        ("approve", "first", "--as", "m\udcff"),
        ("approve", "first", "--as", "me", "--set", "lr=\udcff"),
        ("audit", "anchor", "first"),
        ("audit", "export", "first", "bundle.zip"),
        ("audit", "export", "raw/orders.csv/bundle.zip"),
        ("audit", "anchor", "raw/orders.csv/head.json"),
        ("init", "raw/orders.csv/new"),
        ("init", "x" * 300),
    ],
)
def test_a_bad_command_line_or_path_is_answered_in_json_with_a_way_out(with_run: Path, words: tuple[str, ...]) -> None:
    run = called if all(word.isprintable() for word in words) else gatewright  # a terminal's bytes are no text here
    answer = run(*words, "--json", cwd=with_run)
    error = answer.json["error"]
    assert (answer.code, error["exit_code"]) == (2, 2), answer.out
    assert error["hint"]
    assert "internal error" not in error["message"]
    assert not (with_run / "first").exists()


def test_without_json_a_usage_error_stays_words(project: Path) -> None:
    answer = called("approve", cwd=project)
    assert (answer.code, answer.out) == (2, "")
    assert "--as" in answer.err
    assert gatewright("status", "--help", "--json", cwd=project).code == 0


def test_a_home_that_cannot_be_used_is_named(with_run: Path) -> None:
    for words in (("up",), ("resume", "first")):
        answer = gatewright(*words, "--json", cwd=with_run, GATEWRIGHT_HOME=str(with_run / "raw/orders.csv"))
        assert answer.code == 1
        assert answer.json["error"]["kind"] == "StorageError"
        assert "GATEWRIGHT_HOME" in answer.json["error"]["hint"]


def test_a_stage_by_itself_looks_for_its_run_in_the_ledger_of_the_spec(project: Path) -> None:
    with (project / "project.yaml").open("a", encoding="utf-8") as file:
        file.write(f"ledger: sqlite:///{project.as_posix()}/shared.db\n")
    start_run(project, "elsewhere")
    assert called("status", "--json", cwd=project).json["run"] == "elsewhere"
    error = called("stage", "dry_run", ".", "--run", "elsewhere", "--json", cwd=project).json["error"]
    assert "has not published" in error["message"]


def test_the_lines_that_say_how_to_decide_can_be_pasted(project: Path) -> None:
    folder = project.rename(project.parent / "a b; c")
    workspace = start_run(folder, "first")
    gate = Gate("data", 1, "a" * 64, datetime.now(UTC), blocked=False)
    state = RunState(gates={("data", 1): gate}, newest_gate=gate)
    where = f" --project {shlex.quote(str(folder))}"
    said = "\n".join(running.decision_lines(state, workspace, where))
    assert shlex.split(said.splitlines()[-1].split(":", 1)[1])[-1] == str(folder)
    answer = called("gates", "--project", folder, cwd=folder.parent)
    assert answer.code == 0, answer.err


def test_a_passage_that_ends_without_a_word_points_to_the_log(with_run: Path) -> None:
    session: Any = SimpleNamespace(ending="failed", error=None)
    with pytest.raises(GatewrightError, match="without saying why") as caught:
        running._say_ending(Workspace(with_run, "first"), session, False)
    assert "internal-errors.log" in caught.value.hint


NO_REHEARSAL: dict[str, Any] = {"workspace": None, "state": None, "proposal": None}


def test_nothing_typed_at_the_gate_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    typed = iter(["s", "nonsense", "s", "a=b", "s", "c=d", "x", "no \udcff text", "s", "lr=1e-4"])
    errors: list[Exception] = [GuardRefused("outside its bounds"), RecursionError("too deep")]
    kept: list[Any] = []

    def record(_workspace: Any, _ledger: Any, **decision: Any) -> dict[str, Any]:
        if errors:
            raise errors.pop(0)
        kept.append(decision)
        return {"kind": "decision.recorded"}

    policy, gate = Policy(), Gate("data", 1, "d" * 64, datetime.now(UTC), blocked=False)
    facts = SimpleNamespace(gate=gate, policy=policy, waiting=waiting(policy, gate), report=None, **NO_REHEARSAL)
    ledger: Any = SimpleNamespace(events=lambda run: [])
    monkeypatch.setattr("flows.reviewing.gate_facts", lambda workspace, ledger: facts)
    monkeypatch.setattr("flows.reviewing.page", lambda facts: "page")
    monkeypatch.setattr("flows.rehearsing.rehearsal_note", lambda *facts: "")
    monkeypatch.setattr("flows.deciding.record", record)
    monkeypatch.setattr("flows.state.fold", lambda events: SimpleNamespace(gate=gate))
    monkeypatch.setattr(asking, "_prompt", lambda text: readable(next(typed)))
    monkeypatch.setattr(asking, "internal_error", lambda error: InputError(f"internal error: {error}", "a log"))
    assert asking._ask(SimpleNamespace(run="first", folder=tmp_path), ledger)
    assert [d["edits"] for d in kept] == [{"lr": "1e-4"}]
    said = capsys.readouterr().err
    assert said.count("refused:") == 4
    assert "too deep" in said


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_prompt_leaves_the_gate_open(tmp_path: Path, number: signal.Signals) -> None:
    code = """
from types import SimpleNamespace
import flows.rehearsing, flows.reviewing
from flows.cli import asking
from tasks.interrupts import STOP, stop_on_signals
gate = SimpleNamespace(name="data", blocked=False)
facts = SimpleNamespace(report=None, gate=gate, spec=None, workspace=None, state=None, proposal=None)
flows.rehearsing.rehearsal_note = lambda *facts: ""
flows.reviewing.gate_facts = lambda workspace, ledger: facts
flows.reviewing.page = lambda facts: "page"
with stop_on_signals():
    print("decided:", asking._ask(None, None), "stop:", STOP.requested())
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    shown = b""
    while b"[l]eave: " not in shown and (byte := child.stderr.read(1)):
        shown += byte
    child.send_signal(number)
    assert child.stdout is not None
    out = child.stdout.read()  # its stdin stays open all the time
    assert child.wait(timeout=20) == 0
    assert out == b"decided: False stop: False\n"
    child.communicate()
