"""What a person's feedback asks for, as far as rules can read it: `lr=1e-4`, "lower the learning rate", "轮数减少"."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from specs.parameters import leaves, resolve

_ALIASES: tuple[tuple[str, str], ...] = (
    (r"learning[ -]?rate|lr|学习率", "lr"),
    (r"epochs?|passes|轮数|轮次|训练轮|几轮", "epochs"),
    (r"train(?:ing)?(?= (?:for )?longer)|训练(?=得?(?:更久|久一点|久一些))", "epochs"),
    (r"max[_ ]steps|optimizer steps|最大步数", "max_steps"),
    (r"steps|步数", "steps"),
    (r"effective batch|micro[_ -]?batch|batch(?: size)?|微批|批量|批大小", "micro_batch"),
    (r"gradient[_ ]accumulation|accumulation|累积", "gradient_accumulation"),
    (r"rank|秩", "rank"),
    (r"alpha", "alpha"),
    (r"dropout|丢弃", "dropout"),
    (r"warm[_ -]?up|预热", "lr_warmup_steps"),
    (r"weight[_ ]decay|权重衰减", "weight_decay"),
    (r"eval(?:uation)?[_ ]share|held-out share|留出比例", "eval_share"),
    (r"near[_ ]duplicate[_ ]threshold|similarity|相似度|去重阈值", "near_duplicate_threshold"),
    (r"buckets?|分桶", "buckets"),
    (r"max[_ ]length|长度上限|最大长度", "max_length"),
    (r"paragraph[_ ]tokens|paragraphs?|段落", "paragraph_tokens"),
    (r"window(?:_s)?|窗口", "window_s"),
    (r"generations?|生成数", "generations"),
    (r"max[_ ]new[_ ]tokens|answer length|回答长度", "max_new_tokens"),
    (r"save[_ ]steps|checkpoint(?:s| interval)|保存间隔", "save_steps"),
    (r"seed|种子", "seed"),
)
_LESS = (
    r"lower|reduce|decrease|smaller|fewer|less|shorter|too (?:high|large|many|big|long)"
    r"|降低|减小|减少|调小|调低|更少|太大|太高|太多"
)
_MORE = (
    r"raise|increase|higher|larger|bigger|more|longer|too (?:low|small|few|short)"
    r"|提高|增加|增大|调大|调高|更多|太小|太低|太少|再多|多训练|更久|久一点|久一些"
)
_DIRECTIONS = {"less": -1, "more": 1}
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_EXPLICIT = re.compile(rf"([A-Za-z_][\w.]*)\s*=\s*({_NUMBER}|true|false|null|[a-z][\w-]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """One thing asked for: a value, or `direction` -1 (less) or +1 (more). `words` is the part of the feedback."""

    path: str
    words: str
    value: Any = None
    direction: int = 0


def read_feedback(feedback: str, parameters: dict[str, Any]) -> tuple[list[Request], list[str]]:
    """(requests for parameters that exist here, clauses that no rule understands), in the order of the text."""
    requests: list[Request] = []
    left: list[str] = []
    lines = [line.strip() for line in feedback.splitlines()]
    exact = {line: found for line in lines if (found := _exact(line, parameters)) is not None}
    requests += exact.values()
    for clause in _clauses("\n".join(line for line in lines if line not in exact)):
        understood = [r for r in _explicit(clause, parameters) if r is not None] or _spoken(clause, parameters)
        requests += understood
        if not understood:
            left.append(clause)
    return requests, left


def _exact(line: str, parameters: dict[str, Any]) -> Request | None:
    """A line that is one structured request: `path=` and a JSON value, or `less` or `more`."""
    path, sign, raw = line.partition("=")
    if not sign or path not in leaves(parameters):
        return None
    if raw in _DIRECTIONS:
        return Request(path, line, direction=_DIRECTIONS[raw])
    try:
        return Request(path, line, value=json.loads(raw))
    except ValueError:
        return None


def unanswered(feedback: str, before: dict[str, Any], after: dict[str, Any], answer: str) -> list[str]:
    """What of the feedback neither the new parameters nor the words of the answer speak of; empty when all is answered.

    Free words count as answered by any answer: whether it fits them, the person judges at the gate.
    """
    requests, left = read_feedback(feedback, before)
    flat = leaves(after)
    missing = [
        request.words
        for request in requests
        if request.path.rpartition(".")[2] not in answer
        and (request.direction or flat.get(request.path) != request.value)
    ]
    return missing + (left if not answer.strip() else [])


def _clauses(feedback: str) -> list[str]:
    parts = re.split(r"[,;\n，；。！!]|(?<!\d)\.(?!\d)|\.\s|\band\b|并且|同时", feedback)
    return [part.strip(" .\t") for part in parts if part and part.strip(" .\t")]


def _explicit(clause: str, parameters: dict[str, Any]) -> list[Request]:
    found = []
    for key, raw in _EXPLICIT.findall(clause):
        if path := resolve(parameters, key):
            found.append(Request(path, clause, value=_literal(raw)))
    return found


def _literal(raw: str) -> Any:
    if raw.lower() in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[raw.lower()]
    if re.fullmatch(_NUMBER, raw, re.IGNORECASE):
        return int(raw) if re.fullmatch(r"[-+]?\d+", raw) else float(raw)
    return raw


def _spoken(clause: str, parameters: dict[str, Any]) -> list[Request]:
    """A parameter by one of its names, with a number (`learning rate 1e-4`) or a direction (`fewer epochs`)."""
    flat = leaves(parameters)
    for pattern, name in _ALIASES:
        match = re.search(rf"(?<![A-Za-z_])(?:{pattern})(?![A-Za-z_])", clause, re.IGNORECASE)
        path = resolve(parameters, name) if match else None
        if match is None or path is None or flat[path] is ...:
            continue
        rest = clause[: match.start()] + " " + clause[match.end() :]
        if number := re.search(rf"(?<![A-Za-z0-9_.])({_NUMBER})(?![A-Za-z0-9_%])", rest, re.IGNORECASE):
            return [Request(path, clause, value=_literal(number.group(1)))]
        less = re.search(_LESS, rest, re.IGNORECASE)
        more = re.search(_MORE, rest, re.IGNORECASE)
        if bool(less) != bool(more) and isinstance(flat[path], int | float):
            # "too low" asks for more, "too high" for less: the patterns already say so
            return [Request(path, clause, direction=-1 if less else 1)]
    return []


def moved(value: float, direction: int) -> float:
    """Half or double; whole numbers move by at least one and stay at or above one."""
    if isinstance(value, int):
        return (
            max(1, value // 2 if direction < 0 and value > 3 else value - 1)
            if direction < 0
            else (value + 1 if value < 4 else value * 2)
        )
    return value / 2 if direction < 0 else value * 2
