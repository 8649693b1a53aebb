"""Which texts say the same, and in what they must not differ: normalised text and critical tokens. Pure."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"(?:(?<!\w)[-+](?=\d))?\w+(?:[.\-+/#*]\w+)*")
"""A run of letters and digits, with the marks inside codes and numbers (`G07.1`, `A06B-6114`) and a sign before."""
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_GAP = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
_RUN = re.compile(r"[a-z.+\-/#*\d]+")
_NO_DIGIT = "abcdefghijklmnopqrstuvwxyz.+-/#*"
_AXIS = re.compile(r"(?<![a-z])([a-z])(?=[\s\-]*(?:axis|axes|轴))")
_ORDINAL = re.compile(r"[一二三四五六七八九十]+(?=[号轴相级档段])")


def normalise(text: str) -> str:
    """NFKC, case folded, punctuation dropped except inside words and as a sign, white space collapsed."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("_", " "))
    joined = " ".join(words)
    return _GAP.sub("", joined) if _CHINESE.search(joined) else joined


def critical_tokens(normalised: str) -> frozenset[str]:
    """Codes, models, numbers, axes and Chinese ordinals: what must be equal before two records may be merged."""
    found = [run for run in _RUN.findall(normalised) if run.strip(_NO_DIGIT)]
    if "axis" in normalised or "axes" in normalised or "轴" in normalised:
        found += [f"{axis} axis" for axis in _AXIS.findall(normalised)]
    if _CHINESE.search(normalised):
        found += _ORDINAL.findall(normalised)
    return frozenset(found)
