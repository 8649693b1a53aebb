"""What technicians write, by fault: read from the phrase tables beside this module."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from importlib import resources


@dataclass(frozen=True)
class Fault:
    """A fault type: its code-table row, and how people write its symptom, checks, finding and repair."""

    code: str
    machines: tuple[str, ...]
    meaning: str
    cause: str
    remedy: str
    phrases: dict[str, list[str]] = field(default_factory=lambda: {"s": [], "c": [], "f": [], "r": []})


def read_text(name: str) -> str:
    """A file beside this module."""
    return resources.files("examples.make").joinpath(name).read_text("utf-8")


def read_faults(language: str) -> list[Fault]:
    """The fault types that carry most work orders."""
    faults: list[Fault] = []
    for line in read_text(f"faults_{language}.txt").splitlines():
        if line.startswith("["):
            head, meaning, cause, remedy = (part.strip() for part in line.split("|"))
            code, _, machines = head[1:].partition("]")
            faults.append(Fault(code, tuple(machines.split()), meaning, cause, remedy))
        elif line.strip():
            faults[-1].phrases[line[0]].append(line[2:])
    return faults


def read_rows(name: str) -> list[list[str]]:
    """A table whose cells are separated by `|`."""
    return [line.split("|") for line in read_text(name).splitlines() if line.strip()]


def read_words(language: str) -> dict[str, list[str]]:
    """Openings, places and closings of a sentence, by kind."""
    words: dict[str, list[str]] = {}
    for kind, text in read_rows(f"words_{language}.txt"):
        words.setdefault(kind, []).append(text)
    return words


def fill(text: str, rng: random.Random) -> str:
    """`{n:a-b}` becomes a number from a to b."""
    return re.sub(r"\{n:(\d+)-(\d+)\}", lambda m: str(rng.randint(int(m.group(1)), int(m.group(2)))), text)
