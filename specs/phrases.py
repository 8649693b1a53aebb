"""Sentences that code says in English with values in them, shown in Chinese where somebody reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter

from specs.base import Language


class Phrases:
    """Chinese for English sentences: `{name}` in both stands for the same text, which is taken over as it is.

    A sentence that no template fits stays as it is: what a library or an added stage says cannot be known before.
    """

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self.plain = {english: chinese for english, chinese in pairs.items() if "{" not in english}
        self.templates = [(_pattern(english), chinese) for english, chinese in pairs.items() if "{" in english]

    def __call__(self, language: Language, text: str) -> str:
        """The sentence in the language; the first template that fits it is taken."""
        if language == "en":
            return text
        if text in self.plain:
            return self.plain[text]
        for pattern, chinese in self.templates:
            if found := pattern.fullmatch(text):
                return chinese.format(**found.groupdict())
        return text


def _pattern(template: str) -> re.Pattern[str]:
    parts, seen = [], set[str]()
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(re.escape(literal))
        if name:
            parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>.+?)")
            seen.add(name)
    return re.compile("".join(parts), re.DOTALL)
