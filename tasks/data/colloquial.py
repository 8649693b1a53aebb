"""Rules that find phenomenon, steps and repair in colloquial maintenance text, in English and Chinese. Pure.

Words are moved, never made up or dropped: apart from list markers and connectives ("then", 再), every character of
the text is in one of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_AFTER = r"(?:(?<=^)|(?<=[\s;；。.,，:：、！？!?]))"
_AFTER_HAN = r"(?:(?<=^)|(?<=[\s;；。.,，:：、！？!?\u4e00-\u9fff]))"
_CHINESE_DIGITS = "一二三四五六七八九十"
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_MARKERS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"{_AFTER}(?:step|步骤)\s*(?P<n>\d{{1,2}})\s*[:：.、)）-]?\s*",
        rf"{_AFTER_HAN}第(?P<n>[{_CHINESE_DIGITS}\d])(?:步|点|项|条)\s*[:：，,、是]?\s*|"
        rf"{_AFTER_HAN}第(?P<m>[{_CHINESE_DIGITS}])\s*[:：，,、]\s*",
        rf"{_AFTER_HAN}[（(](?P<n>\d{{1,2}})[)）]\s*",
        rf"{_AFTER_HAN}(?P<n>\d{{1,2}})[)）]\s*",
        rf"{_AFTER_HAN}(?P<n>\d{{1,2}})、\s*",
        rf"(?:{_AFTER}(?P<n>\d{{1,2}})[.．](?!\d)\s*|(?<=[\u4e00-\u9fff])(?P<m>\d{{1,2}})[.．](?=[\u4e00-\u9fff]))",
        r"(?P<n>[①-⑳])\s*",
        rf"{_AFTER_HAN}[（(]?(?P<n>[{_CHINESE_DIGITS}])[)）、.．]\s*",
        rf"(?:(?<=^)|(?<=[.;:]\s)|(?<=\n))(?P<n>{'|'.join(_ORDINALS)})(?:ly[,:]?|[,:])\s*",
        rf"{_AFTER}[(]?(?P<n>[a-h])[)]\s*",
    )
)
"""The forms of numbered lists. Items of one list have one form; a list inside an item may have another."""
_LAST_EN = re.compile(r"[.;]\s*(?:and\s+)?(?:finally|lastly)\b,?\s+", re.IGNORECASE)
_LAST_ZH = re.compile(r"[，,、；;。]\s*最后[，,]?\s*")
_TITLE = "".join(rf"(?<!\b{title}\.)" for title in ("Mr", "MR", "Mrs", "MRs", "Ms", "MS", "Mx", "Dr", "Prof"))
"""No cut between a title and a name: alone, the name would not be known as one, and would not be masked."""
_SENTENCE_END = re.compile(rf"(?<=[。！？；;\n])\s*|(?<=[.!?]){_TITLE}\s+(?=[A-Z\"(])")
_CONNECTIVE_ZH = re.compile(
    r"[，,、；;。]?\s*(?:然后再|然后|紧接着|接着|随后|之后|其次|最后再|最后|再次[，,]|再)(?=[^次度见])[，,]?\s*"
)
_CONNECTIVE_EN = re.compile(
    r"(?:[,;.]\s*|\s+)(?:and\s+)?(?:then|after that|afterwards|next|finally)\b,?\s+", re.IGNORECASE
)
_FIRST_ZH = re.compile(r"^\s*(?:首先|先)")
_FIRST_EN = re.compile(r"^\s*first(?:ly)?,?\s+", re.IGNORECASE)

_CHECK = re.compile(
    r"\b(?:check|inspect|measur|test|found|find|look|verif|open|trac|examin|confirm|suspect|diagnos)\w*\b"
    r"|检查|检测|测量|测得|测试|发现|查出|查看|查|确认|排查|观察|怀疑|拆开|打开",
    re.IGNORECASE,
)
_BEGINS_CHECK = re.compile(
    r"(?:(?:I|we|then|and|also)\s+)*(?:check|inspect|measur|test|look|verif|open|trac|examin)\w*\b"
    r"|[先再又并]?(?:检查|检测|测量|测试|查看|排查|观察|拆开|打开|测|查)",
    re.IGNORECASE,
)
"""A clause that begins so is a check of its own; what was found belongs to the check before it."""
_REPAIR = re.compile(
    r"\b(?:replac(?:ed?|ing)|repair(?:ed)?|clean(?:ed|ing)?|adjust(?:ed)?|(?:re)?tighten(?:ed)?|reset|swapp?(?:ed)?|"
    r"changed|exchanged|lubricated?|greased|welded|fix(?:ed)?|renew(?:ed)?|flush(?:ed)?|refill(?:ed)?|topped|"
    r"re?align(?:ed)?|aligned|reseat(?:ed)?|solder(?:ed)?|re-?wired?|rebuilt|install(?:ed)?|fitted|restarted|"
    r"reload(?:ed)?|bled|(?:re)?calibrated?|drained|removed|patched|insulated|updated|put in|"
    r"dried|applied|blew|(?:re-?)?crimped|"
    r"wiped|power-?cycled|sealed|straightened|shimmed)\b"
    r"|更换|换了|换新|换上|换成|换下|修复|修理|修好|清洁|清理|清洗|清除|调整|调节|紧固|拧紧|重启|复位|润滑|加油|加注|补油|焊接|重新|"
    r"吹干|擦干|擦拭|改接|(?<=[，。；])换(?![刀热向挡档气])|处理后|处理好|补焊|安装|装好|装回|接好|调好|调回|固定|校准|校正|研磨|疏通|排气",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    rf"(?<=[,，;；。！？\n])\s*|(?<=[.!?]){_TITLE}\s+|\s+(?=(?:and|then)\s+(?:replac|clean|adjust|fix|swap|chang))"
)
_TURN = re.compile(r"^(?:(?:Then|Finally|At last),?\s+|最后[，,]?\s*)")
"""A sentence that begins so tells what was done in the end, whatever its verb."""
_LABELS: dict[str, re.Pattern[str]] = {
    "phenomenon": re.compile(
        r"(?:^|(?<=[\s.;。；*]))(?:\*\*)?(?:problem|symptom|phenomenon|complaint|fault|故障现象|现象|问题|症状|故障)(?:\*\*)?\s*[:：](?:\*\*)?\s*",
        re.IGNORECASE,
    ),
    "steps": re.compile(
        r"(?:^|(?<=[\s.;。；*]))(?:\*\*)?(?:checks?|checked|diagnosis|steps|cause|检查|排查|步骤|诊断|检查步骤|原因|处理步骤)(?:\*\*)?\s*[:：](?:\*\*)?\s*",
        re.IGNORECASE,
    ),
    "repair": re.compile(
        r"(?:^|(?<=[\s.;。；*]))(?:\*\*)?(?:repair|fix|remedy|action|solution|done|维修|处理|修理|措施|解决|解决办法|处理方法)(?:\*\*)?\s*[:：](?:\*\*)?\s*",
        re.IGNORECASE,
    ),
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text says: what was seen, what was checked in which order, what was done."""

    phenomenon: str = ""
    steps: tuple[str, ...] = ()
    repair: str = ""


