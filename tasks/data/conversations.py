"""Instruction records of three forms (`messages`, ShareGPT, Alpaca) as conversations; each is one sample. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ASKS = frozenset({"user", "human", "prompter", "question"})
_ANSWERS = frozenset({"assistant", "gpt", "bot", "model", "chatgpt", "answer"})
_SYSTEM = frozenset({"system", "developer"})


class Unusable(ValueError):
    """A record that is no conversation; the message is the reason for quarantine."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Questions with their answers, in order. `unanswered`: there was one more question, without an answer."""

    system: str
    turns: tuple[tuple[str, str], ...]
    unanswered: bool = False


def conversation_of(record: Any) -> Conversation:
    """Raises `Unusable` with the reason where a record is none of the three forms."""
    if not isinstance(record, Mapping):
        raise Unusable("not_a_json_object")
    said = record.get("messages")
    said = record.get("conversations") if said is None else said
    found = _alpaca(record) if said is None else _spoken(said, record)
    if not found.turns or not all(q and a for q, a in found.turns):
        raise Unusable("no_question_or_no_answer")
    return found


def _alpaca(record: Mapping[str, Any]) -> Conversation:
    if "instruction" not in record or "output" not in record:
        raise Unusable("no_question_or_no_answer" if "instruction" in record else "unknown_format")
    asked = "\n".join(filter(None, (_text(record.get(key)) for key in ("instruction", "input"))))
    before = record.get("history") or []
    if not isinstance(before, list) or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in before):
        raise Unusable("unknown_format")
    turns = [*((_text(q), _text(a)) for q, a in before), (asked, _text(record["output"]))]
    return Conversation(_text(record.get("system")), tuple(turns))


def _spoken(said: Any, record: Mapping[str, Any]) -> Conversation:
    if not isinstance(said, list) or not said or not all(isinstance(turn, Mapping) for turn in said):
        raise Unusable("unknown_format")
    system = [_text(record.get("system"))]
    rest: list[tuple[bool, str]] = []
    for turn in said:
        role = str(turn.get("role") or turn.get("from") or "").lower()
        if turn.get("tool_calls"):
            raise Unusable("calls_a_tool")
        text = _text(turn.get("content") if turn.get("content") is not None else turn.get("value"))
        if role in _SYSTEM and not rest:
            system.append(text)
        elif role in _ASKS or role in _ANSWERS:
            rest.append((role in _ASKS, text))
        else:
            raise Unusable("unknown_role")
    unanswered = bool(rest) and rest[-1][0]
    rest = rest[:-1] if unanswered else rest
    if rest and not rest[0][0]:
        raise Unusable("begins_with_an_answer")
    if any(asks == (i % 2 == 1) for i, (asks, _) in enumerate(rest)):
        raise Unusable("questions_and_answers_do_not_alternate")
    turns = tuple((rest[i][1], rest[i + 1][1]) for i in range(0, len(rest), 2))
    return Conversation("\n".join(filter(None, system)), turns, unanswered)


def _text(value: Any) -> str:
    """The text of a content: a string, a number, or parts that are all text. Raises `Unusable` for pictures."""
    if value is None:
        return ""
    if isinstance(value, list):
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in value
        ]
        if not all(isinstance(part, str) for part in parts):
            raise Unusable("not_only_text")
        return "\n".join(str(part) for part in parts).strip()
    if isinstance(value, Mapping):
        raise Unusable("not_only_text")
    return str(value).strip()
