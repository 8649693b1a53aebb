"""Work orders with planted duplicates, code variants and rows to quarantine."""

from __future__ import annotations

import datetime as dt
import random
import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Any

from examples.make.phrases import Fault, fill, read_faults, read_words

COUNTS = {"plain": 388, "exact": 18, "near": 22}
"""Orders planted by kind; code variants and rows to quarantine are listed in this module."""

FARTHEST = {"plain": 0.55, "near": 0.8}
"""Jaccard of shingle sets: plain orders stay below, edited copies stay above."""

PEOPLE = {"en": ("JM", "T. Ortiz", "KS", "Dave", "R.N."), "zh": ("老王", "李工", "小陈", "赵", "孙师傅")}


@dataclass(frozen=True)
class Order:
    """One row. `kind` and `twin` are the truth of what was planted: `twin` is the key of its original."""

    key: int
    date: dt.date
    machine: str
    code: str
    problem: str
    checks: str
    repair: str
    person: str
    hours: float
    kind: str = "plain"
    twin: int | None = None
    number: str = ""

    @property
    def content(self) -> str:
        """What counts when duplicates are looked for."""
        return "\n".join((self.machine, self.code, self.problem, self.checks, self.repair))


def shingles(text: str, language: str) -> set[str]:
    """Character n-grams of the normalised text: 3 for Chinese, 5 for English."""
    flat = re.sub(r"[\W_]+", "" if language == "zh" else " ", unicodedata.normalize("NFKC", text).casefold())
    size = 3 if language == "zh" else 5
    return {flat[i : i + size] for i in range(max(1, len(flat) - size + 1))}


def jaccard(a: set[str], b: set[str]) -> float:
    """Size of the intersection over size of the union."""
    return len(a & b) / len(a | b)


