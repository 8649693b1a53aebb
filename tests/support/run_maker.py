"""An honest run made quickly: the real ledger and the real files, with stages that only write two small ones."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.event import listen

from flows.decide import decide
from flows.gatefiles import attempt_folder, load_proposal, store_proposal, write_gate
from flows.ledger import Lease, Ledger
from flows.state import (
    Done,
    NextStep,
    OpenGate,
    Propose,
    RecordVerdicts,
    Rejected,
    Release,
    RunStage,
    RunState,
    Wait,
    fold,
    next_step,
)
from specs.canonical import canonical_bytes, digest, sha256_bytes, sha256_file
from specs.criteria import Criterion, Metric, blocked, judge
from specs.decisions import GateDocument
from specs.events import (
    AttemptFailed,
    AttemptPublished,
    AttemptReserved,
    Event,
    GateOpened,
    InputsHashed,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    RunFinished,
    RunRejected,
    VerdictsRecorded,
)
from specs.files import write_bytes, write_json
from specs.metrics import STAGES
from specs.parameters import PARAMETERS
from specs.policy import Policy
from specs.project import Project
from specs.proposals import Expectation, Finding, Proposal, Reason, SheetStage, TaskSheet, blocking_findings
from specs.results import Evidence, list_artifacts

CRITERIA = [Criterion(metric="loss", op="<", bound=1.0), Criterion(metric="speed", op=">", bound=5.0, blocking=False)]
SHA = "a" * 64


class SteppingClock:
    """One second later at every look."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


def parameters(stage: str) -> dict[str, Any]:
    """Valid parameters of a stage."""
    needed: dict[str, Any] = {"training": {}} if stage in ("stress_test", "train") else {}
    if stage == "dry_run":
        needed = {"model": "small", "training": {}}
    return PARAMETERS[stage].model_validate(needed).model_dump(mode="json")


