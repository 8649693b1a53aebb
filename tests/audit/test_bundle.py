"""A bundle alone is enough: it verifies without project and database, says what it lacks, and never holds raw data."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from pathlib import Path

import pytest

from flows.audit import AuditReport, export, read_anchor, verify, verify_bundle
from flows.audit.bundle import OBJECTS, VERBATIM
from flows.ledger.upkeep import record_upkeep
from specs.canonical import canonical_bytes, sha256_bytes, sha256_file
from specs.errors import InputError
from specs.events import DataRemoved, RemovedFile
from specs.policy import Approver, Policy
from specs.results import Evidence, list_artifacts
from tests.support.run_maker import RunMaker

FIXTURES = Path(__file__).parent / "fixtures"


def faults(report: AuditReport) -> list[str]:
    return [f"{n} {s.n} {s.check}: {s.detail}" for n, part in report.parts.items() for s in part.steps if not s.ok]


def details(report: AuditReport) -> dict[str, str]:
    return {step.check: step.detail for part in report.parts.values() for step in part.steps}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    policy = Policy(solo=False, approvers=[Approver(id="me", may_override=True), Approver(id="you")])
    return RunMaker(tmp_path_factory.mktemp("finished"), policy=policy).start().to_the_end()


@pytest.mark.parametrize("bundle", sorted(FIXTURES.glob("bundle-v*.zip")), ids=lambda p: p.stem)
def test_bundles_of_every_version_stay_verifiable(bundle: Path):
    anchor = read_anchor(bundle.with_name(bundle.stem.replace("bundle", "anchor") + ".json"))
    assert faults(verify_bundle(bundle)) == []
    assert faults(verify_bundle(bundle, anchor)) == []


def test_the_signatures_of_the_signed_fixture_are_verified():
    said = details(verify_bundle(FIXTURES / "bundle-v2.zip", read_anchor(FIXTURES / "anchor-v2.json")))
    assert said["the anchor is signed by a known key"].startswith("signed by me with the key SHA256:")
    assert said["each signature is by a key of its person, over exactly what was decided"] == "8 signed, 0 not signed"
    assert "a person asked for it" in said["artifacts are those the evidence lists"]


def test_there_is_a_fixture_of_every_version():
    from flows.audit import anchors, bundle

    assert len(list(FIXTURES.glob("bundle-v*.zip"))) == bundle.VERSION
    assert len(list(FIXTURES.glob("anchor-v*.json"))) == anchors.VERSION


@pytest.mark.parametrize("artifacts", [False, True])
def test_a_bundle_verifies_alone_and_says_what_it_lacks(finished: RunMaker, tmp_path: Path, artifacts: bool):
    path = tmp_path / "run.zip"
    export(finished.ledger, "r1", finished.run_dir, path, artifacts=artifacts)
    report = verify_bundle(path)
    assert faults(report) == []
    said = details(report)
    assert ("is not in the bundle" in said["artifacts are those the evidence lists"]) is not artifacts
    assert "a bundle holds no database" in said["the tables beside the chain repeat it"]
    assert ("10 artifacts" in said["what was handed over is whole"]) is not artifacts


@pytest.mark.parametrize("artifacts", [False, True])
def test_equal_histories_give_equal_bytes(finished: RunMaker, tmp_path: Path, artifacts: bool):
    for name in ("one.zip", "two.zip"):
        export(finished.ledger, "r1", finished.run_dir, tmp_path / name, artifacts=artifacts)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_bundle_holds_the_hashed_bytes_of_every_event(finished: RunMaker, tmp_path: Path):
    contents = export(finished.ledger, "r1", finished.run_dir, tmp_path / "one.zip")
    assert not [name for name in contents.entries if "artifacts" in name or name.startswith(OBJECTS)]
    assert {"policy.json", "spec.json", "gates/04-train/001/gate.json"} <= set(contents.entries)
    with zipfile.ZipFile(tmp_path / "one.zip") as bundle:
        lines = [json.loads(line) for line in bundle.read("events.jsonl").splitlines()]
    assert [line["hash"] for line in lines] == [sha256_bytes(line["body"].encode()) for line in lines]
    assert lines[-1]["hash"] == finished.ledger.head("r1")


def with_raw_data(folder: Path) -> RunMaker:
    """A run whose data stage has a quarantine and read one raw file; the evidence is written anew to list them."""
    maker = RunMaker(folder).start().until_gate("dry_run")
    (folder / "raw").mkdir()
    (folder / "raw" / "orders.csv").write_text("a private row")
    attempt = maker.run_dir / "01-data" / "001"
    for name in VERBATIM:
        (attempt / name).write_text(f"a private row in {name}")
    evidence = Evidence.model_validate_json((attempt / "evidence.json").read_bytes())
    raw = {"raw:raw/orders.csv": sha256_file(folder / "raw" / "orders.csv")}
    changes = {"artifacts": list_artifacts(attempt, "artifacts", "plots"), "inputs": raw}
    (attempt / "evidence.json").write_bytes(canonical_bytes(evidence.model_copy(update=changes)))
    return maker


def test_raw_data_and_quarantine_go_in_only_by_the_dangerous_option(tmp_path: Path):
    maker = with_raw_data(tmp_path / "project")
    held = {}
    for name, options in {
        "plain": {},
        "artifacts": {"artifacts": True},
        "raw": {"artifacts": True, "dangerously_raw_data_of": maker.project_dir},
    }.items():
        contents = export(maker.ledger, "r1", maker.run_dir, tmp_path / f"{name}.zip", **options)
        with zipfile.ZipFile(tmp_path / f"{name}.zip") as bundle:
            held[name] = sum(b"a private row" in bundle.read(entry) for entry in bundle.namelist())
        assert contents.left_out["raw data and quarantine"] == (0 if name == "raw" else 4)
    assert held == {"plain": 0, "artifacts": 0, "raw": 4}


def test_an_export_that_fails_leaves_no_half_bundle(finished: RunMaker, tmp_path: Path):
    with pytest.raises(InputError, match="there is no run"):
        export(finished.ledger, "r9", finished.run_dir, tmp_path / "one.zip")
    assert list(tmp_path.iterdir()) == []


def removed(maker: RunMaker, path: str) -> None:
    """Remove a file of the run as housekeeping does: record first, then delete."""
    file = maker.run_dir / path
    gone = RemovedFile(path=path, sha256=sha256_file(file), bytes=file.stat().st_size)
    payload = DataRemoved(run="r1", reason="a person asked for it", files=[gone])
    record_upkeep(maker.ledger, "demo", payload, "me")
    file.unlink()


def test_what_was_removed_on_request_is_said_and_is_no_damage(tmp_path: Path):
    maker = RunMaker(tmp_path / "project").start().until_gate("stress_test")
    removed(maker, "01-data/001/artifacts/result.txt")
    export(maker.ledger, "r1", maker.run_dir, tmp_path / "run.zip", artifacts=True)
    for report in (verify(maker.ledger, "r1", maker.run_dir), verify_bundle(tmp_path / "run.zip")):
        assert faults(report) == []
        said = details(report)["artifacts are those the evidence lists"]
        assert "was removed on request: a person asked for it" in said
    (maker.run_dir / "02-dry_run" / "001" / "artifacts" / "result.txt").unlink()
    assert any("result.txt is missing" in fault for fault in faults(verify(maker.ledger, "r1", maker.run_dir)))


def test_a_forged_removal_excuses_nothing(tmp_path: Path):
    maker = RunMaker(tmp_path / "project").start().until_gate("stress_test")
    removed(maker, "01-data/001/artifacts/result.txt")
    with sqlite3.connect(maker.project_dir / ".gatewright" / "gatewright.db") as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE upkeep SET body = replace(body, 'result.txt', 'more.txt')")
    connection.close()
    (maker.run_dir / "01-data" / "001" / "artifacts" / "more.txt").unlink()
    found = " ".join(faults(verify(maker.ledger, "r1", maker.run_dir)))
    assert "the project's own chain" in found
    assert "artifacts/more.txt is missing" in found


def test_the_keys_of_the_policy_travel_as_ssh_keygen_reads_them(tmp_path: Path):
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    policy = Policy(approvers=[Approver(id="me", may_override=True, keys=[key])])
    maker = RunMaker(tmp_path / "project", policy=policy).start()
    export(maker.ledger, "r1", maker.run_dir, tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as bundle:
        held = {name: bundle.read(name) for name in bundle.namelist()}
    assert held["keys.allowed_signers"] == f'"me" namespaces="gatewright" {key}\n'.encode()
    assert faults(verify_bundle(tmp_path / "run.zip")) == []
