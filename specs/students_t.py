"""Student's t distribution for whole degrees of freedom: how far a mean of few repetitions may be from none by chance.

Formulas 26.7.3 and 26.7.4 of Abramowitz and Stegun, Handbook of Mathematical Functions: exact sums, no table.
"""

from __future__ import annotations

import math


def central_probability(t: float, freedom: int) -> float:
    """P(|T| <= t) for `freedom` degrees of freedom, 1 or more."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        return 2 / math.pi * (angle + sine * total)
    term, total = 1.0, 0.0
    for k in range(1, freedom // 2 + 1):
        total += term
        term *= cosine * cosine * (2 * k - 1) / (2 * k)
    return sine * total


def quantile(level: float, freedom: int) -> float:
    """The t with P(|T| <= t) = `level`, to ten digits. `level` in (0, 1)."""
    low, high = 0.0, 1.0
    while central_probability(high, freedom) < level:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if central_probability(middle, freedom) < level else (low, middle)
    return high
