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

from specs.errors import InputError
from specs.stages import Progress
from tasks.memory.account import Account, Fits
from tasks.memory.family import Family
from tasks.memory.settings import TraceSettings
from tasks.planning import parallel
from tasks.planning.candidates import candidates, family_settings, indivisible, settings_of, types_of
from tasks.planning.families import Families, families_for, key_of
from tasks.planning.machine import Machine
from tasks.planning.measured import Measured, configuration_of, with_measurement
from tasks.planning.plans import Bind, Configuration, Lack, Limits, Plan, PlanSearch, Refusal, Rule, Seconds
from tasks.planning.timing import run_duration, step_seconds
from tasks.planning.workload import Workload

BAND = (0.80, 0.90)
"""Shares of the usable memory that the preferred plan fills."""
MOST_DIVIDED = 2
"""Samples of a micro batch whose layers are divided: a method that needs it has no memory left for more."""
OFFLOADS = ("none", "optimizer", "all")
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")


Accounts = dict[Configuration, Account]
"""What was derived so far, set against no card yet."""


class Search:
    """One search: what is asked, and the accounts found so far."""

    def __init__(
        self,
        architecture: dict[str, Any],
        machine: Machine,
        workload: Workload,
        limits: Limits,
        families: Families,
        measured: Measured | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.architecture = architecture
        self.machine = machine
        self.workload = workload
        self.limits = limits
        self._measured = measured
        self._families = families
        self._accounts: Accounts = {} if accounts is None else accounts
        self._keys: dict[tuple[Any, ...], str] = {}

    @property
    def usable_bytes(self) -> int:
        """What a training can have of a card: less where other processes hold some of it."""
        usable, free = self.machine.device.usable_bytes, self.limits.free_bytes
        return usable if free is None else min(usable, free)

    def share(self, account: Account) -> float:
        """How much of that an account takes."""
        return round(account.process_bytes / max(1, self.usable_bytes), 4)

    def family(self, configuration: Configuration) -> Family:
        """The family of a candidate. Raises `KeyError` for one that was not recorded."""
        kin = _kin(configuration)
        if kin not in self._keys:
            self._keys[kin] = key_of(family_settings(self._settings(configuration)))
        return self._families[self._keys[kin]]

    def account(self, configuration: Configuration) -> Account:
        """The account of a candidate, set against the card, its host and its disk."""
        found = self._accounts.get(configuration)
        if found is None:
            found = self._divided(configuration) if configuration.divides_layers else self._derived(configuration)
            self._accounts[configuration] = found
        return found.on(self.machine.device)

    def _derived(self, configuration: Configuration) -> Account:
        return self.family(configuration).account(self._settings(configuration))

    def _divided(self, c: Configuration) -> Account:
        """One rank of tensor or pipeline parallel, from the account of the same batch on one card."""
        family = self.family(c)
        tokens = c.micro_batch * c.seq_len
        return parallel.rank_account(
            self._derived(c.undivided),
            c,
            family.layers,
            family.layer_input_bytes_per_token * tokens,
            family.root_share,
        )

    def plan(self, configuration: Configuration) -> Plan:
        """A candidate with its time and price; refused where memory, hours or money do not allow it."""
        account = self.account(configuration)
        assert account.fits is not None
        sums = self.workload.sums(configuration.micro_batch, configuration.seq_len)
        family = self.family(configuration)
        seconds = self._seconds(configuration)
        duration = (
            run_duration(configuration, account, family, self.machine, self.workload, seconds, sums)
            if seconds
            else None
        )
        lacks = self.lacks(account)
        if duration and self.limits.hours is not None and duration.hours > self.limits.hours:
            lacks.append(Lack(rule="hours", needed=duration.hours, there=self.limits.hours))
        price = duration.money if duration else None
        if price is not None and self.limits.money is not None and price > self.limits.money:
            lacks.append(Lack(rule="money", needed=price, there=self.limits.money))
        over = sum(round(lack.needed - lack.there) for lack in lacks if lack.rule == "memory")
        refused = Refusal(lacks=lacks, over_bytes=over) if lacks else None
        return Plan(
            configuration=configuration,
            account=account,
            utilisation=self.share(account),
            seconds=seconds,
            duration=duration,
            samples_over_length=sums.over,
            refused=refused,
        )

    def _seconds(self, configuration: Configuration) -> Seconds | None:
        """A step's time: predicted, or what the stress test measured, or scaled by what it measured."""
        seconds, measured = self._predicted(configuration), self._measured
        if seconds is None or measured is None:
            return seconds if self.machine.device.kind != "cpu" else None
        ran = configuration_of(measured.training, configuration)
        try:
            predicted = self._predicted(ran)
        except (KeyError, InputError):  # a configuration that was not recorded
            predicted = None
        if predicted is None:
            return seconds if self.machine.device.kind != "cpu" else None
        sums = self.workload.sums(ran.micro_batch, ran.seq_len)
        step_tokens = sums.padded_tokens / sums.micro_batches * ran.gradient_accumulation * ran.data_ranks
        own = measured.is_of(configuration) and not sums.over
        return with_measurement(seconds, measured, predicted.expected / step_tokens, own=own)

    def _predicted(self, configuration: Configuration) -> Seconds | None:
        c = configuration
        sums = self.workload.sums(c.micro_batch, c.seq_len)
        if not c.divides_layers:
            return step_seconds(c, self.account(c), self.family(c), self.machine, sums)
        alone = step_seconds(c.undivided, self._derived(c.undivided), self.family(c), self.machine, sums)
        return parallel.slowed(alone, c, self.family(c), self.machine) if alone else None

    def lacks(self, account: Account) -> list[Lack]:
        """What memory is missing: on the card, on its host, on the disk."""
        device = self.machine.device
        fits: Fits | None = account.fits
        needed = fits.needed_bytes if fits else account.process_bytes
        compared: list[tuple[Rule, int, int | None]] = [
            ("memory", needed, self.usable_bytes),
            ("host", account.host_peak_bytes, device.host_bytes),
            ("disk", account.disk_bytes, device.disk_bytes),
        ]
        return [Lack(rule=r, needed=n, there=t) for r, n, t in compared if t is not None and n > t]

    def _settings(self, configuration: Configuration) -> TraceSettings:
        return settings_of(self.architecture, configuration, self.machine, self.limits)

    def preference(self, plan: Plan) -> tuple[Any, ...]:
        """Smaller is better; see the order above."""
        c = plan.configuration
        types = types_of(self.machine, c.method, c.sharding)
        seconds = plan.seconds.expected / c.effective_batch if plan.seconds else 0.0
        return (
            plan.utilisation > BAND[1],
            (c.pipeline_stages > 1) + 2 * (c.tensor_parallel > 1),
            OFFLOADS.index(c.offload),
            SHARDINGS.index(c.sharding),
            c.cards,
            self.limits.methods.index(c.method),
            -c.seq_len,
            types.index((c.weights, c.compute)),
            self.limits.optimizers.index(c.optimizer),
            plan.utilisation < BAND[0],
            seconds,
            c.activation_checkpointing,
            -c.micro_batch,
        )


def _kin(c: Configuration) -> tuple[Any, ...]:
    """Equal for candidates of one family, so that settings are written out once for all of them."""
    return (c.method, c.weights, c.compute, c.activation_checkpointing, c.attention, c.sharding)


def wanted_families(
    architecture: dict[str, Any], machine: Machine, workload: Workload, limits: Limits
) -> list[TraceSettings]:
    """The families that a search needs, those of the ways out included."""
    found: dict[tuple[Any, ...], TraceSettings] = {}
    for c in candidates(machine, workload, with_ways_out(limits), positions_of(architecture)):
        if (kin := _kin(c)) not in found:
            found[kin] = family_settings(settings_of(architecture, c, machine, limits))
    return list({key_of(s): s for s in found.values()}.values())


def with_ways_out(limits: Limits) -> Limits:
    """The same, with the methods that a refused plan is pointed to."""
    more = [m for m in ("lora", "qlora") if m not in limits.methods]
    return limits.model_copy(update={"methods": (*limits.methods, *more)})


def positions_of(architecture: dict[str, Any]) -> int | None:
    """The longest text the model was made for."""
    found = architecture.get("max_position_embeddings") or architecture.get("n_positions")
    return int(found) if isinstance(found, int) else None


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
    """All candidates, ranked and refused. `families` holds at least those of `wanted_families`.

    For one model on many cards: without `explain` ways out are not looked for, and `accounts`, empty at first, carries
    what was derived from one search to the next (the same architecture, limits and kind of device).
    """
    from tasks.planning.refusals import explained, spilled

    state = Search(architecture, machine, workload, limits, families, measured, accounts)
    found = [state.plan(c) for c in candidates(machine, workload, limits, positions_of(architecture))]
    found += _over_layers(state, found)
    feasible = sorted((p for p in found if p.feasible), key=state.preference)
    refused = sorted(
        (p for p in found if not p.feasible),
        key=lambda p: (p.refused.over_bytes if p.refused else 0, state.preference(p)),
    )
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
    )


