"""Whether two texts say the opposite of each other in a word: sides, directions, states, ordinals, denials.

A record that says `left` where the other says `right` is no duplicate of it.
"""

from __future__ import annotations

import re
import unicodedata

from tasks.verify.personal import blank

_ENGLISH = """
left right upper lower top bottom front rear inner outer inlet outlet input output open opened close closed high low
on off forward forwards backward backwards reverse reversed clockwise counterclockwise anticlockwise positive negative
up down loose tight increase increased decrease decreased normal abnormal before after clamp clamped unclamp unclamped
enable enabled disable disabled connected disconnected hot cold minimum maximum first second third fourth fifth
"""
_WORDS = frozenset(_ENGLISH.split())
_CHINESE = re.compile(
    r"左|右|高|低|正[转向极]|反[转向极]|负[转向极]|顺时针|逆时针|[上下前后内外](?=[侧部端方面限圈径环门腔])|[进出](?=[口水油气风料])"
    r"|输入|输出|打开|关闭|开启|常开|常闭|断开|闭合|松开|夹紧|启动|停止|[过偏太变][大小快慢长短热冷松紧]|增大|减小|正常|异常"
)
_DENIALS = re.compile(r"\b(?:not|never|without|cannot|nor)\b|n\W{1,2}t\b|\bno\b(?!\.?\s*\d)|[不没未无]|非(?!常)")
_NOTHING_CELL = re.compile(r"^(?:无|暂无|none|null|nan|nil|n/a|-+|/)$", re.IGNORECASE | re.MULTILINE)


def opposed(a: str, b: str) -> bool:
    """Whether one of two raw texts has a word with an opposite, or a denial, that the other lacks."""
    return _opposites(a) != _opposites(b)


def _opposites(text: str) -> tuple[frozenset[str], int]:
    plain = unicodedata.normalize("NFKC", _NOTHING_CELL.sub("", blank(text))).casefold().replace("_", " ")
    words = _WORDS.intersection(re.findall(r"[a-z]+", plain))
    chinese = _CHINESE.findall(re.sub(r"(?<=[㐀-鿿])\s+(?=[㐀-鿿])", "", plain))
    return frozenset(words).union(chinese), len(_DENIALS.findall(plain))
