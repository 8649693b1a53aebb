"""Stages that a project adds are hashed, verified, gated, resumed, shown and audited as the built-in ones are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows.audit import export, verify, verify_bundle
from flows.handing import hand_in
from flows.ledgers import ledger_of_run
from flows.session import Session
from flows.state import RunState, fold
from flows.ungated import run_ungated
from flows.verifying import verify_stage
from flows.workspace import Workspace
from specs.errors import DecisionRefused, GatewrightError, GuardRefused, InputError, PolicyRefused
from specs.results import Evidence
from specs.stages import Quiet
from tests.support import light_run
from tests.support.added_project import COUNT, HOLD, STAGES
from tests.support.cli import called

pytestmark = pytest.mark.usefixtures("light_stages")


def make(folder: Path, more: str = STAGES, script: str = COUNT) -> Workspace:
    """A run of the light stages and these, at its first gate."""
    project = light_run.make_project(folder, more=more)
    (project / "count.py").write_text(script)
    workspace = light_run.begin(project)
    assert light_run.passage(workspace).ending == "waiting"
    return workspace


def state_of(workspace: Workspace) -> RunState:
    return fold(ledger_of_run(workspace).events(workspace.run))


def on(workspace: Workspace, *gates: str) -> Session:
    """Approve these gates and go on."""
    for gate in gates:
        light_run.decide(workspace, name=gate)
    return light_run.passage(workspace)


def told(workspace: Workspace) -> str:
    """What `gatewright status` says."""
    return called("status", cwd=workspace.project_dir).out


def give(workspace: Workspace, text: str = "all is good\n", actor: str = "me") -> None:
    file = workspace.project_dir / "filled.csv"
    file.write_text(text)
    hand_in(workspace, ledger_of_run(workspace), file, actor, authentication="terminal")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, light_stages: None) -> Workspace:
    """A run through the command, the person's stage and every built-in one, the first two side by side."""
    os.environ["GATEWRIGHT_TEST_PASSWORD"] = "not-for-commands"
    workspace = make(tmp_path_factory.mktemp("added") / "p")
    on(workspace, "data")
    assert [g.name for g in state_of(workspace).open_gates] == ["count", "look", "dry_run"]
    assert on(workspace, "count", "look").ending == "waiting"
    give(workspace)
    light_run.passage(workspace)
    for gate in ("dry_run", "stress_test", "train", "evaluate", "release"):
        session = on(workspace, gate)
    assert session.ending == "finished"
    del os.environ["GATEWRIGHT_TEST_PASSWORD"]
    return workspace


def test_a_run_with_added_stages_ends_and_its_history_verifies_live_and_from_a_bundle(finished, tmp_path):
    ledger = ledger_of_run(finished)
    report = verify(ledger, finished.run, finished.folder)
    assert report.ok, [s.detail for part in report.parts.values() for s in part.steps if not s.ok]
    contents = export(ledger, finished.run, finished.folder, tmp_path / "b.zip", artifacts=True)
    assert contents.left_out["raw data and quarantine"] == 2  # notes.md, and the copy of a file of the project
    bundled = verify_bundle(tmp_path / "b.zip")
    assert bundled.ok, [s.detail for part in bundled.parts.values() for s in part.steps if not s.ok]


def test_metrics_of_added_stages_are_computed_again_and_their_own_word_is_marked(finished):
    for name in ("count", "look"):
        found = verify_stage(finished, ledger_of_run(finished), name)
        assert found is not None
        assert found.ok, found.differences
    evidence = evidence_of(finished, "count")
    assert evidence.metrics["count"].value == 2 * len("more of data")
    assert evidence.metrics["guess"].reason == "self-reported by the stage"
    assert any("guess" in note for note in evidence.notes)


def evidence_of(workspace: Workspace, stage: str) -> Evidence:
    return Evidence.model_validate_json((workspace.attempt(stage, 1) / "evidence.json").read_bytes())


def test_what_nobody_declared_is_named_and_hashed_and_so_is_what_was_written_elsewhere(finished):
    evidence = evidence_of(finished, "count")
    paths = {a.path for a in evidence.artifacts}
    assert {"artifacts/count.txt", "artifacts/more.txt", "artifacts/written_outside/beside.txt"} <= paths
    words = " ".join(evidence.notes)
    assert "more.txt" in words
    assert "beside.txt" in words
    assert "a note of its own" in evidence.notes


def test_code_files_and_work_of_people_are_among_the_inputs(finished):
    assert {"data/evidence.json", "project:count.py"} <= evidence_of(finished, "count").inputs.keys()
    inputs = evidence_of(finished, "look").inputs
    assert {"handed_out:sheet.csv", "handed_in:me", "code:tests.support.added_tasks"} <= inputs.keys()
    author = json.loads((finished.attempt("look", 1) / "artifacts" / "author.json").read_bytes())
    assert (author["author"], author["authentication"]) == ("me", "terminal")


