"""General text on which forgetting is measured: passages of the person's own files that no training has seen.

Passages are drawn by the seed over all files, whole paragraphs one after the other up to so many tokens. What stands
in a training sample is left out: of it nothing can be forgotten.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specs.base import Language
from specs.errors import InputError, SourceError
from specs.sources import GENERAL_TEXT_ENDINGS, GeneralText
from tasks.data.encoding import decode
from tasks.data.files import base_name, check_caps, matching_files, read_bytes, source_name
from tasks.data.records import SourceFile
from tasks.prompts import PromptTemplate
from tasks.turns import spoken, turns_of

FEWEST = 8
"""Passages below which a mean says nothing."""

SHORTEST = 16
"""Tokens below which a passage is none."""

SAME_FROM = 32
"""Characters from which a paragraph in two places is the same text, and no common phrase."""

_BLANK = re.compile(r"\n[ \t\u3000]*\n+")


@dataclass(frozen=True)
class Passage:
    """A piece of a file, word for word; `location` ends in the number of its first paragraph."""

    source: str
    location: str
    text: str
    encoding: str


@dataclass
class Drawn:
    """Passages, and what was left out on the way: `trained`, `repeated`, `short`; `cut` are shortened ones."""

    passages: list[Passage] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def notes(self, language: Language) -> list[str]:
        """What is to be said, in words."""
        texts = _NOTES[language]
        found = [texts["measured"].format(n=len(self.passages))]
        return found + [texts[name].format(n=self.counts[name]) for name in _LEFT_OUT if self.counts[name]]


_LEFT_OUT = ("trained", "repeated", "short", "cut")
_NOTES: dict[Language, dict[str, str]] = {
    "en": {
        "measured": "forgetting is measured on {n} passages of general text",
        "trained": "{n} passages of general text left out: their words stand in training samples",
        "repeated": "{n} passages of general text left out: they stand there before",
        "short": f"{{n}} passages of general text left out: fewer than {SHORTEST} tokens",
        "cut": "{n} passages of general text cut to their first tokens: their paragraph is longer",
    },
    "zh": {
        "measured": "用 {n} 段通用文本测量遗忘",
        "trained": "舍去 {n} 段通用文本：其内容出现在训练样本中",
        "repeated": "舍去 {n} 段通用文本：与前面的重复",
        "short": f"舍去 {{n}} 段通用文本：不足 {SHORTEST} 个词元",
        "cut": "{n} 段通用文本的段落过长，只取开头",
    },
}


def general_files(project_dir: Path, asked: GeneralText) -> list[SourceFile]:
    """The files of `general_text.path`. Raises `SourceError` when there is none that can be read."""
    found = matching_files(project_dir, asked.path)
    usable = [path for path in found if base_name(path.name).endswith(GENERAL_TEXT_ENDINGS)]
    if not usable:
        there = f"{len(found)} files there end otherwise" if found else "no such file"
        raise SourceError(
            f"general_text {asked.path}: {there}",
            f"put text files ({', '.join(GENERAL_TEXT_ENDINGS)}, also packed by gzip) there, or correct the path",
        )
    for path in usable:
        check_caps(project_dir, path)
    return [SourceFile(source_name(project_dir, path), path) for path in usable]


def require_enough(project_dir: Path, asked: GeneralText) -> None:
    """Raise `InputError` when the files cannot be decoded, or have fewer paragraphs than passages are needed."""
    files = general_files(project_dir, asked)
    count = sum(len(_paragraphs(decode(read_bytes(f), f.name, asked.encoding).text)) for f in files)
    if count < FEWEST:
        raise InputError(
            f"general_text {asked.path}: {count} paragraphs, and {FEWEST} passages are needed to judge by",
            "add more text; paragraphs are divided by empty lines",
        )


def draw_passages(
    project_dir: Path, asked: GeneralText, template: PromptTemplate, trained: Sequence[Mapping[str, Any]], seed: int
) -> Drawn:
    """Passages of up to `tokens` tokens, `passages` at most. Raises `InputError` when there are too few to judge by."""
    decoded = {f.name: decode(read_bytes(f), f.name, asked.encoding) for f in general_files(project_dir, asked)}
    texts = {name: _paragraphs(one.text) for name, one in decoded.items()}
    places = [(name, start) for name, paragraphs in sorted(texts.items()) for start in range(len(paragraphs))]
    random.Random(f"general text {seed}").shuffle(places)
    known, drawn, seen = _Known(trained), Drawn(), set[str]()
    used: dict[str, set[int]] = {name: set() for name in texts}
    for name, start in places:
        if len(drawn.passages) == asked.passages:
            break
        if start in used[name]:
            continue
        text, end, cut = _passage(texts[name], start, asked.tokens, template, used[name])
        used[name] |= set(range(start, end))
        if _tokens(template, text) < SHORTEST:
            drawn.counts["short"] += 1
        elif squeezed(text) in seen:
            drawn.counts["repeated"] += 1
        elif known.holds(text):
            drawn.counts["trained"] += 1
        else:
            seen.add(squeezed(text))
            drawn.counts["cut"] += cut
            drawn.passages.append(Passage(name, f"{name}#{start + 1}", text, decoded[name].encoding))
    if len(drawn.passages) < FEWEST:
        left = f"{drawn.counts['trained']} were trained on, {drawn.counts['short']} are too short"
        raise InputError(
            f"general_text {asked.path}: {len(drawn.passages)} passages can be used, {FEWEST} are needed ({left})",
            "add more text that is not about the work of this project, such as articles or reports; paragraphs are "
            "divided by empty lines",
        )
    drawn.passages.sort(key=lambda p: (p.source, int(p.location.rpartition("#")[2])))
    return drawn


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in _BLANK.split(text.replace("\r\n", "\n")) if part.strip()]


def _tokens(template: PromptTemplate, text: str) -> int:
    return len(template.encode("", text).input_ids)


def _passage(
    paragraphs: Sequence[str], start: int, most: int, template: PromptTemplate, taken: Collection[int]
) -> tuple[str, int, bool]:
    """(text, the paragraph after its last one, whether its only paragraph was cut): as many paragraphs as fit."""
    text, end = paragraphs[start], start + 1
    while end < len(paragraphs) and end not in taken:
        longer = f"{text}\n\n{paragraphs[end]}"
        if _tokens(template, longer) > most:
            break
        text, end = longer, end + 1
    cut = False
    while (count := _tokens(template, text)) > most:
        text, cut = text[: max(1, min(len(text) - 1, len(text) * most // count))].rstrip(), True
    return text, end, cut


class _Known:
    """The texts of the training samples, to tell what was trained on."""

    def __init__(self, trained: Sequence[Mapping[str, Any]]) -> None:
        texts = [squeezed(f"{spoken(turns_of(row))}{row['prompt'] or ''}{row['answer'] or ''}") for row in trained]
        self.all = "\n".join(texts)
        self.plain = [t for t, row in zip(texts, trained, strict=True) if not row["prompt"] and len(t) >= SAME_FROM]

    def holds(self, text: str) -> bool:
        """Whether a paragraph of the text stands in a training sample, or a trained paragraph in the text."""
        whole = squeezed(text)
        return any(part in self.all for part in _long(text)) or any(part in whole for part in self.plain)


def _long(text: str) -> Iterator[str]:
    for part in text.split("\n\n"):
        one = squeezed(part)
        if len(one) >= SAME_FROM:
            yield one


def squeezed(text: str) -> str:
    """Without white space and case: the same words, however they are laid out."""
    return "".join(text.split()).casefold()