def split_steps(text: str) -> tuple[str, ...]:
    """The steps of a text: a numbered list, a chain of connectives, else its sentences."""
    text = text.strip()
    numbered = _numbered(text)
    if numbered:
        return numbered
    chained = [part for piece in _CONNECTIVE_EN.split(text) for part in _CONNECTIVE_ZH.split(piece)]
    chained = [_trim(_FIRST_EN.sub("", _FIRST_ZH.sub("", part))) for part in chained]
    chained = [part for part in chained if part]
    if len(chained) > 1:
        return tuple(chained)
    return tuple(_trim(part) for part in _SENTENCE_END.split(_strip_bullets(text)) if _trim(part))


def _numbered(text: str) -> tuple[str, ...]:
    """Items of a list numbered 1, 2, 3... in one form; empty when no form runs from 1 without a hole.

    Of two lists the one that begins first is outside, and its items stay whole.
    """
    runs = [run for pattern in _MARKERS if len(run := _run(pattern, text)) >= 2]
    if not runs:
        return ()
    markers = min(runs, key=lambda run: run[0].start())
    before = _trim(text[: markers[0].start()])
    ends = [m.start() for m in markers[1:]] + [len(text)]
    items = [text[m.end() : end] for m, end in zip(markers, ends, strict=True)]
    last = next((p.split(items[-1], maxsplit=1) for p in (_LAST_ZH, _LAST_EN) if p.search(items[-1])), [items[-1]])
    trimmed = [_trim(item) for item in [*items[:-1], *last]]
    return tuple(item for item in ([before] if before else []) + trimmed if item)


