"""Personal data masked before anything else is made of a text: duplicates, lengths and samples see the masked text.

What is masked is replaced by a placeholder of its kind and counted by file and kind. The fault code of a record is
never touched. The text as it was read stays in the raw files and, for quarantined rows, in `quarantine.parquet`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from specs.base import Language
from specs.privacy import KIND_TITLES, KINDS, PLACEHOLDERS, PersonalKind
from tasks.data.asked_for import given, recurring
from tasks.data.people import spans_of
from tasks.data.personal_names import names
from tasks.data.personal_numbers import Found, numbers
from tasks.data.records import Draft, Unit

_ORDER: Sequence[PersonalKind] = ("email", "id_number", "bank_card", "phone", "plate", "account", "name")
"""Which kind wins where finds overlap: the one with the stricter form."""


_WIDE = "０１２３４５６７８９＋－＠．（）‐‑–—"
_NARROW = str.maketrans(_WIDE, "0123456789+-@.()----")
"""Digits and marks as Chinese input methods write them, one for one: numbers are found in either width."""


def find(text: str, allowed: Collection[str] = (), people: Sequence[str] = ()) -> list[Found]:
    """Personal data in a text, in order, without overlaps; what is `allowed`, in plain form, is left out.

    `people` are names that the record holds elsewhere: they are names here without a title beside them.
    """
    named = (Found("name", *span) for span in spans_of(people, text)) if people else ()
    found = [
        f
        for f in (*numbers(text.translate(_NARROW)), *names(text), *named)
        if plain(text[f.start : f.end]) not in allowed
    ]
    return _without_overlaps(found)


def _without_overlaps(found: list[Found]) -> list[Found]:
    """In order; where finds overlap, the one whose kind has the stricter form."""
    found.sort(key=lambda f: (_ORDER.index(f.kind), f.start - f.end, f.start))
    taken: list[Found] = []
    for one in found:
        if all(one.end <= other.start or other.end <= one.start for other in taken):
            taken.append(one)
    return sorted(taken, key=lambda f: f.start)


def _is_name(found: Found) -> bool:
    return found.kind == "name"


def plain(text: str) -> str:
    """An entry of the allow list for comparison: letters and digits only, NFKC, case folded."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


