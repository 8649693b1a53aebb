"""Events of a run as a whole: how it began, who held it, how it ended."""

from __future__ import annotations

from pydantic import Field

from specs.base import Sha256
from specs.decisions import Authentication
from specs.events.base import Payload


class RunCreated(Payload):
    """A run began: the frozen spec, policy, environment and code version by digest."""

    kind = "run.created"
    project: str
    spec: Sha256
    policy: Sha256
    environment: Sha256
    code: str
    stages: list[str] = Field(description="in the order of their folders")
    edges: dict[str, list[str]] = Field(
        default_factory=dict, description="gate to the stages that must be done before it opens; empty: a line"
    )
    by_person: list[str] = Field(default_factory=list, description="stages that wait for a person's work")
    rehearsal: float | None = Field(None, description="share of the samples; null: a run in earnest")
    parent: str = Field("", description="the run or folder whose adapter the training goes on from; empty: none")
    parent_weights: Sha256 | None = Field(None, description="of that adapter")
    solo: bool
    policy_pinned: bool = Field(False, description="the policy was compared with a pin outside the project")
    identity: str = Field("", description="random, so that a run of this id elsewhere is another run; old runs: none")


class SpecAmended(Payload):
    """Before anything was approved, project.yaml was taken in anew: the open first gate is withdrawn, and a new round
    shows what follows. Nobody's decision is needed for that; the next gate is where it is decided on."""

    kind = "spec.amended"
    before: Sha256
    spec: Sha256
    changes: list[str] = Field(description="what differs, as dotted paths; empty where only raw files changed")
    by: str = Field("", description="system account of whoever asked for it")


class RunWaits(Payload):
    """Whatever could run has run; the rest waits for people: at these gates, or for work on these stages."""

    kind = "run.waits"
    gates: list[str]
    work: list[str]


class PrefectAttached(Payload):
    """The Prefect flow run that mirrors this run from here on."""

    kind = "prefect.attached"
    flow_run: str
    reason: str


class LeaseTaken(Payload):
    """A process works on the run; `fence` grows with every holder. `reason`: why a silent holder was taken over."""

    kind = "lease.taken"
    fence: int
    owner: str
    taken_over_from: str = ""
    reason: str = ""


class RunStopped(Payload):
    """The run stopped on request with everything saved."""

    kind = "run.stopped"
    stage: str
    reason: str


class ReleasePublished(Payload):
    """The release bundle is complete."""

    kind = "release.published"
    folder: str
    manifest: Sha256


class RunFinished(Payload):
    """Terminal: the run reached its end. The end of a rehearsal says what it rehearsed and whether it passed."""

    kind = "run.finished"
    rehearsed: Sha256 | None = Field(None, description="fingerprint of its training; null: a run in earnest")
    passed: bool | None = Field(None, description="of a rehearsal: no blocking criterion failed, overridden or not")


class RunRejected(Payload):
    """Terminal: a person rejected."""

    kind = "run.rejected"
    gate: str
    round: int
    comment: str


class RunClosed(Payload):
    """Terminal: a person ended a run that cannot go on, outside a gate. `lost`: what of it was missing."""

    kind = "run.closed"
    reason: str
    lost: list[str] = Field(default_factory=list)
    authentication: Authentication | None = Field(None, description="as of a decision; null in old records")
    credential: str = Field("", description="fingerprint of the key, or id of the token; never a secret")
    account: str = Field("", description="system account that typed it; empty where a key or token proves who closes")
    signature: str = Field("", description="SSH signature over the other fields, run and person; armoured")
