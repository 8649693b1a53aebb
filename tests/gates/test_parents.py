"""A run that names a parent is frozen with the proof of its weights, and so is everything that is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.gate_page import parent_line
from flows.amending import amend
from flows.audit import verify
from flows.ledgers import ledger_of_run
from flows.parents import with_parent
from flows.workspace import Workspace, frozen_spec
from specs.canonical import digest_folder, sha256_bytes
from specs.errors import InputError, Refused, SpecError, VerificationFailed
from specs.events import RunCreated
from specs.files import write_bytes, write_json
from specs.loading import load_project
from specs.stages import StageContext
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

SETTINGS = {
    "requested": {
        "method": "lora",
        "lora.rank": 4,
        "lora.alpha": 8.0,
        "lora.dropout": 0.0,
        "lora.targets": "all-linear",
    },
    "base_model_sha256": "b" * 64,
}


def leave_weights(context: StageContext) -> None:
    """What the real stages leave for a run that goes on from this one."""
    if context.stage == "data":
        write_bytes(context.artifacts / "samples.parquet", context.run.encode())
    if context.stage == "train":
        write_bytes(context.artifacts / "adapter" / "adapter_model.safetensors", context.run.encode())
        write_json(
            context.artifacts / "settings.json", {**SETTINGS, "samples_sha256": sha256_bytes(context.run.encode())}
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a finished run r1."""
    monkeypatch.setitem(light_run.HOW, "while_running", leave_weights)
    monkeypatch.setitem(light_run.HOW, "workers", False)
    folder = light_run.make_project(tmp_path / "p")
    assert light_run.complete(folder).ending == "finished"
    return folder


def name_parent(project: Path, named: str) -> None:
    path = project / "project.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("parent:")]
    path.write_text("\n".join([*lines, f"parent: {named}"]) + "\n")


def adapter_of(project: Path, run: str) -> Path:
    return next((project / "runs" / run).glob("*-train/001/artifacts/adapter"))


def test_what_the_parent_is_is_frozen_recorded_shown_and_audited(project: Path):
    name_parent(project, "r1")
    assert light_run.complete(project, "r2").ending == "finished"
    workspace = Workspace(project, "r2")
    record = frozen_spec(workspace).parent_record
    assert record is not None
    assert (record.run, record.lora.rank, record.base_model_sha256) == ("r1", 4, "b" * 64)
    assert record.weights_sha256 == digest_folder(adapter_of(project, "r1"))
    assert [(one.run, one.sha256) for one in record.learnt] == [("r1", sha256_bytes(b"r1"))]
    assert not record.learnt_unknown
    created = next(e for e in ledger_of_run(workspace).events("r2")).read()
    assert isinstance(created, RunCreated)
    assert (created.parent, created.parent_weights) == ("r1", record.weights_sha256)
    assert record.weights_sha256[:16] in str(parent_line(frozen_spec(workspace)))
    report = verify(ledger_of_run(workspace), "r2", workspace.folder)
    assert [step.detail for part in report.parts.values() for step in part.steps if not step.ok] == []


def test_a_spec_that_is_taken_in_anew_keeps_its_parent_and_takes_no_other(project: Path):
    name_parent(project, "r1")
    workspace = light_run.begin(project, "r2")
    assert light_run.passage(workspace).ending == "waiting"
    kept = frozen_spec(workspace).parent_record
    with (project / "project.yaml").open("a") as file:
        file.write("goal: quiet spindles\n")
    assert amend(workspace, ledger_of_run(workspace)) == ["goal"]
    assert kept is not None
    assert frozen_spec(workspace).parent_record == kept
    assert light_run.passage(workspace).ending == "waiting"
    path = project / "project.yaml"
    path.write_text(path.read_text().replace("parent: r1\n", ""))
    with pytest.raises(Refused, match="parent"):
        amend(workspace, ledger_of_run(workspace))


def test_the_samples_of_grandparents_count_too_and_those_that_are_gone_are_said_to_be(project: Path):
    name_parent(project, "r1")
    light_run.complete(project, "r2")
    name_parent(project, "r2")
    record = frozen_spec(light_run.begin(project, "r3")).parent_record
    assert record is not None
    assert [one.run for one in record.learnt] == ["r2", "r1"]
    light_run.complete(project, "r3")
    (project / record.learnt[0].path).unlink()
    again = frozen_spec(light_run.begin(project, "r4")).parent_record
    assert again is not None
    assert again.learnt_unknown


def test_what_is_no_parent_is_refused_and_nothing_is_begun(tmp_path: Path):
    project = light_run.make_project(tmp_path / "p")
    for named in ("r9", "raw", "../p", "runs/r1", "旧运行"):
        name_parent(project, named)
        with pytest.raises(InputError) as caught:
            light_run.begin(project, "r2")
        assert "neither a run of this project nor a folder with a release" in caught.value.message
        assert not (project / "runs" / "r2").exists()


def test_weights_that_changed_since_they_were_recorded_are_refused(project: Path):
    write_bytes(adapter_of(project, "r1") / "adapter_model.safetensors", b"other")
    name_parent(project, "r1")
    with pytest.raises(VerificationFailed, match="is not what its run recorded"):
        light_run.begin(project, "r2")


def test_a_run_without_finished_training_is_no_parent(tmp_path: Path):
    project = light_run.make_project(tmp_path / "p")
    light_run.begin(project, "r2")
    name_parent(project, "r2")
    with pytest.raises(InputError, match="has no finished training"):
        with_parent(load_project(project).spec, project, ledger_of_run(Workspace(project, "r2")))


def test_method_full_has_no_adapter_to_go_on_from(tmp_path: Path):
    project = light_run.make_project(tmp_path / "p")
    name_parent(project, "r1")
    with (project / "project.yaml").open("a") as file:
        file.write("method: full\n")
    with pytest.raises(SpecError, match="method full trains none"):
        light_run.begin(project, "r2")
