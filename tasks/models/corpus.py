"""General machine-tool prose and questions in Chinese and English: what the tiny model is pre-trained on.

Made by rules from a table of machine parts, so that no text of a project is ever in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Part:
    """A machine part in one language: its purpose, how it shows trouble, what to look at, what to do."""

    name: str
    purpose: str
    symptoms: tuple[str, ...]
    checks: tuple[str, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Dialogue:
    """A question and its answer."""

    question: str
    answer: str


def _parts(language: str) -> tuple[Part, ...]:
    """The table of parts: name | purpose | symptoms; ... | checks; ... | actions; ..."""
    table = resources.files("tasks.models").joinpath(f"parts_{language}.txt").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return tuple(Part(r[0], r[1], *(tuple(x.strip() for x in cell.split(";")) for cell in r[2:5])) for r in rows)


PARTS = {language: _parts(language) for language in ("en", "zh")}


def words_of_the_trade(language: str) -> list[str]:
    """Words that the tokenizer should know in one piece; the model is not trained on them."""
    text = resources.files("tasks.models").joinpath(f"lexicon_{language}.txt").read_text("utf-8")
    words: list[str] = []
    for line in text.splitlines():
        words += line.partition(" ")[2].split("," if language == "en" else None)
    return words


MACHINES = {
    "en": ("the lathe", "the milling machine", "machine 3", "the grinder", "the machining centre", "line 2"),
    "zh": ("车床", "铣床", "3号机床", "磨床", "加工中心", "二线设备"),
}

PROSE = {
    "en": (
        "The {part} is there to {purpose}. When it {symptom}, first {check}, then {action}.",
        "Before work on the {part}, switch off the main switch and wait five minutes. Then {check}.",
        "Every {n} hours, {check}. If the {part} {symptom}, {action} and make a test run.",
        "On {machine} the {part} {symptom}. The reason was found: after we had to {action} it ran normally.",
        "1. {Check}. 2. {Check2}. 3. {Action}. The {part} must be tested at {n} percent feed before production.",
    ),
    "zh": (
        "{part}用于{purpose}。出现{symptom}时，先{check}，再{action}。",
        "检修{part}之前，必须断开总电源，等待五分钟，然后{check}。",
        "每运行{n}小时应{check}。若{part}{symptom}，应{action}，最后试运行确认。",
        "{machine}的{part}{symptom}，查明原因后{action}，恢复正常。",
        "1. {check}。2. {check2}。3. {action}。{part}修好后以{n}%倍率空运行，正常后交付生产。",
    ),
}

QUESTIONS = {
    "en": (
        ("What is the {part} for?", "The {part} is there to {purpose}."),
        ("Machine: {machine}\nProblem: the {part} {symptom}.\nWhat should be done?", "{steps_en}"),
        ("The {part} of {machine} {symptom}. What do I check, and how is it repaired?", "{steps_en}"),
        ("What does alarm {code} mean?", "Alarm {code}: the {part} {symptom}. {Action}."),
    ),
    "zh": (
        ("{part}有什么作用？", "{part}用于{purpose}。"),
        ("设备：{machine}\n故障现象：{part}{symptom}\n请给出检查步骤和维修方法。", "{steps_zh}"),
        ("{machine}的{part}{symptom}，先检查什么，怎么修？", "{steps_zh}"),
        ("报警{code}是什么意思？", "报警{code}：{part}{symptom}。处理：{action}。"),
    ),
}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _values(rng: random.Random, language: str) -> dict[str, str]:
    part = rng.choice(PARTS[language])
    kind = rng.randrange(len(part.symptoms))
    check, other = part.checks[kind], part.checks[(kind + 1) % len(part.checks)]
    action = part.actions[kind % len(part.actions)]
    code = rng.choice(("{:04d}", "ALM-{:04d}", "E{:03d}", "SV{:03d}")).format(rng.randrange(1, 1000))
    return {
        "part": part.name,
        "purpose": part.purpose,
        "symptom": part.symptoms[kind],
        "check": check,
        "check2": other,
        "action": action,
        "Check": _capital(check),
        "Check2": _capital(other),
        "Action": _capital(action),
        "machine": rng.choice(MACHINES[language]),
        "n": str(rng.choice((10, 20, 25, 50, 100, 200, 250, 500, 1000))),
        "code": code,
        "steps_en": f"Steps:\n1. {_capital(check)}.\n2. {_capital(other)}.\nRepair: {action}, then make a test run.",
        "steps_zh": f"步骤：\n1. {check}。\n2. {other}。\n维修：{action}，试运行正常。",
    }


def make_corpus(seed: int, count: int) -> list[str | Dialogue]:
    """`count` items, half of them Chinese, a third prose and the rest dialogues. Equal seeds give equal texts."""
    rng = random.Random(seed)
    items: list[str | Dialogue] = []
    for index in range(count):
        language = ("zh", "en")[index % 2]
        values = _values(rng, language)
        if rng.random() < 0.33:
            items.append(rng.choice(PROSE[language]).format(**values))
        else:
            question, answer = rng.choice(QUESTIONS[language])
            items.append(Dialogue(question.format(**values), answer.format(**values)))
    return items