class Maker:
    """Makes the orders of one language; every draw comes from one seeded generator."""

    def __init__(self, language: str, seed: int) -> None:
        self.language = language
        self.rng = random.Random(seed)
        self.faults = read_faults(language)
        self.words = read_words(language)
        self.keys = 0

    def make(self) -> list[Order]:
        """All orders, numbered and sorted by date."""
        plain = self._plain_orders()
        orders = [*plain, *self._code_variants(), *self._to_quarantine(plain)]
        chosen = self.rng.sample([o for o in plain if o.code], COUNTS["exact"] + COUNTS["near"])
        orders += [self._exact_copy(o, i) for i, o in enumerate(chosen[: COUNTS["exact"]])]
        orders += [self._near_copy(o) for o in chosen[COUNTS["exact"] :]]
        return _numbered(orders)

    def _key(self) -> int:
        self.keys += 1
        return self.keys

    def _date(self) -> dt.date:
        return dt.date(2024, 1, 8) + dt.timedelta(days=self.rng.randrange(0, 500))

    def _plain_orders(self) -> list[Order]:
        weights = [1 + (i * 7) % 3 for i in range(len(self.faults))]
        orders: list[Order] = []
        seen: dict[str, list[set[str]]] = {}
        for index in range(COUNTS["plain"]):
            # The first passes give every fault type ten orders; the rest follow the weights.
            often = index < 10 * len(self.faults)
            fault = self.faults[index % len(self.faults)] if often else self.rng.choices(self.faults, weights)[0]
            order = self._distinct(fault, seen.setdefault(fault.code, []))
            orders.append(replace(order, code="") if index % 77 == 76 else order)
        return orders

    def _distinct(self, fault: Fault, seen: list[set[str]]) -> Order:
        for _ in range(2000):
            order = self._order(fault)
            grams = shingles(order.content, self.language)
            if all(jaccard(grams, other) < FARTHEST["plain"] for other in seen):
                seen.append(grams)
                return replace(order, key=self._key())
        raise RuntimeError(f"{fault.code}: the phrases do not give enough different orders")

    def _order(self, fault: Fault) -> Order:
        rng, pick = self.rng, self.rng.choice
        symptom = fill(pick(fault.phrases["s"]), rng)
        opening, where = fill(pick(self.words["opening"]), rng), fill(pick(self.words["where"]), rng)
        joint = " " if opening and self.language == "en" else ""
        checks = [fill(c, rng) for c in rng.sample(fault.phrases["c"], rng.choice((2, 2, 3)))]
        finding, repair = fill(pick(fault.phrases["f"]), rng), fill(pick(fault.phrases["r"]), rng)
        closing = fill(pick(self.words["close"]), rng)
        told, done = self._tell(checks, finding, repair, closing)
        return Order(
            key=0,
            date=self._date(),
            machine=pick(fault.machines),
            code=fault.code,
            problem=self._typo(f"{opening}{joint}{symptom}{where}"),
            checks=told,
            repair=done,
            person=pick(PEOPLE[self.language]),
            hours=rng.randrange(1, 24) / 2,
        )

    def _tell(self, checks: list[str], finding: str, repair: str, closing: str) -> tuple[str, str]:
        """(checks cell, repair cell), in one of the ways people fill them in."""
        zh = self.language == "zh"
        end = ("，" if zh else ", ") + closing if closing else ""
        style = self.rng.choices(("list", "short", "told", "one cell"), (3, 4, 4, 1))[0]
        if style == "list":
            mark = "{}、" if zh else "{}) "
            lines = [mark.format(i + 1) + text for i, text in enumerate([*checks, finding])]
            return "\n".join(lines), repair + end
        if style == "short":
            return ("；" if zh else "; ").join([*checks, finding]), repair + end
        if zh:
            told = "，".join(w + c for w, c in zip(("先", "再", "然后"), checks, strict=False)) + "，" + finding
            return (told, f"{repair}{end}") if style == "told" else ("", f"{told}。最后{repair}{end}")
        told = ", ".join([checks[0], *(f"then {c}" for c in checks[1:])]) + f". {finding[:1].upper()}{finding[1:]}"
        return (told + ".", repair + end) if style == "told" else ("", f"{told}. Then {repair}{end}")

    def _typo(self, text: str) -> str:
        """One slip of the keyboard in every sixth English text."""
        places = [i for i in range(1, len(text) - 2) if text[i].isalpha() and text[i + 1].isalpha()]
        if self.language == "zh" or not places or self.rng.random() > 1 / 6:
            return text
        at = self.rng.choice(places)
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]

    def _exact_copy(self, order: Order, index: int) -> Order:
        """The same row again, the same text under another number, or the same text spaced and cased otherwise."""
        copy = replace(order, key=self._key(), kind="exact", twin=order.key)
        if index % 3 == 0:
            return copy
        copy = replace(copy, date=order.date + dt.timedelta(days=self.rng.randrange(1, 20)), person=order.person)
        if index % 3 == 2:
            return replace(copy, problem=f"  {copy.problem.upper()} ", repair=copy.repair + " ")
        return copy

    def _near_copy(self, order: Order) -> Order:
        """An edited copy: words shortened, added or swapped; codes, models and numbers stay."""
        edits = EDITS[self.language][:]
        grams = shingles(order.content, self.language)
        for _ in range(200):
            self.rng.shuffle(edits)
            copy = order
            for old, new in edits[: self.rng.randrange(2, len(edits))]:
                field = self.rng.choice(("problem", "checks", "repair"))
                copy = _with(copy, field, re.sub(old, new, getattr(copy, field), count=1))
            likeness = jaccard(grams, shingles(copy.content, self.language))
            if FARTHEST["near"] <= likeness < 1:
                later = order.date + dt.timedelta(days=self.rng.randrange(0, 9))
                return replace(copy, key=self._key(), kind="near", twin=order.key, date=later)
        raise RuntimeError(f"no edited copy of {order.problem!r} is near enough")

    def _code_variants(self) -> list[Order]:
        """Groups of four orders that differ in nothing but their alarm code."""
        orders = []
        for machine, kind, problem, checks, repair in VARIANTS[self.language]:
            for axis in (1, 2, 3, 4):
                code = axis_code(axis, kind)
                text = (problem.format(code), checks, repair.format(code))
                person = PEOPLE[self.language][0]
                orders.append(
                    Order(self._key(), self._date(), machine, code, *text, person, 2.0, kind=f"variant-{kind}")
                )
        return orders

    def _to_quarantine(self, plain: list[Order]) -> list[Order]:
        orders = []
        for field, text in SPOILT[self.language]:
            order = self.rng.choice(plain)
            spoilt = replace(order, key=self._key(), date=self._date(), kind="quarantine", hours=order.hours + 0.5)
            for name in field.split("+"):
                spoilt = _with(spoilt, name, text)
            orders.append(spoilt)
        return orders


def _with(order: Order, field: str, text: str) -> Order:
    """The order with another text in its `problem`, `checks` or `repair`."""
    values: dict[str, Any] = {field: text}
    return replace(order, **values)


def axis_code(axis: int, kind: str) -> str:
    """The servo alarm of an axis (1 to 4)."""
    return f"SV04{axis}{kind}"


