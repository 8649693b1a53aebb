"""Histories rebuilt around a quorum, an edit or an expiry, every hash right: authority finds each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.audit import verify
from flows.expiring import expire_if_due
from flows.gatefiles import gate_path
from specs.policy import Approver, Policy
from tests.audit.test_tampering import Target
from tests.support.run_maker import RunMaker

ALLOWED = "each decision was allowed by the policy"
SHOWN = "each decision names a gate that was open, with the digest of what it showed"
ONCE = "each gate and round was decided once"
QUORUM = "each gate that opened had its quorum, and each edit was confirmed by others"
POLICY = Policy(
    solo=False, quorum=2, expires_after="2h", approvers=[Approver(id=name) for name in ("li", "wang", "zhao")]
)
Bodies = list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    """An approval of two, an edit that two others confirm, and a gate that expired."""
    maker = RunMaker(tmp_path_factory.mktemp("told") / "project", policy=POLICY).start().until_gate("data")
    maker.decide(actor="li")
    maker.decide(actor="wang")
    maker.until_gate("dry_run", by=("li", "wang"))
    maker.decide(actor="li", edits={"steps": "40"})
    maker.decide(actor="wang", expected_digest=maker.shown)
    maker.decide(actor="zhao", expected_digest=maker.shown)
    maker.until_gate("stress_test", by=("li", "wang"))
    maker.clock.at += timedelta(hours=3)
    assert expire_if_due(maker.ledger, "r1", maker.run_dir)
    maker.work()
    return maker


@pytest.fixture
def target(told: RunMaker, tmp_path: Path) -> Target:
    told.ledger.close()
    shutil.copytree(told.project_dir, tmp_path / "project")
    return Target(tmp_path / "project")


def failed(target: Target) -> set[str]:
    maker = RunMaker(target.run_dir.parents[1], policy=POLICY)
    report = verify(maker.ledger, "r1", target.run_dir)
    maker.ledger.close()
    parts = (report.integrity, report.completeness, report.authority)
    return {step.check for part in parts for step in part.steps if not step.ok}


def change(kind: str, index: int, edit: Callable[[dict[str, Any]], None]) -> Callable[[Bodies], Bodies]:
    def rebuilt(bodies: Bodies) -> Bodies:
        edit([body for body in bodies if body["kind"] == kind][index])
        return bodies

    return rebuilt


def drop(kind: str, index: int) -> Callable[[Bodies], Bodies]:
    def rebuilt(bodies: Bodies) -> Bodies:
        bodies.remove([body for body in bodies if body["kind"] == kind][index])
        return bodies

    return rebuilt


def repeat(kind: str) -> Callable[[Bodies], Bodies]:
    def rebuilt(bodies: Bodies) -> Bodies:
        at = next(i for i, body in enumerate(bodies) if body["kind"] == kind)
        return [*bodies[: at + 1], bodies[at], *bodies[at + 1 :]]

    return rebuilt


def by(who: str) -> Callable[[dict[str, Any]], None]:
    def edit(body: dict[str, Any]) -> None:
        body["actor"] = body["payload"]["decision"]["actor"] = who
        approved = body["payload"]["approved_by"]
        approved[-1:] = [who]

    return edit


def claims(*people: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["payload"].update(approved_by=list(people))


def decided(body: dict[str, Any]) -> None:
    body["kind"] = "decision.recorded"
    del body["payload"]["quorum"]


FORGERIES: dict[str, tuple[Callable[[Bodies], Bodies], str]] = {
    "one approval of two taken out": (drop("approval.recorded", 0), QUORUM),
    "one approval passed off as the decision": (change("approval.recorded", 0, decided), QUORUM),
    "the same person twice": (change("decision.recorded", 0, by("li")), ONCE),
    "an approval by a stranger": (change("approval.recorded", 0, by("mallory")), ALLOWED),
    "an approval counted double": (repeat("approval.recorded"), ONCE),
    "approvers that did not approve": (change("decision.recorded", 0, claims("zhao", "wang")), QUORUM),
    "the editor confirms the own edit": (change("decision.recorded", 1, by("li")), ALLOWED),
    "an edit taken out": (drop("gate.amended", 0), SHOWN),
    "an edit that nobody had to confirm": (drop("approval.recorded", 1), QUORUM),
    "other edits than the proposal holds": (
        change("gate.amended", 0, lambda body: body["payload"]["decision"]["edits"].update(steps=50)),
        QUORUM,
    ),
    "an edit shown under another digest": (
        change("gate.amended", 0, lambda body: body["payload"].update(digest="b" * 64)),
        SHOWN,
    ),
    "an editor who counts": (change("gate.amended", 0, claims("li")), QUORUM),
    "an expiry before its time": (
        change("gate.expired", 0, lambda body: body["payload"].update(expired_at="2026-01-02T04:00:00Z")),
        ALLOWED,
    ),
    "an expiry of another gate": (
        change("gate.expired", 0, lambda body: body["payload"].update(gate="data", round=1)),
        ONCE,
    ),
}


def test_the_honest_history_has_no_fault(target: Target):
    assert failed(target) == set()


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_by_the_check_that_it_belongs_to(target: Target, name: str):
    forge, check = FORGERIES[name]
    target.rebuild(forge)
    assert check in failed(target)


def test_what_the_gate_showed_after_an_edit_is_verified(target: Target, told: RunMaker):
    gate = told.state.gates["dry_run", 1]
    path = gate_path(target.run_dir, "dry_run", 1, gate.digest)
    path.write_bytes(path.read_bytes() + b" ")
    assert QUORUM in failed(target)
