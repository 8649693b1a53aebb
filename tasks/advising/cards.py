"""Cards of the catalog against one training: what fits, how long it takes, what it costs, which to take. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from specs.base import Strict
from specs.hardware import Gpu, find_gpu, gpus
from specs.stages import Progress
from tasks.advising.costs import LAPTOP_SHARE, OVERSIZED, Cost, Prices, Use, Verdict, costs, verdict
from tasks.memory.devices import Device
from tasks.planning.families import families_for
from tasks.planning.machine import Machine, machine_named
from tasks.planning.measured import Measured
from tasks.planning.plans import Limits, Plan
from tasks.planning.search import search, wanted_families
from tasks.planning.weighing import BAND, Accounts, positions_of
from tasks.planning.workload import Workload

COUNTS = (2, 4, 8)
"""Cards of one machine that are tried where one is too small."""


class Hours(Strict):
    """Of one run on these cards, with an interval."""

    expected: float
    low: float
    high: float


class Row(Strict):
    """One kind of card, as many as are needed."""

    gpu: str
    cards: int
    laptop: bool
    usable_bytes: int
    watts_per_card: float | None
    plan: Plan | None = Field(description="the preferred plan; null: none fits")
    over_bytes: int = Field(0, description="where none fits, how much the nearest lacks on a card")
    hours: Hours | None = Field(None, description="null: rates of the card or samples are not known")
    costs: list[Cost] = Field(default_factory=list)
    verdict: Verdict | None = None
    measured: bool = Field(False, description="a stress test of this project and model ran on such a card")
    oversized: bool = Field(False, description="a smaller card of the table does it, and less than half is used")

    @property
    def fits(self) -> bool:
        """Within the 90 % above which the stress test stops a run."""
        return self.plan is not None and self.plan.utilisation <= BAND[1]


class Survey(Strict):
    """All cards that were looked at, those that fit first, laptops after the others, smaller ones before larger."""

    rows: list[Row]
    left_out: list[str] = Field(description="cards of the catalog that were not looked at: no CUDA, or no bf16")
    parameters: int | None = Field(None, description="of the model, as its account counts them; null: none was made")


def catalog(named: Sequence[str] = ()) -> tuple[list[Gpu], list[str]]:
    """The cards to look at, and the names of those that are left out. Named ones are always looked at."""
    if named:
        return [find_gpu(name) for name in dict.fromkeys(named)], []
    usable = [g for g in gpus() if g.vendor == "NVIDIA" and g.bf16_hardware]
    names = {g.name for g in usable}
    return usable, [g.name for g in gpus() if g.name not in names]


MeasuredOn = Callable[[Device], Measured | None]


def _nothing(device: Device) -> None:
    """Where no stress test has run."""


def survey(
    model: str,
    architecture: dict[str, Any],
    workload: Workload,
    limits: Limits,
    *,
    named: Sequence[str] = (),
    most: int = 8,
    prices: Mapping[str, Prices] | None = None,
    use: Use | None = None,
    measured: MeasuredOn | None = None,
    progress: Progress | None = None,
) -> Survey:
    """One card of each kind; where one is too small, 2, 4 and 8 of a machine, up to `most`.

    `measured` says what a stress test measured on a device, null where it did not run there.
    """
    looked_at, left_out = catalog(named)
    derived: Accounts = {}
    tried = partial(_tried, model, architecture, workload, limits, derived, measured or _nothing, progress)
    found = tried([(g, 1) for g in looked_at])
    for count in COUNTS:
        small = [row.gpu for row in found if not row.fits and not row.laptop]
        if count > most or not small:
            break
        more = [(find_gpu(name), count) for name in small]
        larger = {r.gpu: r for r in tried(more)}
        found = [larger[r.gpu] if r.gpu in larger and not r.fits else r for r in found]
    parameters = _parameters(found)
    use = (use or Use()).carrying(2 * (parameters or 0))
    priced = [_priced(row, (prices or {}).get(row.gpu, Prices()), use) for row in found]
    priced.sort(key=lambda r: (not r.fits, r.laptop, r.cards, r.usable_bytes, r.gpu))
    rows = [r.model_copy(update={"oversized": _oversized(r, priced)}) for r in priced]
    return Survey(rows=rows, left_out=left_out, parameters=parameters)


def _parameters(rows: Sequence[Row]) -> int | None:
    """Of the model, by the first account."""
    accounts = [row.plan.account for row in rows if row.plan is not None and row.plan.account is not None]
    return next((a.total_parameters for a in accounts), None)


def _tried(
    model: str,
    architecture: dict[str, Any],
    workload: Workload,
    limits: Limits,
    derived: Accounts,
    measured: MeasuredOn,
    progress: Progress | None,
    cards: Sequence[tuple[Gpu, int]],
) -> list[Row]:
    machines = [(g, machine_named(g.name, count)) for g, count in cards]
    kinds = {(m.device.bf16, m.flash, m.device.count): m for _, m in machines}.values()
    wanted = [s for kind in kinds for s in wanted_families(architecture, kind, workload, limits, explain=False)]
    longest = max(workload.length_limits(positions_of(architecture)))
    families = families_for(wanted, limits.optimizers, longest, progress)
    if progress is not None:
        progress.start("cards of the catalog", len(machines))
    rows = []
    for gpu, machine in machines:
        there = measured(machine.device)
        found = search(model, architecture, machine, workload, limits, families, there, explain=False, accounts=derived)
        nearest = found.refused[0].refused if found.refused else None
        row = _row(gpu, machine, found.preferred, nearest.over_bytes if nearest else 0)
        rows.append(row.model_copy(update={"measured": there is not None}))
        if progress is not None:
            progress.advance()
    return rows


def _row(gpu: Gpu, machine: Machine, plan: Plan | None, over_bytes: int) -> Row:
    return Row(
        gpu=gpu.name,
        cards=machine.cards if plan is None else plan.configuration.cards,
        laptop=gpu.laptop,
        usable_bytes=machine.device.usable_bytes,
        watts_per_card=gpu.tdp_w,
        plan=plan,
        over_bytes=over_bytes if plan is None else 0,
        hours=_hours(plan, gpu.laptop),
    )


def _hours(plan: Plan | None, laptop: bool) -> Hours | None:
    """A laptop sustains a share of its listed rate only."""
    if plan is None or plan.duration is None:
        return None
    d, (low, expected, high) = plan.duration, LAPTOP_SHARE if laptop else (1.0, 1.0, 1.0)
    return Hours(expected=d.hours / expected, low=d.low / high, high=d.high / low)


def _priced(row: Row, prices: Prices, use: Use) -> Row:
    if row.hours is None or not row.fits:
        return row
    expected = row.hours.expected
    found = costs(expected, row.cards, row.watts_per_card, prices, use)
    judged = verdict(expected, row.cards, found, row.watts_per_card, prices, use)
    if row.laptop:
        found = [c for c in found if c.way == "own"]
    return row.model_copy(update={"costs": found, "verdict": judged})


def _oversized(row: Row, rows: Sequence[Row]) -> bool:
    """Whether less than half of a card is used while a smaller one of the table does it as well."""
    if not row.fits or row.plan is None or row.plan.utilisation >= OVERSIZED or row.laptop:
        return False
    return any(o.fits and not o.laptop and o.cards <= row.cards and o.usable_bytes < row.usable_bytes for o in rows)


def choose(found: Survey, here: str | None = None, hours: float | None = None) -> Row | None:
    """The row to take: the card that is there if it is quick enough; else the cheapest; else the smallest in time.

    Of equal memory the quickest. Laptops are chosen only when they are there or named.
    """
    fitting = [r for r in found.rows if r.fits]
    quick = [r for r in fitting if r.hours is None or hours is None or r.hours.expected <= hours] or fitting
    own = next((r for r in quick if here is not None and r.gpu == here), None)
    if own is not None:
        return own
    on_desk = [r for r in quick if not r.laptop] or quick
    paid = [(min(c.money for c in r.costs if c.money is not None), r) for r in on_desk if _has_price(r)]
    if paid:
        return min(paid, key=lambda pair: (pair[0], pair[1].gpu))[1]
    return min(
        on_desk,
        key=lambda r: (r.cards, round(r.usable_bytes / 2**30), r.hours.expected if r.hours else float("inf"), r.gpu),
        default=None,
    )


def _has_price(row: Row) -> bool:
    return any(c.money is not None for c in row.costs)
