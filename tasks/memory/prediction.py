"""The account of a whole batch plan: the heaviest micro batch decides. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from specs.parameters import TrainingConfiguration
from specs.stages import Progress
from tasks.data.batch_plan import PlanRow
from tasks.memory.account import Account, AccountCoefficients
from tasks.memory.architecture import architecture_of
from tasks.memory.devices import Device
from tasks.memory.estimate import coefficients_for
from tasks.memory.settings import from_training


def plan_account(
    base_model: Path, training: TrainingConfiguration, device: Device, rows: Sequence[PlanRow], progress: Progress
) -> tuple[Account, AccountCoefficients]:
    """The account of the heaviest planned micro batch, and the coefficients it comes from.

    The first micro batch of a step has no gradients beside it yet, later ones have: with method full, where gradients
    are large and the longest samples come first, the two are told apart.
    """
    shapes = _shapes(rows)
    longest = max(length for _, _, length in shapes)
    architecture = architecture_of(base_model)

    def family(accumulation: int) -> AccountCoefficients:
        changed = training.model_copy(update={"gradient_accumulation": accumulation})
        return coefficients_for(from_training(architecture, changed, longest, device.kind), progress)

    accumulating = any(number > 0 for number, _, _ in shapes)
    later = family(2 if accumulating else 1)
    first = family(1) if accumulating and training.method == "full" else later
    accounts = [
        (first if number == 0 else later).account(*covered(size, length, later.micro_batch_max, later.seq_len_min))
        for number, size, length in shapes
    ]
    worst = max(accounts, key=lambda a: (a.peak_allocated_bytes, a.micro_batch, a.seq_len))
    phases = {name: max(a.phases.get(name, 0) for a in accounts) for name in worst.phases}
    return worst.model_copy(update={"phases": phases}), later


def covered(rows: int, length: int, most_rows: int, shortest: int) -> tuple[int, int]:
    """(rows, tokens of a row) within `most_rows` and from `shortest` on, with at least as many tokens in rows as long.

    More rows than were traced, or shorter ones, count as fewer and longer ones, which take no less memory; several stay
    several, because one row alone is never padded.
    """
    tokens, longer = rows * length, max(length, shortest)
    fewer = min(max(-(-tokens // longer), min(rows, 2)), most_rows)
    return fewer, max(longer, -(-tokens // fewer))


def _shapes(rows: Sequence[PlanRow]) -> list[tuple[int, int, int]]:
    """Distinct (0 for the first micro batch of a step, else 1; rows; padded tokens of a row), sorted."""
    found = set()
    for (_, _, number), batch in groupby(rows, lambda r: (r.step, r.rank, r.micro_batch)):
        planned = list(batch)
        rows_of_it, width = len({r.row for r in planned}), max(r.start + r.padded_tokens for r in planned)
        found.add((min(number, 1), rows_of_it, width))
    return sorted(found)
