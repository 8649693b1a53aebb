"""The main job, from raw files to a release bundle, on the Chinese example with the tiny bilingual model."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import GATES, called, gatewright

STAGE_FOLDERS = ("01-data", "02-dry_run", "03-stress_test", "04-train", "05-evaluate")


def test_a_run_goes_from_raw_files_to_a_release_bundle(finished: Path) -> None:
    status = called("status", "--json", cwd=finished).json
    assert status["state"] == "finished"
    assert [s["state"] for s in status["stages"]] == ["published"] * 5
    release = finished / "runs" / "first" / "release"
    for name in ("adapter/adapter_model.safetensors", "model_card.md", "attestation.json", "manifest.json"):
        assert (release / name).is_file(), name


def test_the_adapter_beats_the_base_model_on_held_out_samples(finished: Path) -> None:
    metrics = json.loads((finished / "runs/first/05-evaluate/001/evidence.json").read_bytes())["metrics"]
    assert metrics["eval_loss_adapter"]["value"] < 0.8 * metrics["eval_loss_base"]["value"]
    # pairing_gain is noise on half a million parameters after 40 steps; tests/evaluate/test_red_toys.py is about it
    assert metrics["pairing_gain"]["value"] is not None


def test_every_stage_leaves_evidence_and_a_report_in_the_language_of_the_project(finished: Path) -> None:
    for name in STAGE_FOLDERS:
        folder = finished / "runs/first" / name / "001"
        for file in ("evidence.json", "proposal.json", "gate.json", "report.md", "report.html"):
            assert (folder / file).is_file(), f"{name}/{file}"
        text = (folder / "report.html").read_text(encoding="utf-8")
        assert 'lang="zh' in text
        assert "<svg" in text
        assert "http://www.w3.org" in text or "http" not in text


def test_every_gate_was_decided_once_by_the_person_and_the_ledger_says_how(finished: Path) -> None:
    events = called("audit", "list", "--json", cwd=finished).json["events"]
    decisions = [e["payload"]["decision"] for e in events if e["kind"] == "decision.recorded"]
    assert [d["gate"] for d in decisions] == list(GATES)
    assert {d["actor"] for d in decisions} == {"me"}
    assert {d["authentication"] for d in decisions} == {"unauthenticated"}
    assert all(d["self_approved"] for d in decisions)


def test_the_history_verifies_in_all_three_respects(finished: Path) -> None:
    answer = gatewright("audit", "verify", "--json", cwd=finished)
    assert answer.code == 0, answer.out
    report = answer.json
    assert report["ok"]
    assert all(report[part]["ok"] for part in ("integrity", "completeness", "authority"))


def test_every_metric_is_recomputed_from_the_artifacts_alone(finished: Path) -> None:
    answer = gatewright("verify", "first", "--json", cwd=finished)
    assert answer.code == 0, answer.out
    assert [s["stage"] for s in answer.json["stages"]] == ["data", "dry_run", "stress_test", "train", "evaluate"]


def test_a_changed_artifact_is_found_by_both_verifiers(finished: Path, copy_of) -> None:
    project = copy_of(finished)
    metrics = project / "runs/first/04-train/001/artifacts/metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert gatewright("verify", "first", "train", "--json", cwd=project).code == 7
    answer = called("audit", "verify", "--json", cwd=project)
    assert answer.code == 7
    assert not answer.json["integrity"]["ok"]


def test_resume_of_a_finished_run_does_nothing_and_says_so(finished: Path) -> None:
    before = called("audit", "list", "--json", cwd=finished).json["events"]
    answer = gatewright("resume", cwd=finished)
    assert answer.code == 0
    assert "已完成" in answer.out
    assert called("audit", "list", "--json", cwd=finished).json["events"] == before
