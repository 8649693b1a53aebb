"""Phone numbers, ID numbers, bank cards, e-mail addresses and licence plates in running text. Pure.

Precision comes first: a wrong mask destroys an alarm code or a part number, which is what the model must learn. So a
number counts only in a form that its kind really has, with its check digit or date where there is one, not attached to
letters or further digits, and not after a word that says that it is a part, serial, order or parameter number.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specs.privacy import PersonalKind
from tasks.data import number_words as words


@dataclass(frozen=True, slots=True)
class Found:
    """Personal data of one kind at `text[start:end]`."""

    kind: PersonalKind
    start: int
    end: int


_IDENTIFIER_BEFORE = re.compile(
    rf"(?:\b(?:{words.IDENTIFIERS_ANYWHERE}|{words.IDENTIFIERS_IN_FRONT})(?:\s*(?:no|number|num|nr|code|id))?"
    rf"|(?:{words.CHINESE_IDENTIFIERS_ANYWHERE}|{words.CHINESE_IDENTIFIERS_IN_FRONT})"
    r"(?:号码|编号|编码|号)?)(?:\s*(?:is|was|=|为|是))?[\s.:：#＃（(]*$",
    re.IGNORECASE,
)
_PHONE_BEFORE = re.compile(
    r"(?:电话|手机|座机|联系方式|联系人|致电|拨打|拨|热线|传真|微信|\b(?:tele)?phone|\btel|\bmobile|\bcell|\bfax|\bwhatsapp"
    r"|\bcontact|\bcall(?:ed)?(?:\s\w+){0,3}?(?:\s(?:at|on))?)"
    r"(?:号码|号|\s*(?:no|number|num|nr))?(?:\s*(?:is|at|on|为|是))?[\s.:：#=（(]*$",
    re.IGNORECASE,
)
_PHONE_GLUED = re.compile(r"\b(?:(?:tele)?phone|tel|mobile|cell|fax|whatsapp)(?:no|number|num|nr)?$", re.IGNORECASE)
"""What may stand before a number without a gap: other letters there (`call him, IS000000`) make it a code."""
_CARD_BEFORE = re.compile(r"(?:卡号|银行|账号|账户|信用卡|储蓄卡|\bcard|\baccount)[^\n]{0,12}$", re.IGNORECASE)
_LOOK_BACK = 40

_CHINESE_MOBILE = re.compile(r"(?:(?:\+|00)?86[-\s]?)?1[3-9]\d(?P<gap>[-\s]?)\d{4}(?P=gap)\d{4}")
_CHINESE_LANDLINE = re.compile(
    r"(?:[（(]0(?:10|2\d|[3-9]\d{2})[)）]\s?|0(?:10|2\d|[3-9]\d{2})(?P<gap>[-\s]))[2-8]\d{6,7}"
    r"(?:\s*(?:转|ext\.?|-)\s*\d{1,5})?"
)
_CHINESE_SERVICE = re.compile(r"[48]00-\d{3}-?\d{4}|[48]00-\d{4}-?\d{3}")
_NORTH_AMERICA = re.compile(
    r"(?:1[-.\s])?(?:\([2-9]\d{2}\)\s?|[2-9]\d{2}(?P<gap>[-.]))\d{3}[-.]\d{4}(?:\s*(?:ext\.?|x)\s*\d{1,5})?"
)
_LONG_NUMBER = re.compile(r"\d(?:[-\s()（）.]{0,2}\d){6}")
_DIGITS = re.compile(r"\(?\d[\d\-() ]{5,17}\d")
_ID_18 = re.compile(r"[1-8]\d{16}[\dXx]")
_ID_15 = re.compile(r"[1-8]\d{14}")
_SOCIAL_SECURITY = re.compile(r"(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
_CARD = re.compile(r"\d{4}(?P<gap>[ -])\d{4}(?P=gap)\d{4}(?P=gap)\d{4}(?:(?P=gap)\d{1,3})?|\d{15,19}")
_EMAIL = re.compile(r"[A-Za-z0-9._%+\-]+@[A-Za-z0-9](?:[A-Za-z0-9\-]*\.)+[A-Za-z]{2,}")
_PLATE = re.compile(
    r"(?P<province>[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼])[A-HJ-NP-Z]\s?[·•.・]?\s?"
    r"(?:[DABCEFGHJK][A-HJ-NP-Z0-9]\d{4}|\d{5}[DABCEFGHJK]|[A-HJ-NP-Z0-9]{4}[A-HJ-NP-Z0-9挂学警港澳])"
)
_GOES_ON = re.compile(r"[-_]?[A-Za-z0-9]")
_WORD_BEFORE_PROVINCE = {"新": "更换最重全刷翻创崭清焕", "宁": "安", "青": "年", "云": "如", "吉": "兆", "川": "山"}
"""`更新B12345` is an update and `换新A12345` a new part, no plates of 新疆."""
_PROVINCES = frozenset(
    str(n)
    for part in ((11, 16), (21, 24), (31, 38), (41, 47), (50, 55), (61, 66), (71, 72), (81, 84))
    for n in range(*part)
)
_LUHN_STARTS = re.compile(r"62|60|65|4|5[1-5]|2[2-7]|3[47]|35|9[0-9]")


def numbers(text: str) -> Iterator[Found]:
    """Every number, address and plate that is personal data; overlapping finds are possible."""
    if "@" in text:
        yield from (Found("email", m.start(), m.end()) for m in _EMAIL.finditer(text) if not _is_rating(m.group()))
    yield from _plates(text)
    yield from _accounts(text)
    if not _LONG_NUMBER.search(text):
        return
    yield from _matching(text, _ID_18, "id_number", _is_id_18)
    yield from _matching(text, _ID_15, "id_number", _is_id_15)
    yield from _matching(text, _SOCIAL_SECURITY, "id_number")
    yield from _cards(text)
    for pattern in (_CHINESE_MOBILE, _CHINESE_LANDLINE, _CHINESE_SERVICE, _NORTH_AMERICA):
        yield from _phones(text, pattern)
    yield from _announced_phones(text)
    if "+" in text:
        yield from _international(text)


_UNIT_AFTER = re.compile(
    r"\s*(?:(?:mm|um|μm|m[AVNgs]|k[AVWNg]|k?Hz|[kM]?Pa|rpm|r/min|bar|psi|°|℃|deg|pulses?|counts?|ppr|pcs"
    r"|cycles|hours)(?![A-Za-z])"
    r"|[件脉毫微米秒度元]|次(?!日)|小时|分钟|赫兹|伏特?|安培|千[瓦伏克帕])"
)
_MEASURE_BEFORE = re.compile(
    rf"(?:\b(?:{words.MEASURES_ANYWHERE}|{words.MEASURES_IN_FRONT})"
    rf"|{words.CHINESE_MEASURES_ANYWHERE}|{words.CHINESE_MEASURES_IN_FRONT})(?:\s*(?:is|was|=|为|是|到))?[\s:：=（(]*$",
    re.IGNORECASE,
)


def is_other(text: str, start: int, end: int) -> bool:
    """Whether a number goes on in letters, or the words around it say that it is a part, an order or a reading."""
    return attached(text, start, end) or _named_identifier(text, start) or _measured(text, start, end)


def _measured(text: str, start: int, end: int) -> bool:
    """Whether a unit follows a number or a word of measuring stands before it: a reading, and no phone or card."""
    return bool(_UNIT_AFTER.match(text, end) or _MEASURE_BEFORE.search(text, max(0, start - _LOOK_BACK), start))


def attached(text: str, start: int, end: int) -> bool:
    """Whether letters or digits go on at either end, directly or over a dash, dot or underscore."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    left = bool(before) and (_ascii(before[-1]) or (before[-1] in "-._+#" and len(before) > 1 and _ascii(before[-2])))
    right = bool(after) and (_ascii(after[0]) or (after[0] in "-._" and len(after) > 1 and _ascii(after[1])))
    return left or right