def _run(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The markers of one form that count 1, 2, 3... in the order of the text."""
    markers: list[re.Match[str]] = []
    for match in pattern.finditer(text):
        if _number(match) == len(markers) + 1:
            markers.append(match)
    return markers


def _number(match: re.Match[str]) -> int:
    mark = (match["n"] or match.groupdict().get("m") or "").casefold()
    if mark.isdecimal():
        return int(mark)
    if mark in _CHINESE_DIGITS:
        return _CHINESE_DIGITS.index(mark) + 1
    if mark in _ORDINALS:
        return _ORDINALS.index(mark) + 1
    return ord(mark) - ord("a" if mark.isascii() else "①") + 1


def _strip_bullets(text: str) -> str:
    return re.sub(r"(?m)^\s*[-*•·]\s+", "", text)


def _trim(text: str) -> str:
    return " ".join(text.split()).strip(" ,，;；、")


def structure(text: str) -> Parts:
    """Phenomenon, steps and repair of a free text: by labels where it has them, else by its verbs in order.

    Without a clause that repairs, everything is phenomenon: the caller decides what to do with such a text.
    """
    labelled = _labelled(text)
    if labelled:
        return labelled
    clauses = [c for c in _CLAUSE.split(text.strip()) if c and c.strip()]
    repair_at = next((i for i, c in enumerate(clauses) if _repairs(c)), None)
    if repair_at is None:
        return Parts(phenomenon=_joined(clauses))
    check_at = next((i for i, c in enumerate(clauses[:repair_at]) if i > 0 and _CHECK.search(c)), repair_at)
    return Parts(
        phenomenon=_joined(clauses[:check_at]),
        steps=_steps_of(clauses[check_at:repair_at]),
        repair=_TURN.sub("", _joined(clauses[repair_at:])),
    )


def _steps_of(clauses: Sequence[str]) -> tuple[str, ...]:
    """The steps of clauses that check: by their list or connectives, else each clause that begins with a check."""
    steps = split_steps(_joined(clauses)) if clauses else ()
    if len(steps) != 1:
        return steps
    groups: list[list[str]] = []
    for clause in clauses:
        if not groups or _BEGINS_CHECK.match(clause.strip()):
            groups.append([])
        groups[-1].append(clause)
    return tuple(_trim(_joined(group)) for group in groups)


def divide_action(text: str) -> Parts:
    """Steps and repair of a text that tells what was done: the checks before the first repairing clause are steps."""
    clauses = [c.strip() for c in _CLAUSE.split(text.strip()) if c and c.strip()]
    turn = next((i for i, c in enumerate(clauses) if i and _TURN.match(c)), None)
    repair_at = turn if turn is not None else next((i for i, c in enumerate(clauses) if _repairs(c)), 0)
    if repair_at == 0 or not any(_CHECK.search(c) for c in clauses[:repair_at]):
        return Parts(repair=text.strip())
    done = [_TURN.sub("", clauses[repair_at]), *clauses[repair_at + 1 :]]
    return Parts(steps=split_steps(_joined(clauses[:repair_at])), repair=_joined(done))


def has_labels(text: str) -> bool:
    """Whether a text names its phenomenon and its repair by labels such as `Problem:` and `Fix:`."""
    return _labelled(text) is not None


def _repairs(clause: str) -> bool:
    match = _REPAIR.search(clause)
    if not match:
        return False
    checked = _CHECK.search(clause)
    return checked is None or match.start() < checked.start() or len(clause) > checked.end() + 12


def _labelled(text: str) -> Parts | None:
    found = [(m, name) for name, pattern in _LABELS.items() for m in pattern.finditer(text)]
    found.sort(key=lambda item: (item[0].start(), item[0].end()))
    names = {name for _, name in found}
    if not {"phenomenon", "repair"} <= names:
        return None
    parts: dict[str, list[str]] = {"phenomenon": [], "steps": [], "repair": []}
    before = text[: found[0][0].start()].strip()
    if before:
        parts["phenomenon"].append(before)
    for index, (match, name) in enumerate(found):
        end = found[index + 1][0].start() if index + 1 < len(found) else len(text)
        parts[name].append(text[match.end() : end].strip())
    return Parts(
        phenomenon=_joined(parts["phenomenon"]),
        steps=split_steps("\n".join(parts["steps"])) if parts["steps"] else (),
        repair=_joined(parts["repair"]),
    )


def _joined(clauses: Sequence[str]) -> str:
    """Clauses put together again: no space after Chinese punctuation."""
    text = ""
    for clause in (c.strip() for c in clauses):
        if not clause:
            continue
        glue = "" if not text or text[-1] in "，；。！？、：" else " "
        text += glue + clause
    return _trim(text)
