"""The first learning rate to try, by method and size of the model."""

from __future__ import annotations

from specs.parameters import Method

_LR_TABLE: tuple[tuple[int, float, float], ...] = (
    (10_000_000, 5e-3, 1e-3),
    (500_000_000, 1e-3, 1e-4),
    (3_000_000_000, 5e-4, 5e-5),
    (15_000_000_000, 2e-4, 2e-5),
)
"""(below this many parameters, lr of adapters, lr of full fine-tuning); a 135M model learnt 200 answers in 40 steps
at 1e-3, larger values are the usual ones of LoRA and full fine-tuning."""


def learning_rate(method: Method, parameters: int | None) -> float:
    """The first learning rate to try for a method on a model of `parameters` (null: unknown, taken as 7 B)."""
    column = 2 if method == "full" else 1
    for row in _LR_TABLE:
        if (7_000_000_000 if parameters is None else parameters) < row[0]:
            return row[column]
    return 1e-5 if method == "full" else 1e-4
