"""Whether the columns of a sample make up its prompt and answer: both are written for a person to read apart.

The documented form of prompts is built again from the columns; what is told of the code beside them is given back, to
be looked for in the table of codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_FORMS: dict[str, dict[str, str]] = {
    "en": {
        "machine": "Machine: ",
        "alarm": "Alarm: ",
        "problem": "Problem: ",
        "order": "What should be checked, and how is it repaired?",
        "code": "What does alarm {} mean, and what should be done?",
        "sensor": "Which fault is this, and what should be done?",
        "checks": "Checks:\n",
        "repair": "Repair: ",
        "meaning": "Meaning: ",
        "cause": "Cause: ",
        "remedy": "Remedy: ",
        "fault": "Fault: ",
    },
    "zh": {
        "machine": "设备：",
        "alarm": "报警：",
        "problem": "现象：",
        "order": "应检查什么，如何维修？",
        "code": "报警 {} 是什么意思，应如何处理？",
        "sensor": "这是什么故障，应如何处理？",
        "checks": "检查：\n",
        "repair": "维修：",
        "meaning": "含义：",
        "cause": "原因：",
        "remedy": "处理：",
        "fault": "故障：",
    },
}
_NUMBERS = re.compile(r"^(?:\d+\. )+", re.MULTILINE)
Sample = Mapping[str, Any]


def meaning_told(sample: Sample, language: str) -> str | None:
    """What prompt or answer tell of the fault code beside it, often nothing; None where the columns say otherwise.

    A sample of running text tells nothing in columns.
    """
    form = _FORMS["zh" if language == "zh" else "en"]
    prompt, answer, kind = sample["prompt"], sample["answer"], sample["kind"]
    if kind in ("manual", "instruction") or (kind == "note" and not prompt):
        return "" if not any(sample[name] for name in ("phenomenon", "steps", "repair")) else None
    machine = f"{form['machine']}{sample['device_model']}\n" if sample["device_model"] else ""
    if kind == "fault_code":
        asked = machine + form["code"].format(sample["fault_type"])
        remedy = f"\n{form['remedy']}{sample['repair']}" if sample["repair"] else ""
        cause = f"\n{form['cause']}{sample['steps']}" if sample["steps"] else ""
        return "" if prompt == asked and answer == f"{form['meaning']}{sample['phenomenon']}{cause}{remedy}" else None
    if kind == "sensor":
        cause = f"\n{form['cause']}{sample['steps']}" if sample["steps"] else ""
        tail = f"{cause}\n{form['remedy']}{sample['repair']}"
        asked = f"{machine}{sample['phenomenon']}\n{form['sensor']}"
        return _between(answer, form["fault"] + sample["fault_type"], tail) if prompt == asked else None
    if not _done(sample, form):
        return None
    head = machine + (form["alarm"] + sample["fault_type"] if sample["fault_type"] else "")
    tail = f"{form['problem']}{sample['phenomenon']}\n{form['order']}"
    return _between(prompt, head, f"\n{tail}" if sample["fault_type"] else tail)


def _done(sample: Sample, form: Mapping[str, str]) -> bool:
    """Whether steps and repair make up the answer, apart from the numbers of steps."""
    checks = f"{form['checks']}{sample['steps']}\n" if sample["steps"] else ""
    said = checks + form["repair"] + sample["repair"]
    return _NUMBERS.sub("", str(sample["answer"])) == _NUMBERS.sub("", said)


def _between(text: str, head: str, tail: str) -> str | None:
    """What stands in brackets between two ends of a text, nothing where they meet; None where the text is another."""
    if text == head + tail:
        return ""
    inner = text[len(head) : len(text) - len(tail)]
    if not (text.startswith(f"{head} (") and text.endswith(f"){tail}") and len(inner) > 3):
        return None
    return inner[2:-1]


def without_cut_word(prompt: str, language: str) -> str:
    """A shortened prompt without its question and without the word in which it may have been cut."""
    form = _FORMS["zh" if language == "zh" else "en"]
    return re.sub(r"[A-Za-z0-9]+$", "", prompt.removesuffix(f"\n{form['order']}"))


def whole_prompt(prompt: str, phenomenon: str, language: str) -> str:
    """The prompt of a work order with its whole phenomenon in place of what was left of it."""
    form = _FORMS["zh" if language == "zh" else "en"]
    head = prompt[: prompt.index(form["problem"]) + len(form["problem"])] if form["problem"] in prompt else ""
    return f"{head}{phenomenon}\n{form['order']}"
