"""A training that somebody says something about, and its plan: account, share of the card, time. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from specs.base import Strict
from specs.hardware import find_model
from specs.parameters import Method, Optimizer
from specs.stages import Progress
from tasks.memory.settings import Sharding
from tasks.planning.candidates import family_settings, settings_of, types_of
from tasks.planning.families import families_for
from tasks.planning.machine import Machine, machine_named
from tasks.planning.plans import Configuration, Limits, Plan
from tasks.planning.weighing import Search
from tasks.planning.workload import Workload

GIB = 2**30
LONGEST = 4096
"""Tokens up to which claims are recorded, all at once, so that every table shares its recordings."""


class Claim(Strict):
    """One training configuration on cards of the catalog. Types follow from the card, as the plan search has them."""

    model: str
    gpu: str
    method: Method
    micro_batch: int
    seq_len: int
    accumulation: int = 1
    activation_checkpointing: bool = True
    optimizer: Optimizer = "adamw_fused"
    cards: int = 1
    nodes: int = 1
    sharding: Sharding = "none"
    exact: bool = True
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"

    @property
    def machine(self) -> Machine:
        """The cards it runs on."""
        return machine_named(self.gpu, self.cards // self.nodes, nodes=self.nodes)

    @property
    def configuration(self) -> Configuration:
        """Complete; `exact: false` takes the lighter of the types that fit the method."""
        weights, compute = types_of(self.machine, self.method, self.sharding)[0 if self.exact else -1]
        return Configuration(
            method=self.method,
            weights=weights,
            compute=compute,
            optimizer=self.optimizer,
            micro_batch=self.micro_batch,
            gradient_accumulation=self.accumulation,
            data_ranks=self.cards,
            seq_len=self.seq_len,
            activation_checkpointing=self.activation_checkpointing,
            attention="sdpa",
            sharding=self.sharding,
        )

    @property
    def limits(self) -> Limits:
        """What may be proposed, as far as it matters for one configuration."""
        return Limits(methods=(self.method,), targets=self.targets)

    @property
    def architecture(self) -> dict[str, Any]:
        """Of the catalog's model."""
        return find_model(self.model).architecture


def answered(claims: Sequence[Claim], progress: Progress | None = None) -> list[Plan]:
    """The plan of every claim, in their order; what has to be recorded is recorded together."""
    wanted = [family_settings(settings_of(c.architecture, c.configuration, c.machine, c.limits)) for c in claims]
    families = families_for(wanted, Limits().optimizers, LONGEST, progress)
    found = []
    for claim in claims:
        workload = Workload(effective_batch=claim.configuration.effective_batch, limits=(claim.seq_len,))
        state = Search(claim.architecture, claim.machine, workload, claim.limits, families)
        found.append(state.plan(claim.configuration))
    return found


def needed_gib(plan: Plan) -> float:
    """What the process takes of a card: reserved memory and framework."""
    return needed_bytes(plan) / GIB


def needed_bytes(plan: Plan) -> int:
    """The same in bytes."""
    assert plan.account is not None
    assert plan.account.fits is not None
    return plan.account.fits.needed_bytes


def resident_bytes(plan: Plan, *names: str) -> int:
    """The largest that residents of these names get in any phase, each by itself, added up."""
    assert plan.account is not None
    phases = plan.account.residents_by_phase.values()
    return sum(max((phase.get(name, 0) for phase in phases), default=0) for name in names)
