"""Proposals lie under their digest, and equal input gives equal bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.gatefiles import gate_bytes, gate_folder, load_proposal, proposal_path, store_proposal
from specs.canonical import sha256_bytes
from specs.errors import InputError
from specs.proposals import Proposal
from tests.support.run_maker import RunMaker


def proposal(round_: int = 1) -> Proposal:
    return Proposal(stage="data", round=round_, parameters={"seed": 17}, reasons=[], proposer="rules")


def test_a_proposal_is_found_by_the_digest_of_its_bytes(tmp_path: Path):
    digest = store_proposal(tmp_path, proposal())
    assert sha256_bytes(proposal_path(tmp_path, digest).read_bytes()) == digest == proposal().sha256
    assert load_proposal(tmp_path, digest) == proposal()
    assert store_proposal(tmp_path, proposal(2)) != digest


def test_storing_again_writes_nothing_and_repairs_what_was_damaged(tmp_path: Path):
    digest = store_proposal(tmp_path, proposal())
    path = proposal_path(tmp_path, digest)
    before = path.stat().st_mtime_ns
    assert store_proposal(tmp_path, proposal()) == digest
    assert path.stat().st_mtime_ns == before
    path.write_bytes(b"half a prop")
    assert store_proposal(tmp_path, proposal()) == digest
    assert load_proposal(tmp_path, digest) == proposal()


def test_a_changed_or_missing_proposal_is_named(tmp_path: Path):
    digest = store_proposal(tmp_path, proposal())
    path = proposal_path(tmp_path, digest)
    path.write_bytes(path.read_bytes().replace(b"17", b"18"))
    with pytest.raises(InputError, match="was changed"):
        load_proposal(tmp_path, digest)
    path.unlink()
    with pytest.raises(InputError, match="is missing"):
        load_proposal(tmp_path, digest)


def test_two_equal_runs_show_the_same_bytes(tmp_path: Path):
    shown = []
    for name in ("one", "two"):
        maker = RunMaker(tmp_path / name).start().until_gate("dry_run")
        shown.append(gate_bytes(maker.run_dir, "dry_run", 1))
    assert shown[0] == shown[1]


def test_every_round_has_a_folder_of_its_own(tmp_path: Path):
    maker = RunMaker(tmp_path).start().until_gate("data")
    first = gate_bytes(maker.run_dir, "data", 1)
    maker.decide("rework", comment="again")
    maker.until_gate("data")
    assert gate_bytes(maker.run_dir, "data", 1) == first
    assert gate_bytes(maker.run_dir, "data", 2) != first
    assert gate_folder(maker.run_dir, "data", 2).relative_to(maker.run_dir).as_posix() == "gates/01-data/002"
