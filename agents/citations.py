"""Whether a text cites only numbers that are known: every number in it is some fact, rounded or in another unit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from specs.results import Evidence

_PLAIN = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"(?<![\w.#/-])({_PLAIN})(?![\w/]|[.-]\d|-\w)")
_WITH_UNIT = re.compile(
    rf"(?<![\w.#/-])({_PLAIN})(?:\s?(%|KiB|MiB|GiB|TiB|ms|min|s|h|k|M|B)(?![\w/])|(?![\w/]|[.-]\d|-\w))"
)
_SCALES: dict[str, tuple[float, ...]] = {
    "": (1.0,),
    "%": (100.0, 1.0),
    "KiB": (1 / 1024,),
    "MiB": (1 / 1024**2,),
    "GiB": (1 / 1024**3,),
    "TiB": (1 / 1024**4,),
    "ms": (1000.0, 1.0, 3.6e6),
    "s": (1.0, 3600.0),
    "min": (1 / 60, 60.0, 1.0),
    "h": (1.0, 1 / 3600),
    "k": (1e-3,),
    "M": (1e-6,),
    "B": (1.0, 1e-9),
}
"""How a fact may have been scaled for the unit that follows a number."""


def numbers_in(value: Any) -> list[float]:
    """Every finite number in plain data or a model, also the numbers inside its texts."""
    if isinstance(value, BaseModel):
        return numbers_in(value.model_dump(mode="json"))
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)] if math.isfinite(value) else []
    if isinstance(value, str):
        return [_value(found) for found in _NUMBER.findall(value)]
    if isinstance(value, Mapping):
        return [n for key, item in value.items() for n in (*numbers_in(key), *numbers_in(item))]
    if isinstance(value, Iterable):
        return [n for item in value for n in numbers_in(item)]
    return []


def uncited(text: str, known: Iterable[float]) -> list[str]:
    """The numbers of a text that are no known number, however scaled or rounded. Code spans and blocks are data."""
    facts = sorted(set(known))
    prose = re.sub(r"(```|~~~).*?\1|`[^`\n]*`", " ", text, flags=re.DOTALL)
    return [number for number, unit in _WITH_UNIT.findall(prose) if not _known(number, unit, facts)]


def uncited_numbers(report_md: str, evidence: Evidence, more: Iterable[float] = ()) -> list[str]:
    """Numbers in a report that stand neither in its evidence nor among `more` (numbers of its artifacts)."""
    return uncited(report_md, [*numbers_in(evidence), *more])


def _value(found: str) -> float:
    return float(found.replace(",", "").replace("−", "-"))


def _known(found: str, unit: str, facts: list[float]) -> bool:
    value = abs(_value(found))
    mantissa, _, exponent = found.replace(",", "").lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    tolerance = 0.5 * 10.0**-decimals * (1 + 1e-6)
    for fact in facts:
        for scale in _SCALES[unit]:
            scaled = abs(fact * scale)
            close = abs(value - scaled) <= tolerance
            if close and (value != 0 or fact == 0) and (decimals > 0 or not scaled.is_integer() or value == scaled):
                return True
    return False
