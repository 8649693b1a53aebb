"""What a training costs rented, owned or hosted, and when which is right. Pure; every price comes from a person."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specs.base import Strict

Way = Literal["rent", "own", "host"]

LOCAL_HOURS = 12.0
"""A run that takes longer than this on a card at hand is rented instead, unless its data may not leave."""
LAPTOP_SHARE = (0.60, 0.65, 0.70)
"""Of its listed rate that a laptop card sustains, because of heat and power: low, expected, high."""
THROTTLING_HOURS = 2.0
"""A laptop that runs longer than this reaches its thermal limit, and is told so."""
MACHINE_WATTS_SHARE = 1.5
"""The whole machine for a watt of its cards, where nothing is measured: processor, memory, fans, power supply."""
SETUP_HOURS = 1.0
"""To start a rented machine, install and check it, where nothing is given."""
UPLOAD_MB_S = 10.0
"""To a rented machine, where nothing is given."""
OVERSIZED = 0.5
"""A rented card of whose memory less than this is used is larger than needed."""
HOURS_A_MONTH = 730.0


class Prices(Strict):
    """In the person's own currency; null is not known, and then nothing is computed from it."""

    rent_per_card_hour: float | None = Field(None, ge=0)
    card_price: float | None = Field(None, ge=0, description="to buy one card with its part of a machine")
    host_per_card_month: float | None = Field(None, ge=0, description="a hosted card for a month, power included")
    kwh: float | None = Field(None, ge=0, description="one kilowatt-hour")


class Use(Strict):
    """How much will be trained, and what has to be carried."""

    runs: int = Field(1, ge=1, description="trainings that are planned, rework included")
    months: float = Field(12.0, gt=0, description="over which they are spread, and a bought card is used")
    must_stay_local: bool = False
    setup_hours: float = Field(SETUP_HOURS, ge=0)
    transfer_bytes: int = Field(0, ge=0, description="the model up; data and adapters are small beside it")
    upload_mb_s: float = Field(UPLOAD_MB_S, gt=0)

    def carrying(self, model_bytes: int) -> Use:
        """The same with a model of this size to be carried, where none is counted yet."""
        return self if self.transfer_bytes else self.model_copy(update={"transfer_bytes": model_bytes})

    @property
    def transfer_hours(self) -> float:
        """Of one rented machine."""
        return self.transfer_bytes / (self.upload_mb_s * 1e6) / 3600


class Cost(Strict):
    """One way to have the cards. `money` is null where its price is not known."""

    way: Way
    hours: float = Field(description="of all runs, with set-up and transfer where they are paid")
    money: float | None
    electricity: float | None = Field(None, description="part of it")


class Verdict(Strict):
    """The way to take, its reason by key, and the hours from which on owning is cheaper than renting."""

    way: Way | None
    reason: str
    break_even_hours: float | None
    load: float = Field(description="share of all hours of the months in which the cards would work")


def kilowatts(watts_per_card: float | None, cards: int) -> float | None:
    """Of the whole machine while it trains."""
    return None if watts_per_card is None else watts_per_card * cards * MACHINE_WATTS_SHARE / 1000


def costs(hours: float, cards: int, watts_per_card: float | None, prices: Prices, use: Use) -> list[Cost]:
    """Rented, owned and hosted, for `use.runs` runs of `hours` each."""
    worked = hours * use.runs
    paid = worked + (use.setup_hours + use.transfer_hours) * use.runs
    power = kilowatts(watts_per_card, cards)
    current = power * worked * prices.kwh if power is not None and prices.kwh is not None else None
    rent = prices.rent_per_card_hour
    owned = None if prices.card_price is None or current is None else prices.card_price * cards + current
    month = prices.host_per_card_month
    return [
        Cost(way="rent", hours=paid, money=None if rent is None else rent * cards * paid),
        Cost(way="own", hours=worked, money=owned, electricity=current),
        Cost(way="host", hours=worked, money=None if month is None else month * cards * use.months),
    ]


def verdict(hours: float, cards: int, found: list[Cost], watts: float | None, prices: Prices, use: Use) -> Verdict:
    """Data that must stay decides first, then money where it is known, then the length of a run."""
    load = min(1.0, hours * use.runs / (use.months * HOURS_A_MONTH))
    even = break_even(cards, watts, prices)
    priced = [c for c in found if c.money is not None]
    if use.must_stay_local:
        return Verdict(way="own", reason="local_data", break_even_hours=even, load=load)
    if len(priced) > 1:
        best = min(priced, key=lambda c: (c.money or 0.0, c.way))
        return Verdict(way=best.way, reason=f"cheapest_{best.way}", break_even_hours=even, load=load)
    if hours > LOCAL_HOURS:
        return Verdict(way="rent", reason="long", break_even_hours=even, load=load)
    return Verdict(way=None, reason="no_prices", break_even_hours=even, load=load)


def break_even(cards: int, watts: float | None, prices: Prices) -> float | None:
    """Hours of training after which a bought card is cheaper than a rented one; null where it never is, or unknown."""
    if prices.rent_per_card_hour is None or prices.card_price is None:
        return None
    power = kilowatts(watts, cards)
    if power is None or prices.kwh is None:
        return None
    saved = prices.rent_per_card_hour * cards - power * prices.kwh
    return prices.card_price * cards / saved if saved > 0 else None
