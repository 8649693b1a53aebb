"""What a system text tells a model to be. Two records may merge only where it is the same in substance. Pure.

A word can change everything ("Answer in JSON", "You answer juniors"), so every word counts but those that never do:
articles, politeness, particles, and the two forms of a contraction.
"""

from __future__ import annotations

import re

from tasks.data.similarity import normalise

_IDLE = frozenset({"a", "an", "the", "please", "kindly"})
_EXPANDED = {"re": "are", "ve": "have", "ll": "will", "m": "am", "cannot": "can not"}
"""What stands behind an apostrophe, which normalisation makes a space."""
_NOT = {"can": "can not", "won": "will not", "shan": "shall not"}
_IDLE_CHINESE = re.compile(r"请|一[个名位](?=[\u3400-\u9fff])|的")
_BESIDE_CHINESE = re.compile(r"(?<=[\u3400-\u9fff]) | (?=[\u3400-\u9fff])")
MARK = "system "
"""How a system text begins among the critical tokens."""


def substance(system: str) -> str:
    """The words of a system text in order, without those that change nothing. Marks alone stand for themselves."""
    words: list[str] = []
    for word in normalise(system).split():
        before = words[-1] if words else ""
        if word == "t" and before.endswith("n"):
            words[-1] = _NOT.get(before, f"{before[:-1]} not")
        elif word not in _IDLE:
            words.append(_EXPANDED.get(word, word))
    said = " ".join(_IDLE_CHINESE.sub(" ", " ".join(words)).split()).replace("您", "你")
    return _BESIDE_CHINESE.sub("", said) or system.strip()
