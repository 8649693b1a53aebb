"""Personal data looked for in finished samples, by rules of their own: plain scans of digit groups, titles and roles.

It counts what a reader would take for personal data beyond doubt: a form with its check digit or date, or a number or
name right after a word that announces it. It shares with the stage only the kinds and their placeholders.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from specs.privacy import PLACEHOLDERS
from tasks.turns import turns_of

_GROUPS = re.compile(r"(?<![\w.\-+#/])\+?\(?\d[\d()\- ]*[\dXx](?![\w]|[.\-]\w)", re.ASCII)
_ANNOUNCED = re.compile(
    r"(?:电话|手机|手机号|座机|\b(?:tele)?phone|\bmobile|\btel\.?)(?:号码?|\s*(?:no\.?|number))?\s*[:：]?\s*"
    r"(\d[\d\- ]{5,17}\d)(?![\w\-(]|\s\d)",
    re.IGNORECASE,
)
_NOT_A_PERSON = re.compile(
    r"(?:part|serial|s/n|p/n|order|param\w*|ref\w*|item|asset|batch|lot|drawing|stock|sku|model|type|code|alarm|error|fault"
    r"|version|program|device|machine|unit|article|material|barcode|cat\w*|art|dwg|sn|pn|ser|wo"
    r"|号|编码|代码|料|件|批|条码|参数|报警|版本|程序|资产|零件|规格|序列|订单)\W*(?:no|number|num|nr|id|code|is|was|为|是|号码?)?\W*$",
    re.IGNORECASE,
)
_READING_BEFORE = re.compile(
    r"(?:count(?:er)?|pulses?|offset|preset|reading|value|range|life|speeds?|rpm|resolution|encoder|fuse|ratio|set"
    r"|读数|计数器?|脉冲数?|转速|电流|电压|压力|产量|里程|总数|数量|设定值|分辨率|量程)\W*(?:to|is|was|为|是|到)?\W*$",
    re.IGNORECASE,
)
_READING_AFTER = re.compile(
    r"\s*(?:(?:mm|um|μm|m[AVNgs]|k[AVWNg]|k?Hz|[kM]?Pa|rpm|r/min|bar|psi|°|℃|deg|pulses?|counts?|ppr|pcs"
    r"|cycles|hours)(?![A-Za-z])"
    r"|[件脉毫微米秒度元]|次(?!日)|小时|分钟|赫兹|伏特?|安培|千[瓦伏克帕])"
)
_CARD_WORD = re.compile(r"(?:卡号|card|账号|account)\W*(?:no|number)?\W*$", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+%\-]+@[\w\-]+(?:\.[\w\-]+)*\.[a-z]{2,}", re.IGNORECASE | re.ASCII)
_CHINESE_PLATE = re.compile(
    r"(?<![一-鿿])[京津沪渝冀豫辽黑湘皖鲁苏浙赣鄂桂晋蒙陕闽粤][A-HJ-NP-Z][·•]?(?=(?:[A-Z]*\d){3})[A-HJ-NP-Z\d]{5,6}(?![\w\-])",
    re.ASCII,
)
_TITLED = re.compile(
    r"(?:^|(?<=[\s，。；、：:,请由让和给找]))[王李张刘陈杨赵吴徐孙朱胡郭罗梁宋郑谢韩唐冯曹袁邓傅沈彭吕蒋蔡贾丁魏薛杜](?=师傅|先生|女士)"
)
_ROLE = re.compile(
    r"(?:维修员|维修人|操作员|操作工|报修人|检修人|联系人)[:：]\s*([王李张刘陈杨赵吴徐孙朱胡郭罗梁宋郑谢韩唐冯曹袁邓傅沈彭吕蒋蔡贾丁魏薛杜][一-鿿]{1,2})"
    r"(?![一-鿿])"
)
_MISTER = re.compile(r"\b(?:Mr|Mrs)\.? ([A-Z][a-z]{2,})(?![\w])")
_BY_INITIAL = re.compile(r"\b(?:[Rr]eported|[Rr]epaired|[Cc]hecked) by ([A-Z]\. ?[A-Z][a-z]+)(?!\w)")


_NARROW = str.maketrans(dict(zip("０１２３４５６７８９＋－＠．（）‐‑–—", "0123456789+-@.()----", strict=True)))


_AT_A_RATING = re.compile(
    r"@\d[\d.]*[a-zµμ]{0,4}\.(?:max|min|nom|typ|avg|peak|rms|dc|ac|on|off|set|low|high|hot|cold|start|stop|idle|load)$",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(
    r"(?:微信号?|wechat)[:：]\s*([a-z][a-z0-9_\-]{5,19})(?![\w\-@.])|(?<![a-z0-9])QQ号?[:：]?\s*([1-9]\d{4,10})(?![\w@]|[\-.]\w)",
    re.IGNORECASE | re.ASCII,
)

_MAY_BE_ACCOUNT = re.compile("微信|wechat|qq", re.IGNORECASE)
_MAY_ANNOUNCE = re.compile("电话|手机|座机|phone|mobile|tel", re.IGNORECASE)
"""What must be in a text before the costlier patterns can find anything."""
_SHOUTED = re.compile(r"[A-Z0-9_\-]*\d[A-Z0-9_\-]*")
"""Capitals with digits: a part number, also after the word WeChat."""


def personal_data(text: str, allowed: Iterable[str] = ()) -> list[str]:
    """Every piece of personal data in a text, in narrow digits; entries of the allow list are left out."""
    known = {_letters(entry) for entry in allowed}
    text = text.translate(_NARROW)
    found = [*_without_names(text), *_names(text)]
    return [f for f in dict.fromkeys(found) if _letters(f) not in known]


def _names(text: str) -> list[str]:
    found = [m.group(1) for pattern in (_MISTER, _BY_INITIAL) for m in pattern.finditer(text)]
    if not text.isascii():
        found += [*_TITLED.findall(text), *(m.group(1) for m in _ROLE.finditer(text))]
    return found


def _without_names(text: str) -> list[str]:
    found = [*_numbers(text), *([] if text.isascii() else _plates(text))]
    if "@" in text:
        found += [m for m in _MAIL.findall(text) if not _AT_A_RATING.search(m)]
    if _MAY_BE_ACCOUNT.search(text):
        found += [m.group(1) or m.group(2) for m in _ACCOUNT.finditer(text) if not _SHOUTED.fullmatch(m.group(1) or "")]
    announced = (m.group(1) for m in _ANNOUNCED.finditer(text)) if _MAY_ANNOUNCE.search(text) else ()
    return found + [number for number in announced if 7 <= sum(map(str.isdigit, number)) <= 15]


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


def _plates(text: str) -> list[str]:
    """Plates; one without the dot may be a part number after a word that says so."""
    found = [(m.group(), text[max(0, m.start() - 30) : m.start()]) for m in _CHINESE_PLATE.finditer(text)]
    return [plate for plate, before in found if plate[2] in "·•" or not _NOT_A_PERSON.search(before)]


def _numbers(text: str) -> list[str]:
    found = ((m.group(), text[max(0, m.start() - 30) : m.start()], m.end()) for m in _GROUPS.finditer(text))
    return [group for group, before, end in found if _is_personal(group, before, bool(_READING_AFTER.match(text, end)))]


def _is_personal(group: str, before: str, unit_follows: bool) -> bool:
    digits = re.sub(r"[^\dXx]", "", group)
    solid = digits == group
    if _CARD_WORD.search(before):
        return 15 <= len(digits) <= 19 and digits.isdigit() and _card_check(digits)
    if _NOT_A_PERSON.search(before) or _READING_BEFORE.search(before) or unit_follows:
        return False
    if re.fullmatch(r"(?:\+?86[ -]?)?1[3-9]\d-?\d{4}-?\d{4}", group) and len(digits) in (11, 13):
        return group.count("-") in (0, 2, 3) or group.startswith("+")
    if re.fullmatch(r"\(?[2-9]\d\d\)?[- ]?[2-9]\d\d-\d{4}", group) and ("(" in group or group.count("-") == 2):
        return True
    if re.fullmatch(r"\d{3}-\d{2}-\d{4}", group):
        return not re.match(r"000|666|9|...-00|...-..-0000", group)
    return solid and len(digits) == 18 and _born(digits[6:14]) and _identity_check(digits)


def _born(digits: str) -> bool:
    try:
        return 1900 <= dt.datetime.strptime(digits, "%Y%m%d").year <= 2099
    except ValueError:
        return False


def _identity_check(number: str) -> bool:
    """GB 11643: the weighted sum of all 18 places is 1 modulo 11."""
    places = [10 if c in "Xx" else int(c) for c in number]
    if 10 in places[:17] or number[0] in "09":
        return False
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2, 1)
    return sum(p * w for p, w in zip(places, weights, strict=True)) % 11 == 1


def _card_check(digits: str) -> bool:
    doubled = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
    return sum(doubled[int(d)] if i % 2 else int(d) for i, d in enumerate(reversed(digits))) % 10 == 0


FIELDS = ("device_model", "phenomenon", "steps", "repair", "prompt", "answer", "text")
"""What is searched of a sample. A fault code is announced as one wherever it stands, and so it is no find."""


def in_samples(samples: Sequence[Mapping[str, Any]], allowed: Iterable[str]) -> int:
    """Pieces of personal data in the samples; one that stands in several fields of a sample counts once.

    A machine may have the name of a person: where it stands as the machine, no name in it counts.
    """
    known = {_letters(entry) for entry in allowed}
    total = 0
    for sample in samples:
        text = "\n".join(str(sample[name] or "") for name in _searched(sample))
        text = text if text.isascii() else text.translate(_NARROW)
        told = (piece for question, answer in pairwise(_turns(sample)) for piece in told_by_answer(question, answer))
        found = {_letters(one) for one in (*_without_names(text), *_names(_without_machine(sample, text)), *told)}
        total += len(found - known)
    return total


def _turns(sample: Mapping[str, Any]) -> list[str]:
    """The turns of a sample of instruction data, in order."""
    if sample.get("kind") != "instruction":
        return []
    return [*(turn.text for turn in turns_of(sample) if turn.role != "system"), sample["prompt"], sample["answer"]]


_ASKS_FOR_PHONE = re.compile(
    r"(?:电话|手机|座机)(?:号码?)?(?:是多少|呢|是|多少)?\W*$|\b(?:phone|mobile)\b(?: number| no\.?)?[^.?\n]{0,30}\W*$",
    re.IGNORECASE,
)
_NUMBER_GIVEN = re.compile(r"(?:it is\s+|是\s*)?[:：]?\s*(\d[\d\- ]{5,17}\d)(?![\w\-(]|\s\d)", re.IGNORECASE)
_ASKED_BY = re.compile(r"\b(?:reported|repaired|checked) by\W*$", re.IGNORECASE)
_KNOWN_NAME = r"(?:John|Mary|Peter|James|David|Robert|Michael|Thomas|Paul|Jane|Susan|Anna|Maria) [A-Z][a-z]{2,}"
_FULL_NAME = re.compile(rf"\s*({_KNOWN_NAME})\s*[.,;]?\s*$")
_WHO_DID = re.compile(r"\bwho (?:repaired|fixed|checked|replaced|reported)\b[^.?\n]{0,30}\W*$", re.IGNORECASE)
_NAME_TOLD = re.compile(
    rf"\b({_KNOWN_NAME})(?= (?:repaired|fixed|checked|replaced|reported|did)\b)|\b(?:was|by) ({_KNOWN_NAME})(?=[.,;]|$)"
)
_WHO_CHINESE = re.compile(r"谁(?:修|换|报)的\W*$")
_TOLD_CHINESE = re.compile(r"[是由]([王李张刘陈杨赵吴徐孙][建国明伟芳强军磊][建国明伟芳强军磊]?)(?=处理|[，。]|$)")


def told_by_answer(question: str, answer: str) -> list[str]:
    """Personal data in an answer that only its question makes known as such."""
    asked, said = question.rstrip().rpartition("\n")[2].translate(_NARROW), answer.lstrip().translate(_NARROW)
    joined = f"{asked}\n{said}"
    found = [one for one in (*_without_names(joined), *_names(joined)) if said.startswith(one)]
    number = _NUMBER_GIVEN.match(said) if _ASKS_FOR_PHONE.search(asked) and not _OTHER_WORD.search(asked) else None
    if number and 7 <= sum(map(str.isdigit, number[1])) <= 15 and not _READING_AFTER.match(said, number.end()):
        found.append(number[1])
    named = _FULL_NAME.match(said) if _ASKED_BY.search(asked) else None
    return [*found, *([named[1]] if named else []), *_told_later(asked, said[:_LATER_AT_MOST])]


_LATER_AT_MOST = 150


def _told_later(asked: str, said: str) -> Iterator[str]:
    """What was asked for and stands anywhere near the beginning of an answer."""
    if _ASKS_FOR_PHONE.search(asked) and not _OTHER_WORD.search(asked):
        for m in _GROUPS.finditer(said):
            before = re.split(r"[.,;!?\n，。；！？、]", said[: m.start()])[-1]
            other = _OTHER_WORD.search(before) or _NOT_A_PERSON.search(before) or _READING_AFTER.match(said, m.end())
            if not other and 7 <= sum(map(str.isdigit, m.group())) <= 11 and m.group().isdigit():
                yield m.group()
    if _WHO_DID.search(asked):
        yield from (m[1] or m[2] for m in _NAME_TOLD.finditer(said))
    if _WHO_CHINESE.search(asked):
        yield from _TOLD_CHINESE.findall(said)


_OTHER_WORD = re.compile(
    r"part|serial|order|param|item|asset|batch|lot|drawing|model|type|code|alarm|error|fault|version|program|p/n|s/n|ref|sku"
    r"|value|read|count|puls|speed|offset"
    r"|[料件编序机型图单批货]号|物料|编码|序列|订单|工单|批次|参数|报警|代码|版本|程序|资产|规格|条码|读数|脉冲|转速|电流|电压",
    re.IGNORECASE,
)
"""In a question that holds one of these, another number than that of a phone may be meant."""


def named_again(record: Sequence[str], samples: Sequence[str], allowed: Iterable[str]) -> list[str]:
    """Names that a title marks in the turns of a record and that stand in its samples without one."""
    known = {_letters(entry) for entry in allowed}
    said = "\n".join(samples)
    titled = {name for text in record for name in _MISTER.findall(text)} - set(_MISTER.findall(said))
    return sorted(
        name
        for name in titled
        if _letters(name) not in known and re.search(rf"(?<![\w\-./]){name}(?![\w\-/]|\.\w)", said)
    )


def _searched(sample: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields to look at: prompt and answer stand in the text once more, as they were rendered."""
    text = str(sample["text"] or "")
    rendered = all(str(sample[name] or "") in text for name in ("prompt", "answer"))
    return tuple(name for name in FIELDS if not rendered or name not in ("prompt", "answer"))


