"""Whether a sample says what its raw row says: no word added, changed or taken from another row, and none lost.

Words are compared as they are counted, wherever they stand: rules may move them between phenomenon, steps and repair.
What may go are marks of lists, connectives and masked personal data; what may come are the labels of the template.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from tasks.verify import personal

FIELDS = ("device_model", "fault_type", "phenomenon", "meaning", "steps", "cause", "repair", "remedy")
"""The mapped columns whose words are in a sample."""

_TOKEN = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]")
_STEP_NUMBER = re.compile(r"^\d+\. ", re.MULTILINE)
_ALARM_MEANING = re.compile(r"^((?:Alarm: |报警：)[^\n]*?) \([^\n]*\)$", re.MULTILINE)
"""The meaning beside the code of a work order comes from the table of codes."""
_LABEL = re.compile(
    r"^(?:(?:Machine|Alarm|Problem|Repair|Meaning|Cause|Remedy): |Checks:$|设备：|报警：|现象：|检查：$|维修："
    r"|含义：|原因：|处理：|What should be checked, and how is it repaired\?$"
    r"|应检查什么，如何维修？$|What does alarm |报警 )"
    r"|(?: mean, and what should be done\?| 是什么意思，应如何处理？)$",
    re.MULTILINE,
)
_MARK = re.compile(
    r"(?:step|步骤)\s*\d{1,2}|第[一二三四五六七八九十\d]+[步点项条]?|\d{1,2}(?=[)）、.．:：])|[①-⑳]|[一二三四五六七八九十](?=[)）、.．])"
    r"|\b(?:and|then|after that|afterwards|next|finally|lastly|first|second|third|fourth|fifth|sixth|seventh|eighth"
    r"|ninth|tenth)(?:ly)?\b|\b[a-h](?=\))|首先|然后|紧接着|接着|随后|之后|其次|最后|再次|[先再]"
    r"|\b(?:problem|symptom|fault|phenomenon|check(?:s|ed)?|steps?|cause|repair(?:ed)?|solution|remedy"
    r"|action|fix)(?=\s*[:：])"
    r"|[一-鿿]{2,6}(?=[:：])"
)
_NOTHING = frozenset({"无", "暂无", "空", "none", "null", "nan", "nil", "n/a"})


def tokens(text: str) -> list[str]:
    """Runs of Latin letters and digits, and every other letter by itself, in NFKC and folded case."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def says_otherwise(row: Mapping[str, str], sample: tuple[str, str], masked: int, cut: bool, named: str) -> bool:
    """Whether a sample adds a word to its raw row or lacks one.

    `sample` is its prompt and answer. `masked` characters of personal data may be missing, words of the prompt too if
    it was `cut`; `named` may be there besides: the machine that the source is about.
    """
    values = [row.get(name, "") for name in FIELDS]
    raw = "\n".join(value for value in values if value.strip().casefold() not in _NOTHING)
    prompt, answer = sample
    asked, answered = _ALARM_MEANING.sub(r"\1", prompt), _STEP_NUMBER.sub("", answer)
    said = personal.without_placeholders(_LABEL.sub("", f"{asked}\n{answered}"))
    has, says = Counter(tokens(raw)), Counter(tokens(said))
    if says - has - Counter(tokens(named)):
        return True
    if cut:
        return False
    lost = (has - says).total()
    if not lost:
        return False
    folded = unicodedata.normalize("NFKC", raw).casefold()
    marks = sum(len(tokens(mark)) for text in (raw.casefold(), folded) for mark in _MARK.findall(text))
    return lost > marks + masked
