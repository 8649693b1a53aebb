"""Whether an answer is right: what of its reference it says, weighed by how telling it is, in English and Chinese.

An answer and its reference become sets of content units: English words without stop words and endings, bigrams of
Chinese characters, and codes and numbers as they stand. A unit weighs ln((1 + F) / (1 + f)) of F fault types, f of
which use it: what every repair says ("check", "replace") weighs little, a code or a part of one fault type much.
Recall is the weight of the reference's units that the answer has.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

RECALL_NEEDED = 0.4
"""Weighted recall of the own reference. Measured on the references of repair records in both languages, 12 fault
types each: the reference itself 1.0, its first 60 % of characters 0.40 to 0.95 (as a token limit cuts it), the question
said back at most 0.17, the reference of another type at most 0.26, generic answers ("check the cables, replace the
defective part") at most 0.33."""

MARGIN_NEEDED = 0.2
"""Recall of the own reference above the mean recall of other types' references: an answer that lists everything that
was ever repaired recalls all of them alike, and is not right."""

_STOP_WORDS = """
a an and are as at be been but by can for from had has have if in into is it its no not of on or over so than
 that the their then there these this to up was were when which while will with you your first after before again
 should must may
"""
_STOP = frozenset(_STOP_WORDS.split())
_STOP_HAN = frozenset("的了在是和与及或就都而并将把被对从到有无为请应须该其这那不再后先时")
_ENDINGS = ("ations", "ation", "ments", "ment", "ings", "ing", "edly", "ies", "ied", "ers", "er", "es", "ed", "ly", "s")
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[a-z0-9]+(?:[.\-/][a-z0-9]+)*|[{_HAN}]+")


def content_units(text: str) -> set[str]:
    """The content units of a text. Case, width and endings do not matter."""
    units: set[str] = set()
    for piece in _UNIT.findall(unicodedata.normalize("NFKC", text).casefold()):
        if re.match(rf"[{_HAN}]", piece):
            units.update(_han_bigrams(piece))
        elif re.search(r"\d", piece):
            units.add(piece)
        else:
            units.update(_stem(word) for word in re.split(r"[.\-/]", piece) if len(word) > 1 and word not in _STOP)
    return units


def _han_bigrams(run: str) -> Iterable[str]:
    """Bigrams within runs free of particles; a character that stands alone is a unit of its own."""
    for part in re.split(f"[{''.join(sorted(_STOP_HAN))}]", run):
        if len(part) == 1:
            yield part
        yield from (part[i : i + 2] for i in range(len(part) - 1))


def _stem(word: str) -> str:
    """The word without one ending and a final e, at least three letters long: replace, replaced, replacing are one."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


class References:
    """References by fault type, and the weights that follow from them."""

    def __init__(self, references: Sequence[tuple[str, str]]) -> None:
        """`references`: (fault type, text) of the held-out samples."""
        self._units = [(kind, content_units(text)) for kind, text in references]
        kinds: dict[str, set[str]] = {}
        for kind, units in self._units:
            for unit in units:
                kinds.setdefault(unit, set()).add(kind)
        total = len({kind for kind, _ in self._units})
        self._weights = {unit: math.log((1 + total) / (1 + len(used))) for unit, used in kinds.items()}
        self._unseen = math.log(1 + total)

    def recall(self, reference: set[str], answer: set[str]) -> float:
        """Share, by weight, of the reference's units that the answer has; 0 for a reference without content."""
        whole = sum(self._weight(unit) for unit in sorted(reference))
        return sum(self._weight(unit) for unit in sorted(reference & answer)) / whole if whole else 0.0

    def others(self, fault_type: str, answer: set[str]) -> float:
        """Mean recall of the references of other fault types; 0 when there are none."""
        recalls = [self.recall(units, answer) for kind, units in self._units if kind != fault_type]
        return math.fsum(recalls) / len(recalls) if recalls else 0.0

    def right(self, fault_type: str, reference: str, answer: str) -> bool:
        """Whether the answer says enough of its own reference, and says it rather than others'."""
        said = content_units(answer)
        own = self.recall(content_units(reference), said)
        return own >= RECALL_NEEDED and own - self.others(fault_type, said) >= MARGIN_NEEDED

    def _weight(self, unit: str) -> float:
        return self._weights.get(unit, self._unseen)


def coverage(
    references: References, answers: Iterable[tuple[str, str, str]], asked_types: int
) -> tuple[float, Mapping[str, bool]]:
    """Fault types with a right answer over `asked_types`, and which are right.

    `answers`: (fault type, reference, answer). `asked_types` is how many types could have been asked for.
    """
    right: dict[str, bool] = {}
    for kind, reference, answer in answers:
        right[kind] = right.get(kind, False) or references.right(kind, reference, answer)
    return (sum(right.values()) / asked_types if asked_types else 0.0), right
