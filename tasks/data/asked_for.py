"""Personal data that one turn of a conversation asks for and the next one gives. Pure.

A number tells nothing of itself: `87654321` is a phone number because the turn before it ends with 电话： or asks for
one. What is given is looked for at the beginning of the answer, behind the words that were asked with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.data import name_words as words
from tasks.data.personal_names import names
from tasks.data.personal_numbers import Found, numbers

_TAIL, _HEAD = 80, 200
"""Characters of the question and of the answer that are looked at."""
_LEAD = re.compile(
    r"\s*(?:(?:it|that|this|he|she)(?:\s+(?:is|was)|['’]s)\s+|(?:yes|sure|of course)[,:]\s*|by\s+|(?:是|为|叫|由)\s*)?"
    r"[:：]?\s*",
    re.IGNORECASE,
)
"""What may stand before what was asked for: `it is`, `sure:`, 是."""
_ENDS = re.compile(r"\s*(?:$|[.,;:!?)\n，。；：！？、）])")
_ROLE = (
    "technician|operator|engineer|mechanic|electrician|supervisor|fitter|foreman|inspector|welder|driver|manager|"
    "colleague|customer|contact|person|worker"
)
_PHONE = re.compile(
    r"电话|手机|座机|联系方式|热线|传真|\b(?:tele)?phone|\bmobile|\bcell\b|\bfax|\bwhatsapp|\bhotline", re.IGNORECASE
)
_OTHER_NUMBER = re.compile(
    r"\b(?:parts?|p/?n|serial|s/?n|model|order|ref(?:erence)?|drawing|item|sku|batch|lot|param(?:eter)?|alarm|error|fault|"
    r"code|version|program|count(?:er)?|pulses?|offset|reading|value|speed)\b|料号|件号|物料|编号|序列|序号|机号|型号|图号|订单|工单|"
    r"批号|单号|参数|报警|代码|编码|版本|程序|条码|货号|读数|脉冲|转速|电流|电压",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(r"(?P<wechat>微信|企微|wechat|weixin)|(?P<qq>(?<![A-Za-z])QQ(?![A-Za-z]))", re.IGNORECASE)
_CARD = re.compile(r"卡号|银行|账号|账户|\b(?:credit|debit|bank)\s+card|\bcard number|\bbank account", re.IGNORECASE)
_WHO = re.compile(
    r"谁|哪位|姓名|贵姓|\bwho(?:m|se)?\b(?!\s+(?:makes?|made|builds?|built|sells?|sold|suppl|manufactur|produc))"
    rf"|\b(?:your|his|her|their)\s+name\b|\bname of (?:the |our |your )?(?:{_ROLE})|\b(?:{_ROLE})(?:['’]s)?\s+name\b",
    re.IGNORECASE,
)
_PERSON = ("维修员：", "Technician: ")
_WORDS = re.compile(r"[^\W\d_]+")


def given(question: str, answer: str) -> list[Found]:
    """Personal data at the beginning of an answer that its question announces or asks for."""
    asked = question.rstrip()[-_TAIL:]
    before = [f"{asked}\n", *_asked_with(asked.rpartition("\n")[2])]
    lead = _LEAD.match(answer)
    starts = sorted({0, len(answer) - len(answer.lstrip()), lead.end() if lead else 0})
    return [found for words_before in before for at in starts for found in _behind(words_before, answer, at)]


def _asked_with(question: str) -> Iterator[str]:
    """The words that announce what a question asks for, as they stand where it is told in one text."""
    if _PHONE.search(question) and not _OTHER_NUMBER.search(question):
        yield "电话："
    account = _ACCOUNT.search(question)
    if account:
        yield "微信：" if account["wechat"] else "QQ："
    if _CARD.search(question):
        yield "卡号："
    if _WHO.search(question):
        yield from _PERSON


def _behind(before: str, answer: str, at: int) -> Iterator[Found]:
    """What begins at a place of the answer and is personal data behind these words."""
    text = before + answer[at : at + _HEAD]
    for found in numbers(text):
        if found.start == len(before):
            yield Found(found.kind, at, at + found.end - len(before))
    for found in names(text):
        name, _, _ = text[found.start : found.end].partition("\n")
        end = found.start + len(name)
        if found.start == len(before) and _is_whole(name, before, bool(_ENDS.match(text, end))):
            yield Found("name", at, at + len(name))


def _is_whole(name: str, before: str, ends: bool) -> bool:
    """Whether a name was told. Behind a question it is all that is said, and a single word (`Nobody`) a given name.

    Behind a role or `reported by`, several words and Chinese names are names wherever the answer goes on.
    """
    said = _WORDS.findall(name)
    single = len(said) == 1 and said[0].isascii()
    if before not in _PERSON:
        return ends or not single
    return ends and (not single or said[0].casefold() in words.GIVEN_NAMES)


def recurring(name: str) -> bool:
    """Whether a name is told apart from other words wherever it comes again: not a surname of one character."""
    return len(name) > 2 or (len(name) == 2 and not name.isascii())
