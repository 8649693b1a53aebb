"""What a person sees at an open gate: the evidence of the finished stage, the proposal, expected beside actual."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.task_sheet import ExpectedRow, expected_beside_actual
from flows import gatefiles
from flows.decide import hint_without_gate, shown_proposal
from flows.frozen import frozen_policy
from flows.ledger import Ledger
from flows.standing import Waiting, sentence, waiting
from flows.state import Attempt, Gate, RunState, fold
from flows.workspace import Workspace, frozen_spec
from specs.canonical import sha256_bytes
from specs.errors import DecisionRefused, Refused
from specs.policy import Policy
from specs.project import Project
from specs.proposals import Proposal
from specs.results import Evidence
from specs.words import harmless


@dataclass(frozen=True)
class GateFacts:
    """Everything that an open gate shows."""

    workspace: Workspace
    state: RunState
    spec: Project
    gate: Gate
    proposal: Proposal
    previous: Proposal | None
    finished: Evidence | None
    also: list[Evidence]
    expected: list[ExpectedRow]
    policy: Policy

    def document(self) -> dict[str, Any]:
        """As plain data, for `review --json`."""
        return {
            "run": self.workspace.run,
            "project": self.spec.project,
            "gate": {
                "name": self.gate.name,
                "round": self.gate.round,
                "digest": self.gate.digest,
                "blocked": self.gate.blocked,
                "findings": [finding.model_dump(mode="json") for finding in self.gate.findings],
                **self.waiting.document(),
                "edits": [
                    {"actor": said.decision.actor, "edits": said.decision.edits, "comment": said.decision.comment}
                    for said in self.gate.amendments
                ],
            },
            "proposal": self.proposal.model_dump(mode="json"),
            "evidence": self.finished.model_dump(mode="json") if self.finished else None,
            "also": [evidence.model_dump(mode="json") for evidence in self.also],
            "expected": [row.model_dump(mode="json") for row in self.expected],
            "report": self.report,
            "changed": self.changed,
        }

    @property
    def changed(self) -> list[str]:
        """Files that are not what was shown when the gate opened, relative to the run's folder."""
        edited = bool(self.gate.amendments)
        return gatefiles.changed_files(
            self.workspace.folder, self.gate.name, self.gate.round, self.gate.digest, amended=edited
        )

    @property
    def waiting(self) -> Waiting:
        """Who has approved and who may still."""
        return waiting(self.policy, self.gate)

    @property
    def report(self) -> str | None:
        """Path of the finished stage's HTML report."""
        return None if self.finished is None else self.report_of(self.finished)

    def report_of(self, evidence: Evidence) -> str:
        """Path of a stage's HTML report."""
        return str(self.workspace.attempt(evidence.stage, evidence.attempt) / "report.html")

    @property
    def report_in_project(self) -> str | None:
        """The same, relative to the project."""
        return Path(self.report).relative_to(self.workspace.project_dir).as_posix() if self.report else None


def gate_facts(workspace: Workspace, ledger: Ledger, name: str | None = None) -> GateFacts:
    """An open gate of a run, the first one where none is named; raises `DecisionRefused` when none is open."""
    state = fold(ledger.events(workspace.run))
    gate = next((g for g in state.open_gates if name in (None, g.name)), None if name else state.gate)
    if gate is None or gate.closed or state.terminal:
        raise DecisionRefused(
            f"no gate of run {workspace.run} is open: it is {state.state} at {state.stage}",
            "start a new run" if state.terminal else hint_without_gate(workspace.run, ledger),
        )
    spec = frozen_spec(workspace)
    attempts = state.all_finished(gate.name)
    evidence = evidence_of(workspace, state)
    proposals = approved_proposals(workspace, state)
    sheet = proposals["data"].task_sheet if "data" in proposals else None
    last = state.proposals[gate.name, gate.round] if gate.amendments else last_round(state, gate.name, gate.round)
    proposal = gatefiles.load_proposal(workspace.folder, shown_proposal(state, gate))
    return GateFacts(
        workspace=workspace,
        state=state,
        spec=spec,
        gate=gate,
        proposal=proposal,
        previous=gatefiles.load_proposal(workspace.folder, last) if last else None,
        finished=evidence.get(attempts[0].stage) if attempts else None,
        also=[evidence[attempt.stage] for attempt in attempts[1:]],
        expected=expected_beside_actual(sheet, evidence, proposals, proposal) if sheet else [],
        policy=frozen_policy(state, workspace.folder),
    )


def last_round(state: RunState, gate: str, round: int) -> str | None:
    """Digest of the proposal that the round before ended with, a person's edits included; None for the first."""
    before = state.gates.get((gate, round - 1))
    edited = None
    if before is not None:
        edited = (before.decision.edited_proposal if before.decision else None) or before.edited_proposal
    return edited or state.proposals.get((gate, round - 1))


def evidence_of(workspace: Workspace, state: RunState) -> dict[str, Evidence]:
    """Evidence of every stage whose attempt counts, in order."""
    return {stage: read_evidence(workspace, attempt) for stage, attempt in state.inputs(state.stages).items()}


def read_evidence(workspace: Workspace, attempt: Attempt) -> Evidence:
    """The evidence of a published attempt. Raises `Refused` when the file is not the one that was published."""
    path = workspace.attempt(attempt.stage, attempt.number) / "evidence.json"
    data = path.read_bytes() if path.is_file() else b""
    if sha256_bytes(data) != attempt.evidence:
        raise Refused(
            f"{path} is {'not what was published' if data else 'missing'}",
            "restore it from a backup, or end the run with `gatewright reject`",
        )
    return Evidence.model_validate_json(data)


def approved_proposals(workspace: Workspace, state: RunState) -> dict[str, Proposal]:
    """The approved proposal of every gate that has one, edits included."""
    found = {}
    for gate in state.order:
        digest = state.approved_proposal(gate)
        if digest is not None:
            found[gate] = gatefiles.load_proposal(workspace.folder, digest)
    return found


def page(facts: GateFacts) -> str:
    """The gate as Markdown, in the project's language. No comment and no proposer's text can steer the terminal."""
    from agents.reporter import gate_page

    text = gate_page(
        gate=facts.gate.name,
        round=facts.gate.round,
        proposal=facts.proposal,
        previous=facts.previous,
        finished=facts.finished,
        expected=facts.expected,
        spec=facts.spec,
        report=facts.report_in_project,
        approvals=_approvals(facts),
        also=[(e, Path(facts.report_of(e)).relative_to(facts.workspace.project_dir).as_posix()) for e in facts.also],
    )
    return harmless(_warning(facts) + text)


_CHANGED: dict[str, str] = {
    "en": "**Not what was shown when the gate opened: {files}. Nobody can approve until it is restored.**\n\n",
    "zh": "**以下文件与审批点打开时展示的不一致：{files}。恢复之前无法批准。**\n\n",
}


def _warning(facts: GateFacts) -> str:
    """What was changed since the gate opened, before anything else; empty where nothing was."""
    files = "、" if facts.spec.language == "zh" else ", "
    changed = facts.changed
    return _CHANGED[facts.spec.language].format(files=files.join(f"`{name}`" for name in changed)) if changed else ""


def _approvals(facts: GateFacts) -> str:
    """Who approved and who is missing; empty where one person alone decides without a limit of time."""
    if facts.policy.solo and facts.waiting.expires_at is None:
        return ""
    return sentence(facts.waiting.document(), facts.spec.language)
