"""Stages of a project's own through a deployed worker, with the ledger in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.audit import verify
from flows.handing import hand_in
from flows.ledgers import ledger_of_run
from flows.state import RunState, fold
from flows.steps import waits_for_work
from flows.workspace import Workspace
from tests.flows.test_deployed_light import ROOT, SUBMIT, home, python, until
from tests.support import light_run, postgresql
from tests.support.added_project import COUNT, STAGES

__all__ = ["home"]

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Where the ledger lies: null is the project's own file."""
    if request.param == "sqlite":
        yield None
        return
    try:
        with postgresql.server() as place:
            yield place
    except postgresql.NoPostgresql as reason:
        pytest.skip(str(reason))


def test_a_worker_runs_commands_and_waits_for_the_work_of_people(home: Path, tmp_path: Path, url: str | None):
    project = light_run.make_project(tmp_path / "p", ledger=url, more=STAGES)
    (project / "count.py").write_text(COUNT)
    workspace = Workspace(project, "r1")
    python(SUBMIT, str(project), str(ROOT))
    ledger = ledger_of_run(workspace)

    def state() -> RunState:
        return fold(ledger.events("r1"))

    def asks(*gates: str) -> bool:
        return {gate.name for gate in state().open_gates} == set(gates) and ledger.lease_holder("r1") is None

    until(lambda: asks("data"))
    light_run.decide(workspace, name="data")
    until(lambda: asks("count", "look", "dry_run"))
    light_run.decide(workspace, name="count")
    light_run.decide(workspace, name="look")
    until(lambda: waits_for_work(state()) == ["look"] and state().done("count") and asks("dry_run"))
    (project / "filled.csv").write_text("all is good\n")
    hand_in(workspace, ledger, project / "filled.csv", "me", authentication="terminal")
    until(lambda: state().done("look") and asks("dry_run"))
    for gate, following in (("dry_run", "stress_test"), ("stress_test", "train"), ("train", "evaluate")):
        light_run.decide(workspace, name=gate)
        until(lambda following=following: asks(following))
    light_run.decide(workspace, name="evaluate")
    until(lambda: asks("release"))
    light_run.decide(workspace, name="release")
    until(lambda: state().state == "finished")
    assert {stage: state().attempts[stage][-1].number for stage in ("count", "look")} == {"count": 1, "look": 1}
    report = verify(ledger, "r1", workspace.folder)
    assert report.ok, [step.detail for step in report.authority.steps if not step.ok]
