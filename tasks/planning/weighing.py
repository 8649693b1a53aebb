"""One search: what is asked, and every candidate weighed: its account, time and price, and what there is too little of.

Pure. `search.py` says the order of preference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specs.errors import InputError, WorkerError
from specs.hardware import FILLED_FROM, FILLED_TO
from tasks.memory.account import Account, Fits
from tasks.memory.family import Family
from tasks.memory.settings import TraceSettings
from tasks.planning import parallel
from tasks.planning.candidates import family_settings, settings_of, types_of
from tasks.planning.families import Families, Unrecorded, key_of
from tasks.planning.machine import Machine
from tasks.planning.measured import Measured, configuration_of, with_peak, with_times
from tasks.planning.plans import Configuration, Lack, Limits, MemorySource, Plan, Refusal, Rule, Seconds
from tasks.planning.timing import run_duration, step_seconds
from tasks.planning.workload import Workload

BAND = (FILLED_FROM, FILLED_TO)
"""Shares of the usable memory that the preferred plan fills."""
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
        self._here: Accounts = {}
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
        """The family of a candidate. Raises `KeyError` for one that nobody asked for, and its error for one that
        cannot be recorded."""
        found = self._families[self._key(configuration)]
        if isinstance(found, Unrecorded):
            raise found.error
        return found

    def unrecorded(self, configuration: Configuration) -> str | None:
        """Why a candidate has no account; null where it has one."""
        found = self._families.get(self._key(configuration))
        if found is None:
            return "nobody asked for its family"
        return found.message if isinstance(found, Unrecorded) else None

    def _key(self, configuration: Configuration) -> str:
        kin = kin_of(configuration)
        if kin not in self._keys:
            self._keys[kin] = key_of(family_settings(self._settings(configuration)))
        return self._keys[kin]

    def account(self, configuration: Configuration) -> Account:
        """The account of a candidate, as a measurement corrects it, set against the card, its host and its disk."""
        found = self._here.get(configuration)
        if found is None:
            account, peak = self.predicted(configuration), self._measured.peak if self._measured else None
            source = self.memory_source(configuration)
            if peak is not None and source != "predicted":
                account = with_peak(account, peak, own=source == "measured")
            found = self._here[configuration] = account.on(self.machine.device)
        return found

    def predicted(self, configuration: Configuration) -> Account:
        """The account of a candidate by itself, set against nothing."""
        found = self._accounts.get(configuration)
        if found is None:
            found = self._divided(configuration) if configuration.divides_layers else self._derived(configuration)
            self._accounts[configuration] = found
        return found

    def ran(self, like: Configuration) -> Configuration | None:
        """What a stress test ran, at the length of `like`; null where nobody asks for it, or it has no account."""
        if self._measured is None:
            return None
        found = configuration_of(self._measured.training, like)
        asked = found.method in self.limits.methods and found.effective_batch == self.workload.effective_batch
        room = found.cards <= self.machine.cards
        return found if asked and room and self._is_own(found) and not self.unrecorded(found) else None

    def memory_source(self, configuration: Configuration) -> MemorySource:
        """Whether a stress test measured this candidate, or corrects its account."""
        measured = self._measured
        if measured is None or measured.peak is None:
            return "predicted"
        if self._is_own(configuration):
            return "measured"
        return "calibrated" if measured.is_kin_of(configuration) and not measured.peak.confirmed else "predicted"

    def _is_own(self, configuration: Configuration) -> bool:
        """Whether the stress test ran this candidate, with every sample."""
        measured, c = self._measured, configuration
        if measured is None or not measured.is_of(c, self.limits):
            return False
        return not self.workload.sums(c.micro_batch, c.seq_len).over

    def _derived(self, configuration: Configuration) -> Account:
        return self.family(configuration).account(self._settings(configuration))

    def _divided(self, c: Configuration) -> Account:
        """The fullest rank of tensor or pipeline parallel, from the same batch on one card."""
        alone = self._settings(c.undivided)
        return parallel.rank_account(self.family(c), c, alone, -(-c.cards // self.machine.device.count))

    def plan(self, configuration: Configuration) -> Plan:
        """A candidate with its time and price; refused where memory, hours or money do not allow it, and where the
        model code cannot run it."""
        if why := self.unrecorded(configuration):
            return Plan(
                configuration=configuration,
                account=None,
                utilisation=0.0,
                seconds=None,
                duration=None,
                refused=Refusal(unrecorded=why),
            )
        account, source = self.account(configuration), self.memory_source(configuration)
        assert account.fits is not None
        sums = self.workload.sums(configuration.micro_batch, configuration.seq_len)
        family = self.family(configuration)
        seconds = self.seconds(configuration)
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
            memory_source=source,
            account_bytes=None if source == "predicted" else self.predicted(configuration).process_bytes,
            utilisation=self.share(account),
            seconds=seconds,
            duration=duration,
            samples_over_length=sums.over,
            pipeline=parallel.pipeline(configuration),
            refused=refused,
        )

    def seconds(self, configuration: Configuration) -> Seconds | None:
        """A step's time: predicted, or what the stress test measured, or scaled by what it measured."""
        seconds, measured = self._predicted(configuration), self._measured
        if seconds is None or measured is None or measured.times is None:
            return seconds if self.machine.device.kind != "cpu" else None
        ran = configuration_of(measured.training, configuration)
        try:
            predicted = self._predicted(ran)
        except (KeyError, InputError, WorkerError):  # a configuration that was not recorded
            predicted = None
        if predicted is None:
            return seconds if self.machine.device.kind != "cpu" else None
        sums = self.workload.sums(ran.micro_batch, ran.seq_len)
        step_tokens = sums.padded_tokens / sums.micro_batches * ran.gradient_accumulation * ran.data_ranks
        own = self._is_own(configuration)
        return with_times(seconds, measured.times, predicted.expected / step_tokens, own=own)

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
        """Smaller is better: the order that `search.py` states."""
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
            _place(types, (c.weights, c.compute)),
            _place(self.limits.optimizers, c.optimizer),
            plan.utilisation < BAND[0],
            seconds,
            c.activation_checkpointing,
            -c.micro_batch,
        )


def _place(order: Sequence[Any], value: Any) -> int:
    """Where a value stands in an order of preference; what was run although nobody would try it comes last."""
    return order.index(value) if value in order else len(order)


def kin_of(c: Configuration) -> tuple[Any, ...]:
    """Equal for candidates of one family, so that settings are written out once for all of them."""
    return (c.method, c.weights, c.compute, c.activation_checkpointing, c.attention, c.sharding)


def positions_of(architecture: dict[str, Any]) -> int | None:
    """The longest text the model was made for."""
    found = architecture.get("max_position_embeddings") or architecture.get("n_positions")
    return int(found) if isinstance(found, int) else None


def resized(configuration: Configuration, micro_batch: int) -> Configuration:
    """Another micro batch with the same effective batch."""
    share = configuration.micro_batch * configuration.gradient_accumulation
    return configuration.model_copy(update={"micro_batch": micro_batch, "gradient_accumulation": share // micro_batch})
