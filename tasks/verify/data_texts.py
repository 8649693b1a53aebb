"""Duplicates, leakage and lost variants measured again on the finished samples, by exact sets of shingles."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from tasks.turns import spoken, turns_of
from tasks.verify.personal import blank

THRESHOLD = 0.7

_CHINESE = re.compile("[\u3400-\u9fff]")
_WORD = re.compile(r"(?:(?<!\w)[-+](?=\d))?\w+(?:[.\-+/#*]\w+)*")
_LIST_MARK = re.compile(
    r"(?:(?<=\s)|(?<=^)|(?<=[;；。.,，:：]))[(（]?(?:\d{1,2}(?:[)）、]|[.．](?!\d))|[①-⑳])", re.MULTILINE
)
_STEP_WORD = re.compile(r"(?:step|步骤)\s*\d{1,2}", re.IGNORECASE)
_CODE = re.compile(r"[a-z0-9]*\d[a-z0-9]*(?:[.\-/][a-z0-9]+)*")


def content(sample: Mapping[str, Any]) -> str:
    """What a sample says, without the words of its prompt."""
    if not sample["prompt"] or sample["kind"] == "instruction":
        return question_and_answer(sample).strip()
    return "\n".join(
        str(sample[name]) for name in ("device_model", "fault_type", "phenomenon", "steps", "repair") if sample[name]
    )


def question_and_answer(sample: Mapping[str, Any]) -> str:
    """The whole of what is asked and answered, in every turn."""
    return "\n".join((*filter(None, [spoken(turns_of(sample))]), sample["prompt"], sample["answer"]))


def to_the_letter(sample: Mapping[str, Any]) -> str:
    """What two samples must have equal to be one: of what people wrote the system text, each turn and its role too."""
    if sample["kind"] != "instruction":
        return fold(content(sample))
    said = [*(turn.text for turn in turns_of(sample)), sample["prompt"], sample["answer"]]
    roles = (f"{turn.role} {turn.learnt}" for turn in turns_of(sample))
    return "\n".join((*roles, *(fold(text) or text.strip() for text in said)))  # marks alone say something too


def fold(text: str) -> str:
    """Words in NFKC and folded case, without punctuation but inside words; no spaces between Chinese characters."""
    if text.isascii():
        return " ".join(_WORD.findall(text.lower().replace("_", " ")))
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("_", " "))
    return re.sub(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])", "", " ".join(words))


def grams(text: str) -> set[str]:
    """Character 3-grams of Chinese text, 5-grams of other text."""
    return grams_of(fold(text))


def grams_of(folded: str) -> set[str]:
    """The grams of a text that is folded already."""
    size = 5
    if not folded.isascii() and _CHINESE.search(folded):
        folded, size = folded.replace(" ", ""), 3
    return {folded[i : i + size] for i in range(max(1, len(folded) - size + 1))}


def similarity(a: set[str], b: set[str]) -> float:
    """Jaccard similarity of two sets of grams."""
    both = len(a & b)
    return both / (len(a) + len(b) - both)


def differs_in_code(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    """Whether two raw rows name other codes, models or numbers. Dates and order numbers are no part of a record."""
    for name in ("fault_type", "device_model"):
        x, y = (re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", r.get(name, "")).casefold()) for r in (a, b))
        if x != y and not (x and y and (x.endswith(y) or y.endswith(x)) and _digits(x) == _digits(y)):
            return True
    # a list mark that lost its dot is a number in one of the two: a variant differs however marks are read
    return all(_codes(a, marks) != _codes(b, marks) for marks in (True, False))


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def _codes(row: Mapping[str, str], marks: bool) -> set[str]:
    """The codes and numbers of a row; `marks` leaves the numbers of list marks in."""
    skip = ("fault_type", "device_model", "date", "order_id")
    text = "\n".join(value for name, value in sorted(row.items()) if name not in skip)
    text = blank(text) if marks else _STEP_WORD.sub(" ", _LIST_MARK.sub(" ", blank(text)))
    return set(_CODE.findall(unicodedata.normalize("NFKC", text).casefold()))
