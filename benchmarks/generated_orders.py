"""Generated work orders in Chinese and English with planted copies and code-only variants, the same for a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

FIELDS = ("device_model", "fault_type", "phenomenon", "steps", "repair")


@dataclass(frozen=True, slots=True)
class Order:
    """A work order. `group` is the number of the record it says the same as; `planted` is what was done to it."""

    device_model: str
    fault_type: str
    phenomenon: str
    steps: str
    repair: str
    group: int
    planted: str = ""

    def content(self) -> str:
        """The record as one text, a field per line."""
        return "\n".join(getattr(self, name) for name in FIELDS if getattr(self, name))


class Words:
    """The words of one language, from the lexicon of the trade."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.glue = " " if language == "en" else ""
        text = resources.files("tasks.models").joinpath(f"lexicon_{language}.txt").read_text("utf-8")
        separator = "," if language == "en" else None
        for line in text.splitlines():
            name, _, words = line.partition(" ")
            setattr(self, name, words.split(separator))

    noun: list[str]
    state: list[str]
    check: list[str]
    action: list[str]
    unit: list[str]
    moment: list[str]


def original(rng: random.Random, words: Words, group: int) -> Order:
    """A record of its own."""
    glue, english = words.glue, words.language == "en"
    pick = rng.choice
    model = f"{pick(('VMC', 'HMC', 'CK', 'XK', 'TC', 'GS'))}-{rng.randrange(100, 1000)}{pick(('', '', 'A', 'B'))}"
    code = f"{pick(('ALM-', 'SV', 'EX', 'PS', 'OT'))}{rng.randrange(1, 2000):04d}"
    where, other = pick(words.noun), pick(words.noun)
    problem = glue.join([pick(words.moment), where, pick(words.state)])
    problem += (", and the " if english else "，而且") + glue.join([other, pick(words.state)])
    checks = []
    for number in range(1, rng.randrange(2, 4)):
        value = f"{rng.randrange(1, 4000) / 10:.1f} {pick(words.unit)}"
        found = f"found {value}" if english else f"为{value}"
        checks.append(f"{number}. " + glue.join([pick(words.check), pick(words.noun), found]))
    repair = glue.join([pick(words.action), where])
    repair += (", then " if english else "，并") + glue.join([pick(words.action), pick(words.noun)])
    return Order(model, code, problem, "\n".join(checks), repair, group)


def copy_of(rng: random.Random, words: Words, order: Order) -> Order:
    """A quarter exact, the others with one to three edits as people make them, numbers included."""
    if rng.random() < 0.25:
        return replace(order, planted="copy")
    changed = order
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(("phenomenon", "repair", "steps"))
        changed = replace(changed, **{name: _edited(rng, words, getattr(changed, name))})
    return replace(changed, planted="copy")


def _edited(rng: random.Random, words: Words, text: str) -> str:
    kind, at = rng.randrange(4), rng.randrange(len(text))
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at] + text[at:]
    if kind == 2:
        return text + ("." if words.language == "en" else "。")
    return text + words.glue + rng.choice(words.moment)


def _another(rng: random.Random, base: Order, used: set[tuple[int, str]]) -> str:
    """An alarm code that no variant of this record has."""
    while True:
        code = base.fault_type[:-4] + f"{rng.randrange(2000, 10000):04d}"
        if (base.group, code) not in used:
            used.add((base.group, code))
            return code


def orders(language: str, seed: int, count: int, copies: float, variants: int) -> Iterator[Order]:
    """`count` records of which the share `copies` are copies, and `variants` that differ only in their alarm code.

    A copy or a variant comes after its original, at any distance.
    """
    rng, words = random.Random(f"{language} {seed}"), Words(language)
    kept: list[Order] = []
    used: set[tuple[int, str]] = set()
    at = set(rng.sample(range(count // 10, count + variants), variants)) if variants else set()
    for number in range(count + variants):
        if number in at:
            base = rng.choice(kept)
            yield replace(base, fault_type=_another(rng, base, used), group=number, planted="variant")
        elif kept and rng.random() < copies:
            yield copy_of(rng, words, rng.choice(kept))
        else:
            order = original(rng, words, number)
            if len(kept) < 200_000:
                kept.append(order)
            yield order
