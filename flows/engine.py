"""What a run does, step by step, each step safe to enter again: propose, open a gate, run a stage, release.

The engine reads what to do next from the ledger alone and writes what was done before it moves on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agents.proposer import make_proposer
from agents.task_sheet import ExpectedRow, expected_beside_actual
from flows import gatefiles, runner
from flows.amending import settle
from flows.entitled import require_entitled
from flows.ledger import Lease, Ledger
from flows.ledger.chain import timestamp
from flows.ledger.lease import beating
from flows.ledger.store import MovedError
from flows.measured import new_rungs, new_trials
from flows.opening import gate_document
from flows.overruling import confirmed, overruled
from flows.proposing import memory_of, model_of, proposer_context
from flows.rehearsing import finished_record
from flows.reviewing import approved_proposals, evidence_of
from flows.session import Session, session_of
from flows.sheets import with_sheet_file
from flows.state import RunState, fold
from flows.steps import (
    Done,
    HandOut,
    NextStep,
    OpenGate,
    Propose,
    RecordVerdicts,
    Rejected,
    Release,
    RunStage,
    next_steps,
)
from flows.workspace import Workspace, frozen_spec, ledger_url, live_spec
from specs import events
from specs.canonical import canonical_bytes, sha256_bytes, sha256_file
from specs.errors import GatewrightError, InputError, Refused, Stopped
from specs.files import write_json
from specs.project import Project
from specs.proposals import BaseModelFacts, Expectation, Proposal, blocking_findings
from specs.results import Evidence
from specs.secrets import redacted
from specs.stage_graph import RELEASE
from specs.stages import Handed, Progress
from tasks.models.resolve import ResolvedModel
from tasks.registry import definition

ACTOR = "gatewright"


@dataclass
class Engine:
    """One process at work on one run, under a lease."""

    workspace: Workspace
    spec: Project
    ledger: Ledger
    lease: Lease
    session: Session

    def append(self, *payloads: events.Payload) -> None:
        """Record events under this process's fence, all of them or none."""
        self.ledger.append_all(self.workspace.run, payloads, ACTOR, fence=self.lease.fence)

    @property
    def state(self) -> RunState:
        """The run as the ledger has it now."""
        return fold(self.ledger.events(self.workspace.run))

    @property
    def steps(self) -> list[NextStep]:
        """Everything that is due now, what waits for people among it."""
        return next_steps(self.state, retry=not self.session.anew)

    @cached_property
    def model(self) -> ResolvedModel:
        """The base model as a local folder; converted or downloaded once."""
        return model_of(self.workspace, self.spec, self.session.progress)

    @cached_property
    def live_spec(self) -> Project:
        """The spec with the passwords of its URLs: for use, never to be written."""
        return live_spec(self.workspace, self.spec)

    def attempt_folder(self, stage: str, state: RunState | None = None) -> Path:
        """The folder of the attempt of a stage that counts; raises when the stage has none."""
        attempt = (state or self.state).current(stage)
        if attempt is None or attempt.state != "published":
            raise GatewrightError(f"{stage} has no published attempt", "`gatewright status` shows where the run stands")
        return self.workspace.attempt(stage, attempt.number)

    def evidence(self, state: RunState | None = None) -> dict[str, Evidence]:
        """Evidence of every stage whose attempt counts, in order."""
        return evidence_of(self.workspace, state or self.state)

    def approved(self, gate: str, state: RunState | None = None) -> Proposal:
        """The proposal that was approved at a gate, edits included."""
        return approved_proposals(self.workspace, state or self.state)[gate]

    # -- steps

    def propose(self, step: Propose) -> None:
        """Make the proposal of a gate's round and store it before the gate opens."""
        feedback = step.feedback.words if step.feedback else ""
        context = proposer_context(self.workspace, self.spec, self.state, step.gate, step.round, feedback, self.ledger)
        outcome = make_proposer(self.live_spec, memory_of(self.workspace, self.spec, self.ledger)).consider(context)
        proposal = with_sheet_file(self.workspace, outcome.proposal, context)
        if step.gate == self.state.order[0]:  # whoever signs the first gate knows what everything is built on
            facts = BaseModelFacts(revision=self.model.revision, licence=self.model.licence)
            proposal = proposal.model_copy(update={"base_model": facts})
        digest = gatefiles.store_proposal(self.workspace.folder, proposal)
        if outcome.transcript is not None:
            path = self.workspace.folder / "transcripts" / f"{outcome.transcript.sha256}.json"
            write_json(path, outcome.transcript)
            self.append(
                events.TranscriptStored(
                    gate=step.gate,
                    round=step.round,
                    transcript=outcome.transcript.sha256,
                    model=outcome.transcript.model,
                    calls=outcome.transcript.calls,
                )
            )
        if outcome.fallback is not None:
            self.append(outcome.fallback.model_copy(update={"why": redacted(outcome.fallback.why)}))
        self.append(
            events.ProposalMade(gate=step.gate, round=step.round, proposal=digest, proposer=outcome.proposal.proposer)
        )

    def open_gate(self, step: OpenGate) -> None:
        """Write what the person will be shown, then record that the gate is open.

        What the gate shows names the event before it. Where stages run side by side, or another gate is decided
        meanwhile, that may no longer be the newest one: then it is written again.
        """
        findings = blocking_findings(gatefiles.load_proposal(self.workspace.folder, step.proposal))
        while step in self.steps:
            state = self.state
            document = gate_document(self.workspace, self.spec, state, step, self.model.sha256)
            opened = events.GateOpened(
                gate=step.gate,
                round=step.round,
                digest=gatefiles.write_gate(self.workspace.folder, document),
                blocked=bool(findings) or state.blocked(step.gate),
                findings=findings,
            )
            try:
                self.ledger.open_gate(self.workspace.run, opened, fence=self.lease.fence, after=state.head)
                return
            except MovedError:
                continue

    def hand_out(self, step: HandOut) -> None:
        """Write what a person needs for the work of a stage, then record that it was handed out."""
        require_entitled(self.ledger, self.workspace)
        order = self._order(step.stage, 1)
        files = runner.hand_out(order, self.workspace.handed_out(step.stage, step.round), self.session.progress)
        self.append(events.WorkHandedOut(stage=step.stage, round=step.round, files=files))

    def run_stage(self, step: RunStage, progress: Progress | None = None) -> None:
        """Run an attempt, or adopt one that a crash left published without its record."""
        stage, number = step.stage, step.attempt
        require_entitled(self.ledger, self.workspace)
        order = self._order(stage, number)
        if step.partial and (evidence := runner.adopt(order)) is not None:
            self._published(evidence, adopted=True)
            return
        target = self.workspace.attempt(stage, number)
        if target.exists():
            raise Refused(f"{target} exists, and this run did not make it", "move it away, then `gatewright resume`")
        left = runner.set_aside(self.workspace.partial(stage, number))
        if left is not None:
            self.append(events.AttemptAbandoned(stage=stage, attempt=number, reason=f"partial, left as {left.name}"))
        parameters = sha256_bytes(canonical_bytes(order.proposal.parameters))
        reserved = events.AttemptReserved(stage=stage, attempt=number, parameters=parameters)
        try:
            digests = runner.input_digests(order)
        except GatewrightError as error:  # an attempt that failed can be proposed anew, and its gate leads back
            self.append(reserved, _failure(stage, number, error))
            raise
        self.append(reserved, events.InputsHashed(stage=stage, attempt=number, moment="before", inputs=digests))
        try:
            runner.require_as_shown(order, digests)
            runner.run_attempt(order, progress or self.session.progress, self._published, self.lease.check)
        except Stopped:
            raise
        except Exception as error:
            self.append(*self._measured(stage, number, self.workspace.checkpoints(stage, number)))
            self.append(_failure(stage, number, error))
            raise

    def _measured(self, stage: str, attempt: int, folder: Path) -> list[events.Payload]:
        """What the stage wrote down on its way and is not recorded yet."""
        of = (self.ledger, self.workspace, stage, attempt, folder)
        return [*new_rungs(*of), *new_trials(*of)]

    def _published(self, evidence: Evidence, adopted: bool = False) -> None:
        stage, attempt = evidence.stage, evidence.attempt
        folder = self.workspace.attempt(stage, attempt)
        self.append(
            *self._measured(stage, attempt, folder / "artifacts"),
            events.InputsHashed(stage=stage, attempt=attempt, moment="after", inputs=evidence.inputs),
            events.AttemptPublished(
                stage=stage,
                attempt=attempt,
                evidence=sha256_file(folder / "evidence.json"),
                report=sha256_file(folder / "report.md"),
                report_html=sha256_file(folder / "report.html"),
                adopted=adopted,
            ),
            events.VerdictsRecorded(stage=stage, attempt=attempt, verdicts=evidence.verdicts),
        )

    def _order(self, stage: str, number: int) -> runner.Order:
        state = self.state
        approval = state.approvals[stage]
        about = definition(self.spec, stage)
        return runner.Order(
            workspace=self.workspace,
            spec=self.spec,
            stage=stage,
            attempt=number,
            proposal=self.approved(stage, state),
            gate_document=gatefiles.gate_bytes(
                self.workspace.folder, approval.name, approval.round, approval.digest if approval.amendments else ""
            ),
            inputs={asked: self.attempt_folder(given, state) for asked, given in about.inputs.items()},
            model=self.model if about.needs_model else None,
            expected=self._expected(stage, state),
            handed=self._handed(state, stage, approval.round),
            go_on=overruled(self.ledger.events(self.workspace.run), stage, self.approved(stage, state)),
            confirmed=confirmed(self.ledger.events(self.workspace.run), stage, self.approved(stage, state)),
        )

    def _handed(self, state: RunState, stage: str, round: int) -> Handed | None:
        """The work that a person handed in for a stage; None where none is due."""
        came = state.handed_in.get((stage, round))
        if came is None:
            return None
        return Handed(
            sheet_dir=self.workspace.handed_out(stage, round),
            files=state.handed_out[stage, round].files,
            path=self.workspace.handed_in(came.work.sha256),
            sha256=came.work.sha256,
            author=came.actor,
            authentication=came.work.authentication,
            at=timestamp(came.at),
        )

    def _expected(self, stage: str, state: RunState) -> Sequence[Expectation | ExpectedRow]:
        """What the sheet and the stage's own proposal expect of it; the proposal, being later, wins.

        For a stage that the release waits for, the whole sheet: every other stage's numbers beside what came.
        """
        sheet = self.approved("data", state).task_sheet
        if sheet is not None and stage in self.spec.graph.before[RELEASE]:
            return expected_beside_actual(sheet, self.evidence(), approved_proposals(self.workspace, state))
        found = {e.metric: e for s in (sheet.stages if sheet else []) if s.name == stage for e in s.expected}
        found.update({e.metric: e for e in self.approved(stage, state).expected})
        return list(found.values())

    def record_verdicts(self, step: RecordVerdicts) -> None:
        """Record verdicts that a crash left unrecorded; they are in the published evidence."""
        evidence = self.evidence()[step.stage]
        self.append(events.VerdictsRecorded(stage=step.stage, attempt=evidence.attempt, verdicts=evidence.verdicts))

    def end(self, step: Done | Rejected) -> None:
        """Write the terminal record, once."""
        if step.recorded:
            return
        if isinstance(step, Done):
            require_entitled(self.ledger, self.workspace)
            self.append(finished_record(self.workspace, self.state))
            return
        decision = step.gate.decision
        comment = decision.comment if decision else "nobody decided in time"
        self.append(events.RunRejected(gate=step.gate.name, round=step.gate.round, comment=comment))

    def release(self, step: Release) -> None:
        """Build the release bundle and end the run."""
        from flows.releasing import build

        require_entitled(self.ledger, self.workspace)
        manifest = build(self.workspace, self.ledger, self.session.progress)
        folder = self.workspace.release.relative_to(self.workspace.folder).as_posix()
        self.append(events.ReleasePublished(folder=folder, manifest=manifest))


