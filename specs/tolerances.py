"""What two computations of one number may differ by, relatively, by device and precision. One table for all checks.

On a CPU with pinned threads a computation that is repeated is the same bit for bit. The kernels of a GPU add in an
order that differs between launches: the values for it are usual ones, and were not measured here.
"""

from __future__ import annotations

from specs.base import Strict


class Tolerance(Strict):
    """One row. `repeated`: the same computation again, as after a resume. `regrouped`: the same sums cut otherwise."""

    device: str
    compute: str
    repeated: float
    regrouped: float
    measured: bool


TOLERANCES: tuple[Tolerance, ...] = (
    Tolerance(device="cpu", compute="fp32", repeated=0.0, regrouped=1e-6, measured=True),
    Tolerance(device="cpu", compute="bf16", repeated=0.0, regrouped=3e-2, measured=False),
    Tolerance(device="cpu", compute="amp-bf16", repeated=0.0, regrouped=3e-2, measured=False),
    Tolerance(device="cpu", compute="amp-fp16", repeated=0.0, regrouped=5e-3, measured=False),
    Tolerance(device="cuda", compute="fp32", repeated=1e-4, regrouped=1e-4, measured=False),
    Tolerance(device="cuda", compute="bf16", repeated=3e-2, regrouped=3e-2, measured=False),
    Tolerance(device="cuda", compute="amp-bf16", repeated=3e-2, regrouped=3e-2, measured=False),
    Tolerance(device="cuda", compute="amp-fp16", repeated=5e-3, regrouped=5e-3, measured=False),
)
"""Attention kernels (eager, sdpa, flash) share a row: of a GPU the loosest of them counts."""


def tolerance(device: str, compute: str) -> Tolerance:
    """The row of a device (`cpu` or `cuda`) and a precision of the arithmetic. Raises `KeyError` for another one."""
    for row in TOLERANCES:
        if (row.device, row.compute) == (device, compute):
            return row
    raise KeyError(f"no tolerance for {compute} on {device}")