def _ascii(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _named_identifier(text: str, start: int) -> bool:
    return bool(_IDENTIFIER_BEFORE.search(text, max(0, start - _LOOK_BACK), start))


def _announced(text: str, start: int) -> bool:
    before = _PHONE_GLUED if start and _ascii(text[start - 1]) else _PHONE_BEFORE
    return bool(before.search(text, max(0, start - _LOOK_BACK), start))


def _matching(
    text: str, pattern: re.Pattern[str], kind: PersonalKind, valid: Callable[[str], bool] | None = None
) -> Iterator[Found]:
    for match in pattern.finditer(text):
        start, end = match.span()
        if attached(text, start, end) or _named_identifier(text, start):
            continue
        if valid is None or valid(match.group()):
            yield Found(kind, start, end)


def _is_id_18(number: str) -> bool:
    """Province, date of birth and the check digit of GB 11643 (ISO 7064 MOD 11-2)."""
    if number[:2] not in _PROVINCES or not _is_date(number[6:14]):
        return False
    total = sum(int(digit) * pow(2, 17 - i, 11) for i, digit in enumerate(number[:17]))
    return "10X98765432"[total % 11] == number[17].upper()


def _is_id_15(number: str) -> bool:
    """Province and date of birth of the form used until 1999, which has no check digit."""
    return number[:2] in _PROVINCES and _is_date("19" + number[6:12])


def _is_date(digits: str) -> bool:
    try:
        born = dt.date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return 1900 <= born.year < 2100


_RATING = re.compile(
    r"@\d[\d.]*[A-Za-zµμ]{0,4}\.(?:max|min|nom|typ|avg|peak|rms|dc|ac|on|off|set|low|high|hot|cold|start|stop|idle|load)$",
    re.IGNORECASE,
)


def _is_rating(address: str) -> bool:
    """Whether what looks like an address is a part at a rating: `fuse@10A.max`, `coil@24V.dc`."""
    return bool(_RATING.search(address))


_WECHAT = re.compile(
    r"(?:(?:微信|企微|(?<![A-Za-z])(?:wechat|weixin|vx))(?:号码?|\s?id)?\s*[:：]\s*|(?:微信号|微信id)\s*(?:是|为)?\s*|(?=wxid_))"
    r"(?P<id>[A-Za-z][A-Za-z0-9_\-]{5,19})(?![A-Za-z0-9_\-@.])",
    re.IGNORECASE,
)
_CODE_LIKE = re.compile(r"(?=.*\d)[A-Z0-9_\-]+")
_QQ = re.compile(
    r"(?<![A-Za-z0-9])QQ\s*(?:号码?|群|no\.?|id)?\s*[:：]?\s*(?P<id>[1-9]\d{4,10})(?![A-Za-z0-9_@]|[\-.][A-Za-z0-9])",
    re.I,
)


def _accounts(text: str) -> Iterator[Found]:
    """WeChat and QQ accounts after a word that announces them; what is written as part numbers are is none."""
    folded = text.casefold()
    if (
        "微信" in folded
        or "企微" in folded
        or "wechat" in folded
        or "weixin" in folded
        or "vx" in folded
        or "wxid" in folded
    ):
        yield from (
            Found("account", *m.span("id")) for m in _WECHAT.finditer(text) if not _CODE_LIKE.fullmatch(m["id"])
        )
    if "qq" in folded:
        yield from (Found("account", *m.span("id")) for m in _QQ.finditer(text))


def luhn(digits: str) -> bool:
    """The check of ISO/IEC 7812 card numbers."""
    total = 0
    for i, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + i % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _cards(text: str) -> Iterator[Found]:
    for match in _CARD.finditer(text):
        start, end = match.span()
        digits = re.sub(r"\D", "", match.group())
        if attached(text, start, end) or not luhn(digits) or len(set(digits)) < 2:
            continue
        announced = _CARD_BEFORE.search(text, max(0, start - _LOOK_BACK), start)
        other = _named_identifier(text, start) or _measured(text, start, end)
        if announced or (_LUHN_STARTS.match(digits) and not other):
            yield Found("bank_card", start, end)


def _phones(text: str, pattern: re.Pattern[str]) -> Iterator[Found]:
    """Numbers in the form of a phone. Groups divided by spaces may be a row of readings: they need a word before."""
    for match in pattern.finditer(text):
        start, end = match.span()
        announced = _announced(text, start)
        if attached(text, start, end) and not (announced and not attached(f" {text[start:]}", 1, end - start + 1)):
            continue
        if not announced and (_named_identifier(text, start) or _measured(text, start, end)):
            continue
        if not announced and (match.groupdict().get("gap") or "-").isspace():
            continue
        yield Found("phone", start, end)


def _announced_phones(text: str) -> Iterator[Found]:
    """Any 7 to 15 digits directly after a word such as 电话 or `phone`."""
    for match in _DIGITS.finditer(text):
        start, end = match.span()
        count = sum(c.isdigit() for c in match.group())
        if 7 <= count <= 15 and _announced(text, start) and not attached(f" {text[start:]}", 1, end - start + 1):
            yield Found("phone", start, end)


def _international(text: str) -> Iterator[Found]:
    """Numbers with a country code that are valid in the numbering plan of their country (libphonenumber)."""
    import phonenumbers

    for match in phonenumbers.PhoneNumberMatcher(text, None):
        start, end = match.start, match.end
        if text[start : start + 1] in "+＋" and not (start and _ascii(text[start - 1])):
            yield Found("phone", start, end)


def _plates(text: str) -> Iterator[Found]:
    for match in _PLATE.finditer(text):
        start, end = match.span()
        before, province = text[start - 1 : start], match.group("province")
        if before and before in _WORD_BEFORE_PROVINCE.get(province, ""):
            continue
        body = re.sub(r"[\s·•.・]", "", match.group())[2:]
        if _GOES_ON.match(text, end):
            continue
        if _named_identifier(text, start) and not re.search("[·•・]", match.group()):
            continue
        if sum(c.isdigit() for c in body) < 3:
            continue
        yield Found("plate", start, end)
