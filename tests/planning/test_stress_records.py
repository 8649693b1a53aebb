"""Only what a stress test published is used for a plan: a record that is gone or was changed is none, and is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flows.run_state import Attempt
from flows.stress_records import StressRecords
from flows.workspace import Workspace
from specs.canonical import canonical_bytes, sha256_bytes
from specs.parameters import TrainingConfiguration
from specs.results import Evidence, list_artifacts

RAN = TrainingConfiguration(micro_batch=4)
SIZES = {"process_bytes": 900, "framework_bytes": 400}
CALIBRATION = {"key": "0" * 64, "confirmed": True, "measured": SIZES, "predicted": SIZES, "ratio": 1.0}
DOCUMENTS: dict[str, Any] = {
    "configuration.json": RAN.model_dump(mode="json"),
    "calibration.json": {**CALIBRATION, "framework_bytes": 400},
    "measurement.json": {"buckets": []},
    "device.json": {"kind": "cpu", "name": "CPU"},
}


def records(folder: Path, documents: dict[str, Any]) -> StressRecords:
    """A published attempt with these artifacts."""
    workspace = Workspace(folder, "r1")
    place = workspace.attempt("stress_test", 1)
    (place / "artifacts").mkdir(parents=True)
    for name, document in documents.items():
        (place / "artifacts" / name).write_bytes(canonical_bytes(document))
    now = datetime.now(UTC)
    evidence = Evidence(
        stage="stress_test",
        attempt=1,
        run="r1",
        parameters_sha256="0" * 64,
        inputs={},
        metrics={},
        verdicts=[],
        artifacts=list_artifacts(place, "artifacts"),
        started_at=now,
        ended_at=now,
    )
    data = evidence.model_dump_json().encode()
    (place / "evidence.json").write_bytes(data)
    proposal = {"parameters": {"training": RAN.model_dump(mode="json") | {"micro_batch": 2}}}
    (place / "proposal.json").write_text(json.dumps(proposal), encoding="utf-8")
    return StressRecords(workspace, Attempt("stress_test", 1, "published", evidence=sha256_bytes(data)))


def test_records_are_read_as_they_were_published(tmp_path: Path):
    found = records(tmp_path, DOCUMENTS)
    assert found.training() == RAN
    peak = found.peak()
    assert peak is not None
    assert (peak.process_bytes, peak.held_bytes, peak.confirmed) == (900, 500, True)
    assert found.read("device.json") == DOCUMENTS["device.json"]
    assert not found.changed


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_bytes(b"{}"), lambda path: path.write_bytes(b"\x00")]
)
def test_a_changed_record_is_none_and_nothing_stands_in_for_it(tmp_path: Path, spoil: Callable[[Path], Any]):
    for name, read in {
        "configuration.json": StressRecords.training,
        "calibration.json": StressRecords.peak,
        "device.json": lambda r: r.read("device.json") or None,
    }.items():
        found = records(tmp_path / name, DOCUMENTS)
        spoil(found.workspace.attempt("stress_test", 1) / "artifacts" / name)
        assert read(found) is None, name
        assert found.changed, name


def test_an_attempt_of_an_earlier_version_ran_what_was_proposed(tmp_path: Path):
    """It wrote no configuration and no calibration: that is no change."""
    found = records(tmp_path, {"measurement.json": {"buckets": []}})
    ran = found.training()
    assert ran is not None
    assert ran.micro_batch == 2
    assert found.peak() is None
    assert not found.changed


@pytest.mark.parametrize("odd", [{}, {"method": 7}, []])
def test_a_published_record_that_cannot_be_understood_is_said(tmp_path: Path, odd: Any):
    found = records(tmp_path, {"configuration.json": odd or {"method": None}, "calibration.json": odd})
    assert found.training() is None
    assert found.peak() is None
    assert found.changed


def test_without_a_published_attempt_there_is_nothing(tmp_path: Path):
    for attempt in (None, Attempt("stress_test", 1, "failed")):
        found = StressRecords(Workspace(tmp_path, "r1"), attempt)
        assert (found.training(), found.peak(), found.read("device.json"), found.changed) == (None, None, {}, False)
