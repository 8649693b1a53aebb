"""The gate before `evaluate` names the files that forgetting is measured on, and no other files are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import gatefiles
from flows.state import fold
from flows.workspace import Workspace
from specs.canonical import sha256_file
from specs.events import AttemptFailed
from tests.support import light_run

GENERAL = "general_text: {path: general/, passages: 8}\n"


def before_evaluate(folder: Path) -> Workspace:
    """A run at the gate of `evaluate`, with two files of general text."""
    project = light_run.make_project(folder, more=GENERAL)
    (project / "general").mkdir()
    for name in ("a.txt", "b.md"):
        (project / "general" / name).write_text("\n\n".join(f"Paragraph {k} of {name}." for k in range(6)))
    workspace = light_run.begin(project)
    for _ in range(4):
        light_run.passage(workspace)
        light_run.decide(workspace)
    light_run.passage(workspace)
    return workspace


def failures(workspace: Workspace) -> list[str]:
    events = (event.read() for event in light_run.ledger_of_run(workspace).events(workspace.run))
    return [event.message for event in events if isinstance(event, AttemptFailed)]


def test_the_gate_names_every_file_of_general_text_and_the_evidence_what_was_read(tmp_path, light_stages):
    workspace = before_evaluate(tmp_path / "p")
    expected = {
        f"general:general/{name}": sha256_file(workspace.project_dir / "general" / name) for name in ("a.txt", "b.md")
    }
    for gate in ("train", "evaluate"):
        shown = gatefiles.read_gate(workspace.folder, gate, 1).inputs
        named = {name: sha for name, sha in shown.items() if name.startswith("general:")}
        assert named == (expected if gate == "evaluate" else {})
    light_run.decide(workspace)
    light_run.passage(workspace)
    state = fold(light_run.ledger_of_run(workspace).events(workspace.run))
    assert state.current("evaluate").state == "published"
    [before] = [
        event.payload["inputs"]
        for event in light_run.ledger_of_run(workspace).events(workspace.run)
        if event.kind == "inputs.hashed"
        and event.payload["stage"] == "evaluate"
        and event.payload["moment"] == "before"
    ]
    assert expected.items() <= before.items()


@pytest.mark.parametrize("change", ["one more file", "one file less"])
def test_general_text_that_changed_after_its_gate_is_not_evaluated_on(tmp_path, light_stages, change):
    workspace = before_evaluate(tmp_path / "p")
    light_run.decide(workspace)
    general = workspace.project_dir / "general"
    if change == "one file less":
        (general / "b.md").unlink()
    else:
        (general / "c.txt").write_text("Something else.")
    light_run.passage(workspace)
    [message] = failures(workspace)
    assert "files changed since the gate was approved: general:general/" in message
