"""Repair records like a project's own, in both languages, made by rules: several wordings of few fault types."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER = {
    "en": ("Checks: {steps}. Repair: {repair}.", "First {steps}. Then {repair}."),
    "zh": ("检查：{steps}。处理：{repair}。", "先{steps}，再{repair}。"),
}


@dataclass(frozen=True)
class Fault:
    """A fault type with its wordings."""

    code: str
    problems: tuple[str, ...]
    steps: tuple[str, ...]
    repair: str


def faults(language: str) -> list[Fault]:
    """All fault types of one language."""
    result = []
    for line in (Path(__file__).parent / f"faults_{language}.txt").read_text(encoding="utf-8").splitlines():
        code, problems, steps, repair = (cell.strip() for cell in line.split("|"))
        result.append(Fault(code, tuple(problems.split("; ")), tuple(steps.split("; ")), repair))
    return result


def references(language: str) -> list[tuple[str, str]]:
    """(fault type, answer): three answers of each fault type."""
    draw = random.Random(4)
    found = []
    for fault in faults(language):
        for _ in range(3):
            steps = ("; " if language == "en" else "；").join(draw.sample(fault.steps, 2))
            found.append((fault.code, draw.choice(ANSWER[language]).format(steps=steps, repair=fault.repair)))
    return found


def short_records(language: str, kinds: int = 8, each: int = 18) -> list[dict[str, Any]]:
    """Rows of samples.parquet with short answers, which the tiny model learns in seconds; every sixth is held out."""
    rows: list[dict[str, Any]] = []
    for fault in faults(language)[:kinds]:
        answer = " ".join(fault.repair.split()[:4]) if language == "en" else fault.repair[:8]
        for turn in range(1, each + 1):
            rows.append(_row(language, fault, answer, len(rows), "eval" if turn % 6 == 0 else "train"))
    return rows


def _row(language: str, fault: Fault, answer: str, number: int, split: str) -> dict[str, Any]:
    prompt = f"{fault.code} {number:02d}"
    return {
        "sample_id": f"{language}-{number:04d}",
        "split": split,
        "kind": "work_order",
        "component": number,
        "fault_type": fault.code,
        "repair": answer,
        "prompt": prompt,
        "answer": answer,
        "text": f"{prompt}\n{answer}",
    }


def paragraph(language: str) -> dict[str, Any]:
    """A held-out sample of plain text."""
    text = {
        "en": "The spindle turns the tool. Check the oil level every day.",
        "zh": "主轴带动刀具旋转。每天检查油位。",
    }
    row = {"prompt": "", "answer": text[language], "text": text[language], "fault_type": "", "repair": ""}
    return {"sample_id": f"{language}-plain", "split": "eval", "kind": "manual", "component": 9999, **row}
