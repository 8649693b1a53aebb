"""Values of options that nothing can be made of, refused by the option's name before any work."""

from __future__ import annotations

from collections.abc import Mapping

from specs.errors import InputError


def refuse_empty(given: Mapping[str, str | list[str] | None]) -> None:
    """Options without a word, as an unset variable of a shell leaves them: their default is not what was asked for."""
    for option, value in given.items():
        words = value if isinstance(value, list) else [] if value is None else [value]
        if not all(word.strip() for word in words):
            raise InputError(f"{option} is empty", "give it a value, or leave it out for the default")


def refuse_odd(given: Mapping[str, float | None]) -> None:
    """Sizes, rates and limits that are no finite number above 0."""
    for option, value in given.items():
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{option} is a number above 0, not {value:g}", "leave it out for the default")


def refuse_endless(given: Mapping[str, float | None]) -> None:
    """Prices and times that are no finite number, or below 0."""
    for option, value in given.items():
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(f"{option} is a number, 0 or more, not {value:g}", "leave it out")