def _numbered(orders: list[Order]) -> list[Order]:
    """Sorted by date and key; order numbers count up, identical rows keep the number of their original."""
    rows = sorted(orders, key=lambda o: (o.date, o.key))
    numbers = {o.key: f"WO-{24000 + 3 * i}" for i, o in enumerate(rows)}
    dates = {o.key: o.date for o in rows}

    def number(order: Order) -> str:
        same = order.kind == "exact" and order.twin is not None and dates[order.twin] == order.date
        return numbers[order.twin] if same and order.twin is not None else numbers[order.key]

    return [replace(o, number=number(o)) for o in rows]


EDITS = {
    "en": [
        (r"\bchecked\b", "chk"),
        (r"\breplaced\b", "repl."),
        (r"\bfound\b", "fnd"),
        (r"\band\b", "&"),
        (r"\bthe\b ", ""),
        (r"\balarm\b", "alrm"),
        (r"\bspindle\b", "spdl"),
        (r"\bpressure\b", "press."),
        (r"\bok\b", "okay"),
        (r"$", " today"),
        (r"\bnew\b", "a new"),
        (r"\bcleaned\b", "clnd"),
    ],
    "zh": [
        ("正常", "OK"),
        ("发现", "看到"),
        ("更换", "换"),
        ("报警", "报警了"),
        ("，", "、"),
        ("$", "了"),
        ("没有", "无"),
        ("重新", "再"),
        ("查", "检查"),
        ("换新", "换成新的"),
    ],
}

VARIANTS = {
    "en": [
        (
            "VMC-850",
            "1",
            "{} on the screen after power on, axis will not enable",
            "1) read the drive display\n2) measured the enable signal at the drive\n3) found contact of the relay open",
            "replaced the enable relay, {} gone after reset, axis moves",
        ),
        (
            "HMC-500",
            "2",
            "alarm {} after two hours of roughing, motor very hot",
            "felt the motor, too hot to touch; looked at the load meter; found the brake dragging",
            "set air gap of the motor brake, {} did not come back in a long run",
        ),
        (
            "TL-25",
            "4",
            "machine trips with {} as soon as the axis moves",
            "unplugged the motor cable, then measured it against earth. Found insulation rubbed through.",
            "replaced the motor power cable and tied it up, {} cleared",
        ),
        (
            "VMC-850",
            "7",
            "homing runs past the mark and stops with {}",
            "checked deceleration switch; looked at the marker signal with the scope; found no marker pulse",
            "replaced the encoder and set the home shift again, no {} in ten homings",
        ),
    ],
    "zh": [
        (
            "VMC-850",
            "1",
            "上电后屏幕报{}，该轴不能使能",
            "1、看驱动器显示\n2、量驱动器使能信号\n3、发现使能继电器触点不通",
            "更换使能继电器，复位后{}消除，轴能动",
        ),
        (
            "HMC-500",
            "2",
            "粗加工两小时后报{}，电机很烫",
            "手摸电机烫手；看负载表；发现电机抱闸拖着",
            "调整电机抱闸间隙，长时间运行{}没再出现",
        ),
        (
            "TL-25",
            "4",
            "轴一动就跳闸报{}",
            "先拔电机电缆，再对地测量，发现绝缘磨破",
            "更换电机动力电缆并绑扎好，{}消除",
        ),
        (
            "VMC-850",
            "7",
            "回零冲过标记后停下报{}",
            "查减速开关；示波器看标记信号；发现没有零脉冲",
            "更换编码器并重设零点偏移，回零十次没有{}",
        ),
    ],
}

SPOILT = {
    "en": [
        ("problem", ""),
        ("problem", "-"),
        ("problem", "n/a"),
        ("checks+repair", ""),
        ("checks+repair", "-"),
        ("checks+repair", "N/A"),
        ("problem", "????????"),
        ("problem", "Ã¤Ã¶Ã¼ GerÃ¤t â€“ StÃ¶rung"),
        ("problem+checks+repair", ""),
        ("checks+repair", "......"),
        ("problem", "#REF!"),
    ],
    "zh": [
        ("problem", ""),
        ("problem", "-"),
        ("problem", "无"),
        ("checks+repair", ""),
        ("checks+repair", "-"),
        ("checks+repair", "n/a"),
        ("problem", "？？？？？？"),
        ("problem", "锟斤拷锟斤拷烫烫烫锟斤拷"),
        ("problem+checks+repair", ""),
        ("checks+repair", "。。。。"),
        ("problem", "#REF!"),
    ],
}