def _without_machine(sample: Mapping[str, Any], text: str) -> str:
    machine = str(sample["device_model"] or "").translate(_NARROW)
    if not machine or not _names(machine):
        return text
    rest = text.removeprefix(machine)
    return re.sub(rf"(Machine: |设备：){re.escape(machine)}(?=\n)", r"\1", rest)


_PLACEHOLDER = re.compile("|".join(re.escape(p) for words in PLACEHOLDERS.values() for p in words.values()))


def placeholders(text: str) -> int:
    """How many placeholders stand in a text."""
    return len(_PLACEHOLDER.findall(text))


def without_placeholders(text: str, instead: str = " ") -> str:
    """A text with a space, or something else, where personal data was masked."""
    return _PLACEHOLDER.sub(instead, text)


def pieces(text: str) -> list[str]:
    """What stands between the placeholders of a text, empty pieces at its ends too."""
    return _PLACEHOLDER.split(text)


def end_of(text: str) -> tuple[str, bool]:
    """The last piece of a text between placeholders, and whether personal data was masked behind it."""
    pieces = _PLACEHOLDER.split(text)
    spoken = [i for i, piece in enumerate(pieces) if any(c.isalnum() for c in piece)]
    return (pieces[spoken[-1]], spoken[-1] + 1 < len(pieces)) if spoken else ("", len(pieces) > 1)


def blank(text: str) -> str:
    """A raw text without personal numbers and addresses: what a comparison of codes and numbers may rest on."""
    text = text.translate(_NARROW)
    for piece in sorted(personal_data(text), key=len, reverse=True):
        if len(piece) > 5:
            text = text.replace(piece, " ")
    return text