def test_folders_are_numbered_in_the_order_of_the_graph(finished):
    names = sorted(p.name for p in finished.folder.iterdir() if p.name[0].isdigit())
    assert names[:4] == ["01-data", "02-count", "03-look", "04-dry_run"]


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("02-count/001/artifacts/count.txt", "artifacts are those the evidence lists"),
        ("03-look/001/artifacts/author.json", "artifacts are those the evidence lists"),
        ("spec.json", "spec, policy and environment are those the run began with"),
    ],
)
def test_a_changed_file_of_an_added_stage_turns_the_audit_red(finished, tmp_path, place, step):
    import shutil

    project = tmp_path / "copy"
    shutil.copytree(finished.project_dir, project)
    other = Workspace(project, finished.run)
    file = other.folder / place
    file.write_bytes(file.read_bytes().replace(b"2", b"3") + b" ")
    report = verify(ledger_of_run(other), other.run, other.folder)
    assert not report.ok
    assert any(s.check == step and not s.ok for s in report.integrity.steps)


def test_a_persons_edit_of_an_added_stage_keeps_its_bounds_and_the_run_goes_on(tmp_path):
    workspace = make(tmp_path / "p")
    on(workspace, "data")
    with pytest.raises(GuardRefused) as refused:
        light_run.decide(workspace, name="count", edits={"times": 4})
    assert "times" in refused.value.message
    light_run.decide(workspace, name="count", edits={"times": 3})
    assert light_run.passage(workspace).ending == "waiting"
    text = (workspace.attempt("data", 1) / "artifacts" / "more.txt").read_text()
    counted = workspace.attempt("count", 1) / "artifacts" / "count.txt"
    assert int(counted.read_text()) == 3 * len(text)
    assert verify(ledger_of_run(workspace), "r1", workspace.folder).ok


@pytest.mark.slow
def test_a_changed_script_stops_the_stage_and_a_new_proposal_takes_it_in(tmp_path):
    workspace = make(tmp_path / "p")
    on(workspace, "data")
    light_run.decide(workspace, name="count")
    script = workspace.project_dir / "count.py"
    script.write_text(script.read_text() + "\n# changed\n")
    session = light_run.passage(workspace)
    assert session.error is not None
    assert "project:count.py" in session.error.message
    assert light_run.passage(workspace, anew=True).ending == "waiting"
    on(workspace, "count")
    assert state_of(workspace).done("count")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit(3)", "exit code 3"),
        (COUNT.replace('"guess": 7', '"guess": 7, "wild": 1'), "reported wild, which it does not declare"),
        (COUNT.replace('{"guess": 7}', "{}"), "did not report guess"),
        (COUNT.replace('"count.txt"), "w")', '"else.txt"), "w")'), "did not write count.txt"),
        (COUNT.replace('"beside.txt"', '"proposal.json"'), "changed proposal.json"),
        (COUNT.replace('"beside.txt"', '"artifacts/project_files/count.py"'), "changed artifacts/project_files"),
        (COUNT.replace('open("beside.txt", "w")', 'os.symlink("/etc", "beside.txt"); open("b", "w")'), "a link"),
        (COUNT.replace('"guess": 7', '"guess": "many"'), "is no answer"),
    ],
)
def test_a_command_that_does_not_bring_what_it_declares_fails_in_words(tmp_path, script, says):
    workspace = make(tmp_path / "p", script=script)
    on(workspace, "data")
    session = on(workspace, "count")
    assert session.error is not None
    assert says in session.error.message, session.error.message
    assert "internal error" not in session.error.message
    assert state_of(workspace).current("count").state == "failed"  # type: ignore[union-attr]


def test_work_is_taken_from_whoever_may_decide_there_until_the_stage_has_run(tmp_path):
    workspace = make(tmp_path / "p")
    on(workspace, "data")
    with pytest.raises(DecisionRefused, match="waits for work"):
        give(workspace)
    on(workspace, "look")
    with pytest.raises(PolicyRefused, match="may not decide at gate look"):
        give(workspace, actor="somebody")
    give(workspace, "broken")
    session = light_run.passage(workspace)
    assert session.error is not None
    assert "this sheet is broken" in session.error.message
    way_out = "gatewright hand-in FILE"
    assert way_out in session.error.hint
    assert f"failed on the work that was handed in; hand in another file: {way_out}" in told(workspace)
    give(workspace)
    light_run.passage(workspace)
    assert state_of(workspace).done("look")
    with pytest.raises(DecisionRefused):
        give(workspace)