class RunMaker:
    """Drives one run as the pipeline does. `policy` decides who may decide; the clock steps by itself."""

    def __init__(
        self, project_dir: Path, run: str = "r1", policy: Policy | None = None, spec: Project | None = None
    ) -> None:
        self.project_dir, self.run, self.spec = project_dir, run, spec
        self.run_dir = project_dir / "runs" / run
        self.policy = policy or Policy()
        self.clock = SteppingClock()
        self.ledger = Ledger.open(project_dir / ".gatewright" / "gatewright.db", clock=self.clock)
        # Power losses are not what these tests are about.
        listen(self.ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        self.ledger.close()
        self.lease: Lease | None = None
        self.findings: list[Finding] = []

    def start(self) -> RunMaker:
        """Create the run and take its lease."""
        frozen = {
            name: sha256_bytes(write_json(self.run_dir / f"{name}.json", document))
            for name, document in (
                ("spec", self.spec or {"project": "demo"}),
                ("policy", self.policy),
                ("environment", {}),
            )
        }
        created = RunCreated(
            project="demo", code="0.1.0", stages=list(STAGES), solo=self.policy.solo, identity="a" * 32, **frozen
        )
        self.ledger.create_run(self.run, created, self.project_dir, "me")
        self.lease = self.ledger.take_lease(self.run)
        return self

    def copy(self, folder: Path) -> RunMaker:
        """The same run in another folder, going on from where this one stands."""
        self.ledger.close()
        shutil.copytree(self.project_dir, folder)
        other = RunMaker(folder, self.run, self.policy, self.spec)
        other.clock.at = self.clock.at
        other.lease = replace(self.lease, ledger=other.ledger) if self.lease else None
        return other

    @property
    def state(self) -> RunState:
        """The run as it stands."""
        return fold(self.ledger.events(self.run))

    @property
    def next(self) -> NextStep:
        """What comes next."""
        return next_step(self.state)

    @property
    def fence(self) -> int:
        """The fence of this process."""
        assert self.lease is not None
        return self.lease.fence

    def work(self, loss: float = 0.5, fail: str = "") -> NextStep:
        """Do the next step, which must not be a person's; stages bring `loss`, or fail with a message."""
        step = self.next
        if isinstance(step, Propose):
            self._propose(step)
        elif isinstance(step, OpenGate):
            self._open(step)
        elif isinstance(step, RunStage):
            self._stage(step, loss, fail)
        elif isinstance(step, RecordVerdicts):
            self._verdicts(step.stage, step.attempt)
        elif isinstance(step, Release):
            write_bytes(self.run_dir / "release" / "weights.bin", b"weights")
            files = list_artifacts(self.run_dir / "release", "")
            listed = {"files": [file.model_dump() for file in files if file.path != "manifest.json"]}
            manifest = write_json(self.run_dir / "release" / "manifest.json", listed)
            self._append(ReleasePublished(folder="release", manifest=sha256_bytes(manifest)))
        elif isinstance(step, Done) and not step.recorded:
            self._append(RunFinished())
        elif isinstance(step, Rejected) and not step.recorded:
            self._append(RunRejected(gate=step.gate.name, round=step.gate.round, comment="no"))
        else:
            raise AssertionError(f"{step} is not the pipeline's")
        return step

    def until_gate(self, gate: str | None = None, loss: float = 0.5, by: Sequence[str] = ("me",)) -> RunMaker:
        """Work, all of `by` approving on the way, until a gate waits: the next one, or the named one."""
        while not isinstance(step := self.next, Wait) or (gate is not None and step.gate != gate):
            if isinstance(step, Wait):
                for who in by:
                    self.decide(actor=who)
            else:
                self.work(loss=loss)
        return self

    def to_the_end(self) -> RunMaker:
        """Work, approving every gate, until the run has ended."""
        while not (isinstance(step := self.next, Done | Rejected) and step.recorded):
            if isinstance(step, Wait):
                self.decide(override=step.blocked)
            else:
                self.work()
        return self

    @property
    def shown(self) -> str:
        """The digest of what the open gate shows now, a person's edits included."""
        gate = self.state.gate
        assert gate is not None
        return gate.digest

    def decide(self, choice: str = "approve", actor: str = "me", **more: Any) -> Event:
        """Decide on the open gate."""
        more = {"comment": "seen", "authentication": "terminal", "guard": lambda proposal: None, **more}
        return decide(self.ledger, self.run, choice=choice, actor=actor, run_dir=self.run_dir, **more)

    def _append(self, *payloads: Any) -> None:
        self.ledger.append_all(self.run, payloads, "gatewright", self.fence)

    def _proposed(self, gate: str) -> dict[str, Any]:
        """What is proposed at a gate: for `train` what the stress test was approved with, as the guard demands."""
        measured = self.state.approved_proposal("stress_test") if gate == "train" else None
        if measured is None:
            return parameters(gate)
        return {"training": load_proposal(self.run_dir, measured).parameters["training"]}

    def _propose(self, step: Propose) -> None:
        stages = [sheet_stage(name) for name in STAGES]
        sheet = TaskSheet(goal="repair", stages=stages, findings=self.findings) if step.gate == "data" else None
        proposal = Proposal(
            stage=step.gate,
            round=step.round,
            parameters=self._proposed(step.gate),
            reasons=[Reason(parameter="seed", text="any", source="rule:seed")],
            expected=[Expectation(metric="loss", value=0.4, unit="nats/token")],
            proposer="rules",
            answers_feedback=step.feedback.comment if step.feedback else "",
            task_sheet=sheet,
        )
        made = store_proposal(self.run_dir, proposal)
        self._append(ProposalMade(gate=step.gate, round=step.round, proposal=made, proposer="rules"))

    def _open(self, step: OpenGate) -> None:
        state = self.state
        finished = state.finished(step.gate)
        folder = attempt_folder(self.run_dir, finished.stage, finished.number) if finished else None
        document = GateDocument(
            run=self.run,
            gate=step.gate,
            round=step.round,
            finished_stage=finished.stage if finished else None,
            finished_attempt=finished.number if finished else None,
            evidence=finished.evidence if finished else None,
            report=finished.report if finished else None,
            plots={p.name: sha256_file(p) for p in sorted((folder / "plots").iterdir())} if folder else {},
            proposal=step.proposal,
            inputs={},
            base_model=SHA,
            code="0.1.0",
            spec=sha256_file(self.run_dir / "spec.json"),
            policy=sha256_file(self.run_dir / "policy.json"),
            identity="a" * 32,
            after=state.head,
        )
        shown = write_gate(self.run_dir, document)
        findings = blocking_findings(load_proposal(self.run_dir, step.proposal))
        is_blocked = bool(findings) or (finished is not None and blocked(finished.verdicts or ()))
        payload = GateOpened(gate=step.gate, round=step.round, digest=shown, blocked=is_blocked, findings=findings)
        self.ledger.open_gate(self.run, payload, self.fence)

    def _stage(self, step: RunStage, loss: float, fail: str) -> None:
        ran_with = load_proposal(self.run_dir, step.proposal).parameters
        inputs = {"raw:orders.csv": SHA}
        self._append(
            AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=digest(ran_with)),
            InputsHashed(stage=step.stage, attempt=step.attempt, moment="before", inputs=inputs),
        )
        if fail:
            self._append(AttemptFailed(stage=step.stage, attempt=step.attempt, error="WorkerError", message=fail))
            return
        target = attempt_folder(self.run_dir, step.stage, step.attempt)
        partial = target.with_name(target.name + ".partial")
        for name in ("artifacts", "plots"):
            (partial / name).mkdir(parents=True, exist_ok=True)
        (partial / "artifacts" / "result.txt").write_text(f"{step.stage} {step.attempt} {loss}")
        (partial / "artifacts" / "more.txt").write_text(f"more of {step.stage} {step.attempt}")
        (partial / "plots" / "loss.svg").write_text("<svg/>")
        (partial / "report.md").write_text(f"# {step.stage}")
        metrics = {"loss": Metric(value=loss, unit="nats/token"), "speed": Metric(value=10, unit="1/s")}
        at = datetime(2026, 1, 1, tzinfo=UTC)
        evidence = Evidence(
            stage=step.stage,
            attempt=step.attempt,
            run=self.run,
            parameters_sha256=digest(ran_with),
            inputs=inputs,
            metrics=metrics,
            verdicts=judge(CRITERIA, metrics),
            artifacts=list_artifacts(partial, "artifacts", "plots"),
            started_at=at,
            ended_at=at,
        )
        (partial / "evidence.json").write_bytes(canonical_bytes(evidence))
        partial.rename(target)
        self._append(
            InputsHashed(stage=step.stage, attempt=step.attempt, moment="after", inputs=inputs),
            AttemptPublished(
                stage=step.stage,
                attempt=step.attempt,
                evidence=sha256_file(target / "evidence.json"),
                report=sha256_file(target / "report.md"),
            ),
        )
        self._verdicts(step.stage, step.attempt)

    def _verdicts(self, stage: str, attempt: int) -> None:
        path = attempt_folder(self.run_dir, stage, attempt) / "evidence.json"
        evidence = Evidence.model_validate_json(path.read_bytes())
        self._append(VerdictsRecorded(stage=stage, attempt=attempt, verdicts=evidence.verdicts))


def sheet_stage(name: str) -> SheetStage:
    """A line of a task sheet."""
    wanted: Sequence[Expectation] = [Expectation(metric="loss", value=0.5, unit="nats/token")]
    return SheetStage(
        name=name,
        inputs=[],
        expected=list(wanted),
        criteria=CRITERIA,
        budget_hours=None,
        signed_by=["me"],
        on_failure="rework",
    )
