"""What an edit makes stale is computed again: the numbers that the gate showed, in the proposal and in its sheet."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import gatefiles
from flows.deciding import record
from flows.gatefiles import load_proposal
from flows.ledgers import ledger_of_run
from flows.starting import start_run
from flows.state import fold
from flows.workspace import Workspace
from specs.decisions import GateDocument
from specs.events import GateOpened, ProposalMade
from specs.proposals import Proposal

SPEC = """\
project: small
base_model: package:gatewright-tiny
sources:
  - {kind: work_orders, path: raw/orders.csv, columns: {phenomenon: Problem, repair: Repair}}
"""
SHA = "a" * 64


def expected(proposal: Proposal, metric: str) -> tuple[float, float]:
    """What the proposal expects of its stage, and what its task sheet says of it."""
    assert proposal.task_sheet is not None
    (stage,) = [s for s in proposal.task_sheet.stages if s.name == proposal.stage]
    own, sheet = ({e.metric: e.value for e in found} for found in (proposal.expected, stage.expected))
    return own[metric], sheet[metric]


@pytest.fixture
def at_first_gate(tmp_path: Path, tiny_model: Path) -> Workspace:
    """A run whose first gate is open: proposed by the rules, opened as the engine does."""
    from agents.proposer import make_proposer
    from flows.proposing import memory_of, proposer_context
    from flows.workspace import frozen_spec

    project = tmp_path / "small"
    (project / "raw").mkdir(parents=True)
    rows = "".join(f"spindle {rpm} noisy at {rpm} rpm,replaced bearing {rpm}\n" for rpm in range(1000, 1100))
    (project / "raw" / "orders.csv").write_text("Problem,Repair\n" + rows, encoding="utf-8")
    (project / "project.yaml").write_text(SPEC, encoding="utf-8")
    workspace = start_run(project, "first")
    ledger, spec = ledger_of_run(workspace), frozen_spec(workspace)
    context = proposer_context(workspace, spec, fold(ledger.events("first")), "data")
    proposal = make_proposer(spec, memory_of(workspace, spec)).consider(context).proposal
    digest = gatefiles.store_proposal(workspace.folder, proposal)
    ledger.append("first", ProposalMade(gate="data", round=1, proposal=digest, proposer="rules"), "gatewright")
    created = fold(ledger.events("first")).created
    assert created is not None
    document = GateDocument(
        run="first", gate="data", round=1, finished_stage=None, finished_attempt=None, evidence=None, report=None,
        plots={}, proposal=digest, inputs={}, base_model=None, code="0", spec=created.spec, policy=created.policy,
    )  # fmt: skip
    shown = gatefiles.write_gate(workspace.folder, document)
    ledger.open_gate("first", GateOpened(gate="data", round=1, digest=shown, blocked=False, findings=[]))
    return workspace


def test_numbers_that_an_edit_makes_stale_are_computed_again(at_first_gate: Workspace):
    ledger = ledger_of_run(at_first_gate)
    made = fold(ledger.events("first")).proposals["data", 1]
    before = load_proposal(at_first_gate.folder, made)
    total = expected(before, "samples_train")[0] + expected(before, "samples_eval")[0]
    assert expected(before, "samples_eval")[0] == pytest.approx(before.parameters["eval_share"] * total, abs=1)
    document = record(
        at_first_gate,
        ledger,
        choice="approve",
        actor="me",
        authentication="unauthenticated",
        edits={"eval_share": "0.4"},
    )
    after = load_proposal(at_first_gate.folder, document["edited_proposal"])
    held_out, in_sheet = expected(after, "samples_eval")
    assert held_out == in_sheet == pytest.approx(0.4 * total, abs=1)
    assert expected(after, "samples_train") == (total - held_out, total - held_out)
    assert expected(after, "rows_total") == expected(before, "rows_total")
    assert load_proposal(at_first_gate.folder, made) == before
