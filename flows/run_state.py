"""Where a run stands: stages, attempts, gates, goals, and what people handed in. Data that a fold of events fills."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from specs.criteria import Verdict, blocked
from specs.decisions import Decision
from specs.events import (
    ReleasePublished,
    RunCreated,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.proposals import Finding
from specs.stage_graph import StageGraph

State = Literal["running", "waiting", "decided", "failed", "rejected", "stopped", "finished"]
AttemptState = Literal["reserved", "published", "failed", "abandoned", "superseded"]


@dataclass(frozen=True)
class Attempt:
    """One attempt of a stage. `superseded` wins over every other state."""

    stage: str
    number: int
    state: AttemptState
    parameters: str = ""
    evidence: str = ""
    report: str = ""
    verdicts: tuple[Verdict, ...] | None = None
    message: str = ""


@dataclass(frozen=True)
class Said:
    """An approval that does not close a round yet, or an edit that others must confirm; `digest` is shown after it."""

    decision: Decision
    at: datetime
    digest: str


@dataclass(frozen=True)
class Gate:
    """One round of one gate; `decision` is None while it waits. `digest` is of what it shows now, edits included.

    `withdrawn`: a rework at another gate does again what this one rests on.
    """

    name: str
    round: int
    digest: str
    opened_at: datetime
    blocked: bool
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None
    decided_at: datetime | None = None
    approvals: tuple[Said, ...] = ()
    amendments: tuple[Said, ...] = ()
    expired_at: datetime | None = None
    withdrawn: bool = False

    @property
    def editors(self) -> tuple[str, ...]:
        """Whose edits are part of what the gate shows now."""
        return tuple(dict.fromkeys(said.decision.actor for said in self.amendments))

    @property
    def edited_proposal(self) -> str | None:
        """Digest of the proposal that the last edit brought; None where nobody edited."""
        return self.amendments[-1].decision.edited_proposal if self.amendments else None

    @property
    def closed(self) -> bool:
        """Whether nothing can be decided here any more."""
        return self.decision is not None or self.expired_at is not None or self.withdrawn


@dataclass(frozen=True)
class HandedIn:
    """The work that a person handed in for a stage."""

    work: WorkHandedIn
    actor: str
    at: datetime


@dataclass(frozen=True)
class Feedback:
    """What a person wants changed, and where he said so; `actor` is empty for a stage that failed.

    `requests` are parameters by their dotted path, each with a value, `less` or `more`.
    """

    gate: str
    round: int
    actor: str
    comment: str
    requests: tuple[tuple[str, Any], ...] = ()

    @property
    def words(self) -> str:
        """Everything that the next proposal must answer, one thing a line."""
        asked = [f"{path}={_as_asked(value)}" for path, value in self.requests]
        return "\n".join([*([self.comment] if self.comment.strip() else []), *asked])


def _as_asked(value: Any) -> str:
    return str(value) if value in ("less", "more") else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Goal:
    """A gate that the run is heading for or stands at. A line has one at a time."""

    gate: str
    round: int
    feedback: Feedback | None = None


@dataclass
class RunState:
    """Everything that the events of one run say."""

    run: str = ""
    created: RunCreated | None = None
    created_at: datetime | None = None
    graph: StageGraph = field(default_factory=lambda: StageGraph.line(()))
    state: State = "running"
    stage: str = ""
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    gates: dict[tuple[str, int], Gate] = field(default_factory=dict)
    proposals: dict[tuple[str, int], str] = field(default_factory=dict)
    approvals: dict[str, Gate] = field(default_factory=dict)
    goals: dict[str, Goal] = field(default_factory=dict)
    newest_gate: Gate | None = None
    handed_out: dict[tuple[str, int], WorkHandedOut] = field(default_factory=dict)
    handed_in: dict[tuple[str, int], HandedIn] = field(default_factory=dict)
    flow_runs: list[str] = field(default_factory=list)
    fence: int = 0
    owner: str = ""
    release: ReleasePublished | None = None
    rejection: Gate | None = None
    terminal: bool = False
    sequence: int = 0
    head: str = ""
    unknown: int = 0

    @property
    def flow_run(self) -> str | None:
        """The newest Prefect flow run that mirrors this run."""
        return self.flow_runs[-1] if self.flow_runs else None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in the order of their folders."""
        return self.graph.stages

    @property
    def order(self) -> tuple[str, ...]:
        """The gates in order: one before each stage, then the release gate."""
        return self.graph.order

    @property
    def goal(self) -> Goal:
        """The first gate that the run is heading for."""
        return next((self.goals[gate] for gate in self.order if gate in self.goals), Goal("", 1))

    @property
    def open_gates(self) -> list[Gate]:
        """The gates that wait for a decision, in order."""
        waiting = [gate for gate in self.gates.values() if not gate.closed]
        return sorted(waiting, key=lambda gate: self.order.index(gate.name) if gate.name in self.order else -1)

    @property
    def gate(self) -> Gate | None:
        """The first gate that waits for a decision; while none does, the one that opened last."""
        return next(iter(self.open_gates), self.newest_gate)

    @property
    def by_person(self) -> Collection[str]:
        """The stages that wait for a person's work."""
        return self.created.by_person if self.created else ()

    def current(self, stage: str) -> Attempt | None:
        """The newest attempt of a stage that still counts."""
        return next((a for a in reversed(self.attempts.get(stage, [])) if a.state != "superseded"), None)

    def finished(self, gate: str) -> Attempt | None:
        """The published attempt of the stage before a gate, of several the first; None at the first gate."""
        return next(iter(self.all_finished(gate)), None)

    def all_finished(self, gate: str) -> list[Attempt]:
        """The published attempts of the stages directly before a gate, in order; those that failed come first."""
        found = [self.current(stage) for stage in self.graph.before.get(gate, ())]
        published = [a for a in found if a is not None and a.state == "published"]
        return sorted(published, key=lambda a: not blocked(a.verdicts or ()))

    def blocked(self, gate: str) -> bool:
        """Whether a blocking criterion failed in a stage directly before a gate."""
        return any(blocked(a.verdicts or ()) for a in self.all_finished(gate))

    def done(self, stage: str) -> bool:
        """Whether a stage has an attempt that counts, with its verdicts."""
        attempt = self.current(stage)
        return attempt is not None and attempt.state == "published" and attempt.verdicts is not None

    def inputs(self, stages: Sequence[str]) -> dict[str, Attempt]:
        """The published attempts of the named stages."""
        found = {stage: self.current(stage) for stage in stages}
        return {stage: a for stage, a in found.items() if a and a.state == "published"}

    def last_round(self, gate: str) -> int:
        """The highest round of a gate, proposed or opened; 0 for none."""
        return max((r for name, r in (*self.gates, *self.proposals) if name == gate), default=0)

    def approved_proposal(self, gate: str) -> str | None:
        """Digest of the proposal that the approval of a gate stands for, edits included."""
        approval = self.approvals.get(gate)
        if approval is None or approval.decision is None:
            return None
        own = approval.decision.edited_proposal or approval.edited_proposal
        return own or self.proposals.get((gate, approval.round))
