"""Instruction records of three forms (`messages`, ShareGPT, Alpaca) as conversations; each is one sample. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_ASKS = frozenset({"user", "human", "prompter", "question"})
_ANSWERS = frozenset({"assistant", "gpt", "bot", "model", "chatgpt", "answer"})
_SYSTEM = frozenset({"system", "developer"})
_TOOLS = frozenset({"tool", "function", "function_call", "observation"})


class Unusable(ValueError):
    """A record that is no conversation; the message is the reason for quarantine."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Questions with their answers, in order, up to the last answer that is learnt.

    `silent` are numbers of the answers before it that are only read; `left_out` turns with answers not to be learnt
    stood behind it. `unanswered`: there was one more question, without an answer.
    """

    system: str
    turns: tuple[tuple[str, str], ...]
    unanswered: bool = False
    silent: tuple[int, ...] = ()
    left_out: int = 0


def conversation_of(record: Any) -> Conversation:
    """Raises `Unusable` with the reason where a record is none of the three forms."""
    if not isinstance(record, Mapping):
        raise Unusable("not_a_json_object")
    said = _turns_in(record)
    found = _alpaca(record) if said is None else _spoken(said, record)
    if not found.turns or not all(q and a for q, a in found.turns):
        raise Unusable("no_question_or_no_answer")
    return _up_to_the_last_learnt(found)


def keys_not_read(record: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a record and its turns that hold something and say nothing to a reader of conversations."""
    said = _turns_in(record)
    known = _RECORD_KEYS | (_ALPACA_KEYS if said is None else frozenset())
    yield from (str(key) for key, value in record.items() if key not in known and value not in _NOTHING)
    for turn in said if isinstance(said, list) else ():
        yield from (str(key) for key, value in turn.items() if key not in _TURN_KEYS and value not in _NOTHING)


_RECORD_KEYS = frozenset({"messages", "conversations", "system"})
_ALPACA_KEYS = frozenset({"instruction", "input", "output", "history"})
_TURN_KEYS = frozenset({"role", "from", "content", "value", "weight"})
_NOTHING: tuple[Any, ...] = (None, "", [], {})


def _turns_in(record: Mapping[str, Any]) -> Any:
    said = record.get("messages")
    return record.get("conversations") if said is None else said


def _up_to_the_last_learnt(found: Conversation) -> Conversation:
    """Without the turns behind the last answer that is learnt. Raises `Unusable` where there is none."""
    count = len(found.turns)
    while count and count - 1 in found.silent:
        count -= 1
    if not count:
        raise Unusable("no_answer_learnt")
    silent = tuple(n for n in found.silent if n < count)
    return replace(found, turns=found.turns[:count], silent=silent, left_out=len(found.turns) - count)


def _alpaca(record: Mapping[str, Any]) -> Conversation:
    if "instruction" not in record or "output" not in record:
        raise Unusable("no_question_or_no_answer" if "instruction" in record else "unknown_format")
    asked = "\n".join(filter(None, (_text(record.get(key)) for key in ("instruction", "input"))))
    before = record.get("history") or []
    if not isinstance(before, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in before):
        raise Unusable("unknown_format")
    turns = [*((_text(q), _text(a)) for q, a in before), (asked, _text(record["output"]))]
    return Conversation(_text(record.get("system")), tuple(turns))


def _spoken(said: Any, record: Mapping[str, Any]) -> Conversation:
    if not isinstance(said, list) or not said or not all(isinstance(turn, Mapping) for turn in said):
        raise Unusable("unknown_format")
    system = [_text(record.get("system"))]
    rest: list[tuple[bool, str, bool]] = []
    for turn in said:
        role = str(turn.get("role") or turn.get("from") or "").lower()
        if turn.get("tool_calls") or turn.get("function_call") or role in _TOOLS:
            raise Unusable("calls_a_tool")
        text = _text(turn.get("content") if turn.get("content") is not None else turn.get("value"))
        if role in _SYSTEM:
            if rest:
                raise Unusable("system_text_in_between")
            system.append(text)
        elif role in _ASKS or role in _ANSWERS:
            rest.append((role in _ASKS, text, role in _ANSWERS and not _is_learnt(turn.get("weight"))))
        else:
            raise Unusable("unknown_role")
    unanswered = bool(rest) and rest[-1][0]
    rest = rest[:-1] if unanswered else rest
    if rest and not rest[0][0]:
        raise Unusable("begins_with_an_answer")
    if any(asks == (i % 2 == 1) for i, (asks, _, _) in enumerate(rest)):
        raise Unusable("questions_and_answers_do_not_alternate")
    turns = tuple((rest[i][1], rest[i + 1][1]) for i in range(0, len(rest), 2))
    silent = tuple(number for number, (_, _, read_only) in enumerate(rest[1::2]) if read_only)
    return Conversation("\n".join(filter(None, system)), turns, unanswered, silent)


def _is_learnt(weight: Any) -> bool:
    """Whether an answer is learnt: the `weight` that OpenAI's fine-tuning format gives to it, 0 or 1, says so."""
    if weight is not None and (not isinstance(weight, int | float) or weight not in (0, 1)):
        raise Unusable("unknown_weight")
    return weight is None or weight == 1


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