def test_a_stage_that_a_person_completes_does_not_run_by_itself(tmp_path):
    project = light_run.make_project(tmp_path / "p", more=STAGES)
    (project / "count.py").write_text(COUNT)
    with pytest.raises(InputError, match="work of a person"):
        run_ungated(project, "look", None, Quiet())


@pytest.mark.slow
def test_a_task_that_takes_too_long_is_ended(tmp_path):
    slow = STAGES.replace("tests.support.added_tasks:take", "tests.support.added_tasks:forever")
    workspace = make(tmp_path / "p", slow.replace("outputs: [labels.csv]", "timeout_minutes: 0.01"))
    on(workspace, "data")
    on(workspace, "look")
    give(workspace)
    session = light_run.passage(workspace)
    assert session.error is not None
    assert "time limit" in session.error.message


def test_stages_that_wait_for_nothing_of_each_other_run_at_the_same_time(tmp_path, monkeypatch):
    met = []

    def meet(context):
        """`dry_run` ends only after the command has begun, and the command only after this."""
        if context.stage == "dry_run":
            pid, deadline = workspace.folder / "pid", time.monotonic() + 30
            while not pid.is_file() and time.monotonic() < deadline:
                time.sleep(0.02)
            met.append(pid.is_file())
            (workspace.folder / "go").touch()

    waits = HOLD.replace("    time.sleep(600)", "").replace("if job", "while job").rstrip() + " time.sleep(0.02)\n"
    workspace = make(tmp_path / "p", script=COUNT + waits)
    on(workspace, "data")
    monkeypatch.setitem(light_run.HOW, "while_running", meet)
    on(workspace, "count", "dry_run")
    assert met == [True]
    state = state_of(workspace)
    assert state.done("count")
    assert state.done("dry_run")
    assert [g.name for g in state.open_gates] == ["look", "stress_test"]
    assert state.state == ledger_of_run(workspace).run("r1").state == "waiting"


def test_the_commands_say_which_gates_wait_and_take_work_in(tmp_path):
    workspace = make(tmp_path / "p")
    on(workspace, "data")
    project = workspace.project_dir
    unclear = called("approve", "--as", "me", "--yes", cwd=project)
    assert unclear.code == 6
    assert "--gate" in unclear.err
    assert [g["id"] for g in called("gates", "--json", cwd=project).json["gates"]] == [
        "r1.count.1",
        "r1.look.1",
        "r1.dry_run.1",
    ]
    assert called("approve", "--as", "me", "--yes", "--gate", "look", cwd=project).code == 0
    light_run.passage(workspace)
    status = called("status", "--json", cwd=project).json
    assert (status["state"], status["work"]) == ("waiting", ["look"])
    (project / "filled.csv").write_text("all is good\n")
    given = called("hand-in", "filled.csv", "--as", "me", "--yes", "--json", cwd=project)
    assert given.code == 0, given.err
    assert (given.json["stage"], given.json["author"]) == ("look", "me")
    assert called("hand-in", "nothing.csv", "--as", "me", "--yes", cwd=project).code == 2


def test_a_run_killed_inside_a_command_leaves_no_command_behind_and_goes_on(tmp_path):
    held = COUNT + HOLD
    workspace = make(tmp_path / "p", script=held)
    on(workspace, "data")
    light_run.decide(workspace, name="count")
    words = (
        "from pathlib import Path; from tests.support import light_run; from flows.workspace import Workspace; "
        f"light_run.install(); light_run.passage(Workspace(Path({str(workspace.project_dir)!r}), 'r1'))"
    )
    process = subprocess.Popen([sys.executable, "-c", words], cwd=Path(__file__).parents[2])
    pid = workspace.folder / "pid"
    deadline = time.monotonic() + 60
    while not (pid.is_file() and pid.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    command = psutil.Process(int(pid.read_text()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    command.wait(10)
    (workspace.folder / "go").touch()
    light_run.passage(workspace)
    state = state_of(workspace)
    assert state.done("count")
    assert [a.number for a in state.attempts["count"]] == [1]
    assert verify(ledger_of_run(workspace), "r1", workspace.folder).ok


@pytest.mark.slow
def test_a_sheet_that_was_changed_after_it_was_handed_out_is_refused(tmp_path):
    workspace = make(tmp_path / "p")
    on(workspace, "data")
    on(workspace, "look")
    give(workspace)
    sheet = workspace.handed_out("look", 1) / "sheet.csv"
    sheet.write_text(sheet.read_text() + "another line\n")
    session = light_run.passage(workspace)
    assert isinstance(session.error, GatewrightError)
    assert "not what was recorded" in session.error.message