def _failure(stage: str, attempt: int, error: Exception) -> events.AttemptFailed:
    message = redacted(error.message if isinstance(error, GatewrightError) else str(error))
    return events.AttemptFailed(stage=stage, attempt=attempt, error=type(error).__name__, message=message)


@contextmanager
def at_work(project_dir: Path, run: str, take_over: str = "") -> Iterator[Engine]:
    """Take the lease of a run, keep it alive, and give it back at the end.

    Raises `LeaseHeld` when another process has it. `take_over` says why a silent holder on another host is gone.
    """
    workspace = Workspace(project_dir, run)
    spec = frozen_spec(workspace)
    ledger = Ledger.open(ledger_url(project_dir, live_spec(workspace, spec)))
    created = fold(ledger.events(run)).created
    if created is None:
        raise InputError(f"the ledger does not know the run {run!r}", "`gatewright runs` lists the runs")
    settle(workspace, created.spec)
    spec = frozen_spec(workspace)
    if sha256_file(workspace.folder / "spec.json") != created.spec:
        raise Refused(
            f"spec.json of run {run} is not the spec that the run began with",
            f"restore it from a backup, or end the run: gatewright close {run} --as WHO -m WHY",
        )
    lease = ledger.take_lease(run, take_over=take_over)
    try:
        with beating(lease):
            yield Engine(workspace, spec, ledger, lease, session_of(run))
    finally:
        lease.release()
