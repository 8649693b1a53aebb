"""Personal data that one turn of a conversation asks for and the next one gives. Pure.

A number tells nothing of itself: `87654321` is a phone number because the turn before it ends with 电话： or asks for
one. What was asked for is looked for behind the words of the question, first at the beginning of the answer, then at
every place of it that can hold it: a number there counts unless the words around it say that it is another one, a name
only where a given name or a word such as 由 leaves no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.data import name_words as words
from tasks.data import number_words
from tasks.data.personal_names import names, told_names
from tasks.data.personal_numbers import Found, is_other, numbers

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
    rf"\b(?:{number_words.IDENTIFIERS_ANYWHERE}|{number_words.MEASURES_ANYWHERE})\b"
    rf"|{number_words.CHINESE_IDENTIFIERS_ANYWHERE}|{number_words.CHINESE_MEASURES_ANYWHERE}",
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
_WECHAT = "微信："
_DIGIT_GROUP = re.compile(r"(?<![\w(+])(?:\+?\d|\(\d)", re.ASCII)
_ACCOUNT_LIKE = re.compile(r"(?<![A-Za-z0-9_\-])(?=[A-Za-z\-]+[\d_])[A-Za-z]")
_LATIN = re.compile(r"[A-Za-z]{2}")
_NO_WORD = re.compile(r"[\d_]")
"""Where an account may begin: no word has a digit or a low line in it."""
_CLAUSE = re.compile(r"[.,;!?\n，。；！？、]")
_WORDS = re.compile(r"[^\W\d_]+")


def given(question: str, answer: str) -> list[Found]:
    """Personal data in an answer that its question announces, or asks for."""
    asked = question.rstrip()[-_TAIL:]
    asked_with = [*_asked_with(asked.rpartition("\n")[2])]
    lead = _LEAD.match(answer)
    starts = sorted({0, len(answer) - len(answer.lstrip()), lead.end() if lead else 0})
    found = [one for before in (f"{asked}\n", *asked_with) for at in starts for one in _behind(before, answer, at)]
    first = [one for one in found if one.kind != "account" or _is_account(answer, one)]
    return [*first, *(one for before in asked_with for one in _later(before, answer))]


def _is_account(answer: str, found: Found) -> bool:
    """The only Latin word may be the account; of several words the one that no language has is."""
    return not _LATIN.search(answer, found.end) or bool(_NO_WORD.search(answer, found.start, found.end))


def _later(before: str, answer: str) -> Iterator[Found]:
    """What was asked for with these words, anywhere in the head of an answer."""
    if before in _PERSON:
        yield from told_names(answer[:_HEAD])
    else:
        candidates = _ACCOUNT_LIKE if before == _WECHAT else _DIGIT_GROUP
        for match in candidates.finditer(answer, 0, _HEAD):
            for one in _behind(before, answer, match.start()):
                clause = _CLAUSE.split(answer[: one.start])[-1]
                if not _OTHER_NUMBER.search(clause) and not is_other(answer, one.start, one.end):
                    yield one


def _asked_with(question: str) -> Iterator[str]:
    """The words that announce what a question asks for, as they stand where it is told in one text."""
    if _PHONE.search(question) and not _OTHER_NUMBER.search(question):
        yield "电话："
    account = _ACCOUNT.search(question)
    if account:
        yield _WECHAT if account["wechat"] else "QQ："
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
