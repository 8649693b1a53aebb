"""Whether a sample says what its raw row says: no word added, changed or taken from another row, and none lost.

Words are compared as they are counted, wherever they stand: rules may move them between phenomenon, steps and repair.
What may go are marks of lists, connectives and masked personal data; what may come are the labels of the template.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from tasks.verify import personal

FIELDS = ("device_model", "fault_type", "phenomenon", "meaning", "steps", "cause", "repair", "remedy")
"""The mapped columns whose words are in a sample."""

_TOKEN = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]")
_STEP_NUMBER = re.compile(r"^\d+\. ", re.MULTILINE)
_ALARM_MEANING = re.compile(r"^((?:Alarm: |报警：)[^\n]*?) \([^\n]*\)$", re.MULTILINE)
"""The meaning beside the code of a work order comes from the table of codes."""
_LABEL = re.compile(
    r"^(?:(?:Machine|Alarm|Problem|Repair|Meaning|Cause|Remedy|Fault): |Checks:$|设备：|报警：|现象：|检查：$|维修："
    r"|含义：|原因：|处理：|故障：|What should be checked, and how is it repaired\?$"
    r"|应检查什么，如何维修？$|What does alarm |报警 )"
    r"|(?: mean, and what should be done\?| 是什么意思，应如何处理？)$",
    re.MULTILINE,
)
_MARK = re.compile(
    r"(?:step|步骤)\s*\d{1,2}|第[一二三四五六七八九十\d]+[步点项条]?|\d{1,2}(?=[)）、.．:：])|[①-⑳]|[一二三四五六七八九十](?=[)）、.．])"
    r"|\b(?:and|then|after that|afterwards|next|finally|lastly|at last|first|second|third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth|tenth)(?:ly)?\b|\b[a-h](?=\))|首先|然后|紧接着|接着|随后|之后|其次|最后|再次|[先再]"
    r"|\b(?:problem|symptom|fault|phenomenon|complaint|check(?:s|ed)?|diagnosis|steps?|cause|repair(?:ed)?|solution"
    r"|remedy|action|fix|done)(?=\W{0,3}[:：])"
    r"|[一-鿿]{2,6}(?=\W{0,3}[:：])"
)
_NOTHING = frozenset({"无", "暂无", "空", "none", "null", "nan", "nil", "n/a"})


def tokens(text: str) -> list[str]:
    """Runs of Latin letters and digits, and every other letter by itself, in NFKC and folded case."""
    return _TOKEN.findall(text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold())


def said_by(prompt: str, answer: str) -> str:
    """What a sample says: prompt and answer without the words of the template, marks of steps and placeholders."""
    asked, answered = _ALARM_MEANING.sub(r"\1", prompt), _STEP_NUMBER.sub("", answer)
    return _LABEL.sub("", f"{asked}\n{answered}")


def without_labels(text: str) -> str:
    """A raw text without what would be taken for labels of the template in a sample that has it line by line."""
    return _LABEL.sub("", _ALARM_MEANING.sub(r"\1", text))


def text_of(row: Mapping[str, str]) -> str:
    """What a raw row says in the columns that go into a sample."""
    values = [row.get(name, "") for name in FIELDS]
    return "\n".join(value for value in values if value.strip().casefold() not in _NOTHING)


def says_otherwise(raw: str, said: str, masked: int, loses: bool, named: str) -> bool:
    """Whether what a sample says adds a word to its raw text, lacks one, or has them in another order.

    `masked` characters of personal data may be missing, anything if it `loses` words by a rule that says so; `named`
    may be there besides: the machine that the source is about, a heading.
    """
    raw = personal.without_placeholders(raw)  # paragraphs are kept masked
    read, spoken = tokens(raw), tokens(personal.without_placeholders(said))
    if read == spoken:
        return False
    has, says = Counter(read), Counter(spoken)
    if says - has - Counter(tokens(named)) or _out_of_order(f"{raw}\n{named}", said):
        return True
    lost = (Counter(tokens(without_labels(raw))) - says).total()
    if loses or not lost:
        return False
    return lost > marks_in(raw) + masked


def marks_in(raw: str) -> int:
    """How many words of a raw text are marks of lists, labels and connectives, at most."""
    folded = unicodedata.normalize("NFKC", raw).casefold()
    return sum(len(tokens(mark)) for text in (raw.casefold(), folded) for mark in _MARK.findall(text))


def without_marks(text: str) -> str:
    """A raw text without what may be marks of lists, labels and connectives."""
    return _MARK.sub(" ", text.casefold())


def _out_of_order(raw: str, said: str) -> bool:
    """Whether two words follow each other in a line of the sample that do so nowhere in its raw text.

    Rules put clauses together: what ends a clause of the raw text may be followed by what begins one.
    """
    follows: set[tuple[str, str]] = set()
    ends: set[str] = set()
    begins: set[str] = set()
    for text in (raw, _MARK.sub("\n", raw.casefold())):
        follows.update(pairwise(tokens(text)))
        for clause in _CLAUSE.split(text):
            words = tokens(clause)
            if words:
                begins.add(words[0])
                ends.add(words[-1])
    for line in personal.without_placeholders(said, "\n").split("\n"):
        if any(not (pair in follows or (pair[0] in ends and pair[1] in begins)) for pair in pairwise(tokens(line))):
            return True
    return False


def in_order(said: str, raw: str, begins: bool = False) -> bool:
    """Whether a text has the words of a raw text in their order, all but those that placeholders stand for.

    With `begins` it may end before the raw text does, and its last word may be cut.
    """
    words = tokens(raw)
    pieces = [tokens(piece) for piece in personal.pieces(said)]
    at = 0
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        if number == 0:
            start = 0
        elif last and not begins:
            start = len(words) - len(piece)  # what is behind the last placeholder ends the text
        else:
            places = range(at, len(words) - len(piece) + 1)
            start = next((i for i in places if _alike(piece, words[i : i + len(piece)], begins and last)), -1)
        if start < at or not _alike(piece, words[start : start + len(piece)], begins and last):
            return False
        at = start + len(piece)
    return begins or len(pieces) > 1 or at == len(words)


def _alike(piece: list[str], there: list[str], cut: bool) -> bool:
    """Whether two lists of words are the same; with `cut` the piece may end inside a word."""
    if piece == there:
        return True
    return (
        cut
        and bool(piece)
        and len(piece) == len(there)
        and piece[:-1] == there[:-1]
        and there[-1].startswith(piece[-1])
    )


_CLAUSE = re.compile(r"[\s]*[,，;；。.!！?？:：、\n\t|()（）*\"“”\[\]【】]+[\s]*|\s[-–—•·]\s")


def same_code(a: str, b: str) -> bool:
    """Whether two texts write the same fault code: in any width and case, with or without dashes and `alarm`."""
    return code_key(a) == code_key(b)


def code_key(text: str) -> str:
    """A fault code for look-ups: two that `same_code` holds for have one key."""
    plain = re.sub(r"[\s\-_]+", "", unicodedata.normalize("NFKC", text).casefold())
    return re.sub(r"^(?:alarm|alm|error|code|报警|代码|故障码)[.:：#]?(?=.)", "", plain)