def _over_layers(state: Search, found: Sequence[Plan]) -> list[Plan]:
    """Pipeline and tensor parallel, for methods that nothing else makes fit; both together where one alone fails."""
    machine, plans = state.machine, list[Plan]()
    if machine.cards == 1 or machine.device.kind != "cuda":
        return []
    fitting = {p.configuration.method for p in found if not state.lacks(state.account(p.configuration))}
    for plan in found:
        c = plan.configuration
        lightest = c.activation_checkpointing and c.micro_batch <= MOST_DIVIDED
        if c.method in fitting or c.cards > 1 or c.offload != "none" or not lightest:
            continue
        tried = parallel.variants(c, state.architecture, machine, state.workload.effective_batch)
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


def resized(configuration: Configuration, micro_batch: int) -> Configuration:
    """Another micro batch with the same effective batch."""
    share = configuration.micro_batch * configuration.gradient_accumulation
    return configuration.model_copy(update={"micro_batch": micro_batch, "gradient_accumulation": share // micro_batch})


def find_plans(
    model: str,
    architecture: dict[str, Any],
    machine: Machine,
    workload: Workload,
    limits: Limits,
    measured: Measured | None = None,
    progress: Progress | None = None,
) -> PlanSearch:
    """Record what a search needs, from the cache where it is there, and search. Raises `ModelError`."""
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
        c = plan.configuration
        found.setdefault((c.method, c.sharding, c.offload, c.cards, c.tensor_parallel, c.pipeline_stages), plan)
    return list(found.values())[:at_most]
