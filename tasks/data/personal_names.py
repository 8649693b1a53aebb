"""Names of people after or before a title or a role, in Chinese and English. Pure.

A name is masked only where a title (师傅, Mr.), a role (维修员：, technician) or a phrase such as "reported by" says
that a person is meant. Lists keep out words of the workshop that look like names (高级, 白班, Operator, Replaced).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.data import name_words as words
from tasks.data.personal_numbers import Found

_DOUBLE = "|".join(words.DOUBLE_SURNAMES)
_SURE, _WIDE = words.SURE_SURNAMES, words.WIDE_SURNAMES
_NO_NAMES, _TITLE, _VERB = "|".join(words.NO_NAMES), "|".join(words.TITLES), "|".join(words.VERBS)
_ROLE = f"(?:{'|'.join(words.ROLE_TASKS)})(?:人员|人|员|工|者)|{'|'.join(words.ROLES)}"
_HAN = r"[\u4e00-\u9fff]"
_TITLED = re.compile(
    rf"(?<![一二三四五六七八九十两几每\d])(?P<name>(?:{_DOUBLE})|(?!{_NO_NAMES})[{_SURE}]{_HAN}{{0,2}}?|"
    rf"(?<![{_SURE}最每当对])(?<!任(?=何))(?<![担责主兼现新历连](?=任))[{_WIDE}])(?P<title>{_TITLE})"
)
_SHORT_TITLED = re.compile(
    rf"(?<![一二三四五六七八九十两几每整各\d])(?P<name>[{_SURE}黄周林何马田])(?P<title>[工总])"
    rf"(?![作件单具艺业程序况位时厂人段装部夹会结成量线共数是的])"
)
_WITH_ROLE = re.compile(
    rf"(?P<role>{_ROLE})\s*[:：]\s*(?P<name>(?:(?:{_DOUBLE}){_HAN}{{1,2}}|(?!{_NO_NAMES})[{_WIDE}]{_HAN}{{1,2}}?))"
    rf"(?={_VERB}|{_TITLE}|(?!{_HAN}))"
)
_ROLE_AND_NAME = re.compile(
    rf"(?P<role>{_ROLE})\s{{0,2}}(?P<name>(?!{_NO_NAMES})[{_SURE}]{_HAN}{{1,2}}?)(?={_VERB}|[，。,；;、\s）)]|$)"
)
_NICKNAME = re.compile(rf"(?<!{_HAN})(?P<name>[小老][{_SURE}黄周林何马田])(?={_VERB})")
_LATIN_ROLE = re.compile(rf"(?P<role>{_ROLE})\s*[:：]\s*(?P<name>[A-Z][a-z]+(?:[ ·][A-Z][a-z]+){{0,2}})(?![A-Za-z0-9])")
_CHINESE = (_TITLED, _SHORT_TITLED, _WITH_ROLE, _ROLE_AND_NAME, _NICKNAME, _LATIN_ROLE)

_WORD = r"[A-ZÀ-Þ][a-zà-ÿ]+(?:['’\-][A-ZÀ-Þ]?[a-zà-ÿ]+)?|[A-Z]['’][A-Z][a-z]+|(?:Mc|Mac)[A-Z][a-z]+"
_INITIAL = r"[A-Z]\.\s?"
_NEXT = r"(?:[^\S\n]|\n(?![A-Za-z]+(?: \d+)?\s?[:：]))"
"""Between the words of a name: white space, but not the end of a line before a label such as `Repair:`."""
_NAME = rf"(?:{_INITIAL}){{0,2}}(?:{_WORD})(?:{_NEXT}(?:{_INITIAL})?(?:{_WORD})){{0,2}}"
_MISTER = re.compile(rf"\b(?:M[Rr]s?|M[Ss]|Mx|Miss|Dr|Prof)\.?\s+(?P<name>{_NAME}|[A-Z]{{3,}})(?![A-Za-z0-9])")
_BY = re.compile(
    r"\b(?i:reported|checked|repaired|inspected|done|performed|completed|fixed|found|noticed|signed|approved|called|"
    r"replaced|installed|requested|verified|tested|noted|confirmed|serviced|cleaned|diagnosed|adjusted|changed|reviewed|"
    r"assigned|submitted|entered|logged|opened|closed)"
    rf"(?i:(?:\s+in|\s+off|\s+up)?\s+(?:by|to)(?:\s+(?:technician|operator|engineer|mechanic|electrician|fitter))?)\s*:?\s+"
    rf"(?P<name>{_NAME})(?![A-Za-z0-9])"
)
_ENGLISH_ROLE = (
    r"technician|tech|operator|engineer|mechanic|electrician|supervisor|fitter|foreman|inspector|requester|requestor|"
    r"reporter|reported by|maintainer|welder|contact person|attn|employee|assignee|assigned to|"
    r"performed by|completed by|signed by"
)
_ROLE_COLON = re.compile(rf"\b(?i:{_ENGLISH_ROLE})\s*[:=]\s*(?P<name>{_NAME})(?![A-Za-z0-9])")
_ROLE_FULL_NAME = re.compile(
    rf"\b(?i:technician|tech|operator|engineer|mechanic|electrician|supervisor|fitter|foreman|inspector|welder|driver)\s+"
    rf"(?P<name>(?:{_INITIAL}){{1,2}}(?:{_WORD})|(?:{_WORD})\s(?:{_INITIAL})?(?:{_WORD}))(?![A-Za-z0-9])"
)
_GIVEN_NAME = re.compile(
    rf"\b(?:{_ENGLISH_ROLE}|(?:reported|repaired|checked|inspected|done|found|replaced|fixed|called)(?:\s+in)?\s+by)"
    rf"\s*:?\s+(?P<name>(?:{'|'.join(words.GIVEN_NAMES)})(?:\s+(?!(?:{'|'.join(sorted(words.NO_ENGLISH_NAMES))})\b)[a-z]{{3,}})??)"
    r"(?=\s*(?:$|[.,;:)\n]|\s(?:and|on|at|in|the|to|that|who|from|for|replaced|found|checked|reported|repaired)\b))",
    re.IGNORECASE,
)
_GIVEN = "|".join(name.capitalize() for name in words.GIVEN_NAMES)
_FULL_NAME = re.compile(rf"\b(?P<name>(?:{_GIVEN})\s(?:{_INITIAL})?(?P<last>{_WORD}))(?![A-Za-z0-9])")
_TOLD = re.compile(
    rf"(?:[是由找问叫请让给]|联系)(?P<name>(?!{_NO_NAMES})(?:(?:{_DOUBLE}){_HAN}{{1,2}}|[{_SURE}]{_HAN}{{1,2}}?))"
    rf"(?={_VERB}|{_TITLE}|[的了修换来去做]|(?!{_HAN}))"
)
_ENGLISH = (_MISTER, _BY, _ROLE_COLON, _ROLE_FULL_NAME, _GIVEN_NAME)
_HINTS_CHINESE = frozenset("傅师理任长管总员士姐工人者名字监机生小老")
"""One of them is in every title and role above: texts without any, which are most, need no search."""
_HINTS_ENGLISH = (
    *(
        " by",
        "mr.",
        "mr ",
        "mrs",
        "ms ",
        "ms.",
        "mx ",
        "mx.",
        "miss ",
        "dr ",
        "dr.",
        "prof",
        "ed to ",
        "tech",
        "operator",
        "engineer",
        "mechanic",
        "electrician",
    ),
    *("supervisor", "fitter", "foreman", "inspector", "request", "reporter", "maintainer", "welder", "contact person"),
    *("attn", "employee", "assign", "driver"),
)
_SURNAMES = frozenset(_WIDE + "欧司上诸慕令皇尉夏")


def names(text: str) -> Iterator[Found]:
    """Every name that a title or a role marks as a person; overlapping finds are possible."""
    characters = set(text)
    if characters & _HINTS_CHINESE and (characters & _SURNAMES or _LATIN_ROLE.search(text)):
        for pattern in _CHINESE:
            for match in pattern.finditer(text):
                if match["name"] not in ("无", "未知"):
                    yield Found("name", *match.span("name"))
    lower = " ".join(text.casefold().split())
    if any(hint in lower for hint in _HINTS_ENGLISH):
        for pattern in _ENGLISH:
            for match in pattern.finditer(text):
                end = _end_of_person(match["name"], titled=pattern is _MISTER)
                if end:
                    yield Found("name", match.start("name"), match.start("name") + end)


def told_names(text: str) -> Iterator[Found]:
    """Names in the answer to a question for a person: given name and surname, a Chinese name behind 是, 由 or 找."""
    yield from (Found("name", *match.span("name")) for match in _TOLD.finditer(text))
    for match in _FULL_NAME.finditer(text):
        if match["last"].casefold() not in words.NO_ENGLISH_NAMES and not _looks_like_a_verb(match["last"]):
            yield Found("name", *match.span("name"))


def _end_of_person(name: str, titled: bool) -> int:
    """How many characters of a find are the name: up to the first word that is no name; 0 when the first is none.

    Behind a title, a first word that looks like a verb (`Mr. Mohammed`) is a name.
    """
    end = 0
    for match in re.finditer(r"\S+", name):
        if match.group().casefold() in words.NO_ENGLISH_NAMES or (
            _looks_like_a_verb(match.group()) and not (titled and end == 0)
        ):
            break
        end = match.end()
    return end


def _looks_like_a_verb(word: str) -> bool:
    return len(word) > 4 and word.endswith(("ed", "ing")) and word.casefold() not in words.GIVEN_NAMES
