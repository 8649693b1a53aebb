"""Prompts and answers in the project's language. Short, so that samples differ by what they say."""

from __future__ import annotations

import re
from dataclasses import replace

from specs.base import Language
from specs.privacy import PLACEHOLDERS
from tasks.data.records import Draft

_WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "machine": "Machine: ",
        "alarm": "Alarm: ",
        "problem": "Problem: ",
        "ask_repair": "What should be checked, and how is it repaired?",
        "ask_code": "What does alarm {code} mean, and what should be done?",
        "ask_sensor": "Which fault is this, and what should be done?",
        "checks": "Checks:",
        "repair": "Repair: ",
        "meaning": "Meaning: ",
        "cause": "Cause: ",
        "remedy": "Remedy: ",
        "fault": "Fault: ",
        "window": "Sensors over {seconds} s:",
        "channel": "{name}: mean {mean}, min {minimum}, max {maximum}, slope {slope} per minute",
        "joint": "; ",
    },
    "zh": {
        "machine": "设备：",
        "alarm": "报警：",
        "problem": "现象：",
        "ask_repair": "应检查什么，如何维修？",
        "ask_code": "报警 {code} 是什么意思，应如何处理？",
        "ask_sensor": "这是什么故障，应如何处理？",
        "checks": "检查：",
        "repair": "维修：",
        "meaning": "含义：",
        "cause": "原因：",
        "remedy": "处理：",
        "fault": "故障：",
        "window": "{seconds} 秒内的传感器数据：",
        "channel": "{name}：均值 {mean}，最小 {minimum}，最大 {maximum}，每分钟变化 {slope}",
        "joint": "；",
    },
}


_PLACEHOLDER = re.compile("|".join(re.escape(p) for by_language in PLACEHOLDERS.values() for p in by_language.values()))


def words(language: Language) -> dict[str, str]:
    """The words of one language."""
    return _WORDS[language]


def render(draft: Draft, language: Language) -> tuple[str, str]:
    """Prompt and answer of a draft. A draft of plain text has no prompt."""
    if draft.plain:
        return draft.prompt, draft.plain
    w = _WORDS[language]
    machine = [w["machine"] + draft.device_model] if draft.device_model else []
    steps = [f"{number}. {step}" for number, step in enumerate(draft.steps, start=1)]
    if draft.kind == "fault_code":
        prompt = [*machine, w["ask_code"].format(code=draft.fault_type)]
        answer = [w["meaning"] + draft.phenomenon]
        answer += [w["cause"] + step for step in draft.steps]
        answer += [w["remedy"] + draft.repair] if draft.repair else []
    elif draft.kind == "sensor":
        prompt = [*machine, draft.phenomenon, w["ask_sensor"]]
        named = f"{draft.fault_type} ({draft.meaning})" if draft.meaning else draft.fault_type
        answer = [w["fault"] + named, *(w["cause"] + step for step in draft.steps), w["remedy"] + draft.repair]
    else:
        alarm = f"{draft.fault_type} ({draft.meaning})" if draft.meaning else draft.fault_type
        prompt = [*machine, *([w["alarm"] + alarm] if alarm else []), w["problem"] + draft.phenomenon, w["ask_repair"]]
        answer = [*([w["checks"], *steps] if steps else []), w["repair"] + draft.repair]
    return "\n".join(prompt), "\n".join(answer)


def shorten_prompt(draft: Draft, characters: int) -> Draft:
    """The draft with only the first `characters` of what its prompt tells; the answer stays whole."""
    if draft.prompt:
        return replace(draft, prompt=_beginning(draft.prompt, characters))
    return replace(draft, phenomenon=_beginning(draft.phenomenon, characters))


def _beginning(text: str, characters: int) -> str:
    """The first `characters` of a text, or as many fewer as leave no placeholder of personal data cut in two."""
    inside = (m for m in _PLACEHOLDER.finditer(text) if m.start() < characters < m.end())
    return text[: next((m.start() for m in inside), characters)]


def prompt_length(draft: Draft) -> int:
    """Characters of the prompt that may be cut."""
    if draft.kind == "fault_code":
        return 0
    return len(draft.prompt or draft.phenomenon)
