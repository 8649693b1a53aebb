"""The plan search: every candidate with account, time and price; feasible ones ranked, the others refused. Pure.

The order of preference, the first difference decides:

1. at most 90 % of the usable memory: above it the stress test stops a run;
2. whole layers on a card before pipeline stages, these before divided layers, both together last;
3. nothing on the host before states there, states before everything;
4. one card before replicas, replicas before shards of states, of weights;
5. the method, in the order asked for;
6. the longer length limit, as far as the data has longer samples;
7. the more exact types, then the optimizer, in the order asked for;
8. 80 to 90 % of the usable memory before less;
9. the shorter time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specs.stages import Progress
from tasks.memory.settings import TraceSettings
from tasks.planning import parallel
from tasks.planning.candidates import candidates, family_settings, indivisible, settings_of
from tasks.planning.families import Families, families_for, key_of
from tasks.planning.machine import Machine
from tasks.planning.measured import Measured, configuration_of
from tasks.planning.plans import Bind, Configuration, Limits, Plan, PlanSearch
from tasks.planning.refusals import explained, spilled
from tasks.planning.weighing import Accounts, Search, kin_of, positions_of, resized
from tasks.planning.workload import Workload

MOST_DIVIDED = 2
"""Samples of a micro batch whose layers are divided: a method that needs it has no memory left for more."""


def wanted_families(
    architecture: dict[str, Any], machine: Machine, workload: Workload, limits: Limits, *, explain: bool = True
) -> list[TraceSettings]:
    """The families that a search needs; with `explain` those of the ways out included."""
    found: dict[tuple[Any, ...], TraceSettings] = {}
    tried = with_ways_out(limits) if explain else limits
    for c in candidates(machine, workload, tried, positions_of(architecture)):
        if (kin := kin_of(c)) not in found:
            found[kin] = family_settings(settings_of(architecture, c, machine, limits))
    return list({key_of(s): s for s in found.values()}.values())


def with_ways_out(limits: Limits) -> Limits:
    """The same, with the methods that a refused plan is pointed to."""
    more = [m for m in ("lora", "qlora") if m not in limits.methods]
    return limits.model_copy(update={"methods": (*limits.methods, *more)})


def search(
    model: str,
    architecture: dict[str, Any],
    machine: Machine,
    workload: Workload,
    limits: Limits,
    families: Families,
    measured: Measured | None = None,
    *,
    explain: bool = True,
    accounts: Accounts | None = None,
) -> PlanSearch:
    """All candidates, ranked and refused. `families` holds those of `wanted_families`; others are refused.

    For one model on many cards: without `explain` ways out are not looked for, and `accounts`, empty at first, carries
    what was derived from one search to the next (the same architecture, limits and kind of device).
    """
    state = Search(architecture, machine, workload, limits, families, measured, accounts)
    found = [state.plan(c) for c in _tried(state)]
    undivided = _to_divide(state, found)
    found += _over_layers(state, undivided)
    feasible = sorted((p for p in found if p.feasible), key=state.preference)
    refused = sorted((p for p in found if not p.feasible), key=lambda p: (_distance(p), state.preference(p)))
    return PlanSearch(
        model=model,
        device=machine.device.name,
        cards=machine.cards,
        usable_bytes=state.usable_bytes,
        effective_batch=workload.effective_batch,
        plans=[_bound(p, state) for p in feasible],
        refused=[*spilled(state, feasible), *(explained(p, state) if explain else p for p in refused)],
        candidates=len(found),
        indivisible_ranks=indivisible(machine, workload, limits),
        left_out=parallel.left_out(architecture, machine, workload.effective_batch) if undivided else [],
    )


def _tried(state: Search) -> list[Configuration]:
    """Every candidate, and the configuration that a stress test ran where nobody would try it by himself."""
    found = list(candidates(state.machine, state.workload, state.limits, positions_of(state.architecture)))
    ran = state.ran(found[0]) if found else None
    return found if ran is None or ran in found else [ran, *found]


def _distance(plan: Plan) -> tuple[bool, int]:
    """How far a refused plan is from fitting; those without an account come last."""
    refused = plan.refused
    return (refused is not None and refused.unrecorded is not None, refused.over_bytes if refused else 0)


def _to_divide(state: Search, found: Sequence[Plan]) -> list[Configuration]:
    """The lightest single-card candidates of the methods that nothing else makes fit."""
    if state.machine.cards == 1 or state.machine.device.kind != "cuda":
        return []
    recorded = [p.configuration for p in found if p.account is not None]
    fitting = {c.method for c in recorded if not state.lacks(state.account(c))}
    alone = [c for c in recorded if c.method not in fitting and c.cards == 1 and c.offload == "none"]
    return [c for c in alone if c.activation_checkpointing and c.micro_batch <= MOST_DIVIDED]


def _over_layers(state: Search, undivided: Sequence[Configuration]) -> list[Plan]:
    """Pipeline and tensor parallel of these, both together where one alone fails."""
    plans = list[Plan]()
    for c in undivided:
        tried = parallel.variants(c, state.architecture, state.machine, state.workload.effective_batch)
        grids = [state.plan(v) for v in tried]
        either = [p for p in grids if 1 in (p.configuration.tensor_parallel, p.configuration.pipeline_stages)]
        plans += either if any(p.feasible for p in either) else grids
    return plans


def _bound(plan: Plan, state: Search) -> Plan:
    """What keeps a plan from a larger micro batch or length, and what its time goes to."""
    c, found = plan.configuration, list[Bind]()
    share = c.micro_batch * c.gradient_accumulation
    larger = next((n for n in range(c.micro_batch + 1, share + 1) if share % n == 0), None)
    if larger is None:
        found.append("effective_batch")
    elif state.lacks(state.account(resized(c, larger))):
        found.append("memory")
    lengths = state.workload.length_limits(positions_of(state.architecture))
    if state.workload.lengths and c.seq_len >= lengths[0]:
        found.append("longest_sample")
    if plan.seconds:
        names: dict[str, Bind] = {"memory": "bandwidth"}
        found.append(names.get(plan.seconds.bound, plan.seconds.bound))  # type: ignore[arg-type]
    return plan.model_copy(update={"binds": found})


def find_plans(
    model: str,
    architecture: dict[str, Any],
    machine: Machine,
    workload: Workload,
    limits: Limits,
    measured: Measured | None = None,
    progress: Progress | None = None,
) -> PlanSearch:
    """Record what a search needs, from the cache where it is there, and search.

    Raises `ModelError` or `WorkerError` where the model code can run none of it.
    """
    positions = positions_of(architecture)
    wanted, optimizers = wanted_families(architecture, machine, workload, limits), limits.optimizers
    first = next(candidates(machine, workload, limits, positions), None)
    if measured is not None and first is not None:  # what was run is predicted too: its error scales the others
        ran = configuration_of(measured.training, first)
        wanted.append(family_settings(settings_of(architecture, ran, machine, limits)))
        optimizers = tuple(dict.fromkeys((*optimizers, ran.optimizer)))
    longest = max(workload.length_limits(positions))
    families = families_for(wanted, optimizers, longest, progress)
    return search(model, architecture, machine, workload, limits, families, measured)


def best_of_each(plans: Iterable[Plan], at_most: int) -> list[Plan]:
    """The best plan of every method and placement, in their order: what a person compares."""
    found: dict[tuple[Any, ...], Plan] = {}
    for plan in plans:
        found.setdefault(kind_of(plan), plan)
    return list(found.values())[:at_most]


def kind_of(plan: Plan) -> tuple[Any, ...]:
    """Method and placement."""
    c = plan.configuration
    return (c.method, c.sharding, c.offload, c.cards, c.tensor_parallel, c.pipeline_stages)