@dataclass(slots=True)
class Masker:
    """Masks drafts and paragraphs, and counts what it masked by (source, location, place, kind)."""

    language: Language
    allowed: Sequence[str] = ()
    items: Counter[tuple[str, str, str, PersonalKind]] = field(default_factory=Counter)
    characters: Counter[tuple[str, str, str, PersonalKind]] = field(default_factory=Counter)
    _allowed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._allowed = frozenset(map(plain, self.allowed))

    def draft(self, draft: Draft) -> Draft:
        """The draft with personal data masked in everything but its fault code; names stay in the device model."""
        unit, people = draft.unit, (*draft.people, *self._named(draft))
        filled = {name: getattr(draft, name) for name in _FIELDS if getattr(draft, name)}
        texts = {name: self._mask(unit, "sample", text, people=people) for name, text in filled.items()}
        steps, earlier = (
            tuple(self._mask(unit, "sample", text, people=people) for text in several)
            for several in (draft.steps, draft.earlier)
        )
        if draft.spoken():
            *said, texts["prompt"], texts["plain"] = self._told(unit, (*earlier, texts["prompt"], texts["plain"]))
            earlier = tuple(said)
        model = self._mask(unit, "sample", draft.device_model, with_names=False) if draft.device_model else ""
        same = (steps, earlier, model) == (draft.steps, draft.earlier, draft.device_model)
        if same and all(getattr(draft, name) == text for name, text in texts.items()):
            return draft
        changes: dict[str, Any] = {**texts, "steps": steps, "earlier": earlier, "device_model": model}
        return replace(draft, **changes)

    def _named(self, draft: Draft) -> tuple[str, ...]:
        """Names that a turn of a conversation tells: names in the other turns too, without a title beside them."""
        if not draft.spoken():
            return ()
        turns = (draft.system, *draft.earlier, draft.prompt, draft.plain)
        found = [text[f.start : f.end] for text in turns for f in names(text)]
        told = [text[f.start : f.end] for before, text in pairwise(turns) for f in given(before, text) if _is_name(f)]
        return tuple(
            name for name in dict.fromkeys([*found, *told]) if recurring(name) and plain(name) not in self._allowed
        )

    def _told(self, unit: Unit, turns: Sequence[str]) -> list[str]:
        """Turns in which what the turn before asks for is masked too."""
        masked = list(turns)
        for at in range(1, len(masked)):
            text = masked[at]
            asked_for = given(masked[at - 1], text.translate(_NARROW))
            found = [f for f in asked_for if plain(text[f.start : f.end]) not in self._allowed]
            masked[at] = self._replace(unit, "sample", text, _without_overlaps(found))
        return masked

    def paragraph(self, unit: Unit) -> Unit:
        """A paragraph as it is stored beside the samples."""
        text = self._mask(unit, "paragraph", unit.original)
        return unit if text == unit.original else replace(unit, original=text)

    def _mask(self, unit: Unit, place: str, text: str, with_names: bool = True, people: Sequence[str] = ()) -> str:
        """The text with everything masked, also what can only be told apart once its neighbour is masked."""
        while (masked := self._mask_once(unit, place, text, with_names, people)) != text:
            text = masked
        return text

    def _mask_once(self, unit: Unit, place: str, text: str, with_names: bool, people: Sequence[str]) -> str:
        found = find(text, self._allowed, people)
        return self._replace(unit, place, text, [f for f in found if with_names or not _is_name(f)])

    def _replace(self, unit: Unit, place: str, text: str, finds: Sequence[Found]) -> str:
        parts: list[str] = []
        at = 0
        for found in finds:
            key = (unit.source, unit.location, place, found.kind)
            self.items[key] += 1
            self.characters[key] += sum(not c.isspace() for c in text[found.start : found.end])
            parts += [text[at : found.start], PLACEHOLDERS[found.kind][self.language]]
            at = found.end
        return "".join([*parts, text[at:]]) if parts else text

    def leave_out(self, kept: Collection[tuple[str, str]]) -> None:
        """Once fates are known: what was masked in units that are not `kept` is in no sample."""
        for counts in (self.items, self.characters):
            for key in [k for k in counts if k[2] == "sample" and k[:2] not in kept]:
                source, location, _, kind = key
                counts[source, location, "left_out", kind] += counts.pop(key)

    def rows(self) -> list[dict[str, object]]:
        """The rows of `masked.parquet`."""
        return [
            {
                "source": source,
                "location": location,
                "place": place,
                "kind": kind,
                "items": count,
                "characters": self.characters[source, location, place, kind],
            }
            for (source, location, place, kind), count in sorted(self.items.items())
        ]

    def counts(self) -> dict[str, dict[str, int]]:
        """Items masked in samples, by source and kind."""
        result: dict[str, dict[str, int]] = {}
        for (source, _, place, kind), count in sorted(self.items.items()):
            if place == "sample":
                of_source = result.setdefault(source, {})
                of_source[kind] = of_source.get(kind, 0) + count
        return result

    def notes(self, keep: bool) -> list[str]:
        """What was masked, in words, for the report."""
        zh = self.language == "zh"
        if keep:
            text = (
                "按 personal_data: keep 保留个人信息，未屏蔽"
                if zh
                else "personal data kept, as personal_data: keep says"
            )
            return [text]
        told = []
        for place, (english, chinese) in _TOLD.items():
            total: Counter[PersonalKind] = Counter()
            for (_, _, where, kind), count in self.items.items():
                total[kind] += count if where == place else 0
            listed = [f"{KIND_TITLES[k][self.language]} {total[k]}" for k in KINDS if total[k]]
            if listed:
                told.append(f"{chinese}：{'，'.join(listed)}" if zh else f"{english}: {', '.join(listed)}")
        return told


_TOLD = {
    "sample": ("personal data masked in samples", "样本中已屏蔽的个人信息"),
    "left_out": (
        "personal data masked in rows that were merged or left out",
        "已合并或未采用的行中屏蔽的个人信息",
    ),
}
_FIELDS = ("phenomenon", "repair", "meaning", "prompt", "plain", "system")
