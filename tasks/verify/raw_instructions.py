"""The records of instruction files read again: what is asked and answered in each, and where its samples say so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.verify.data_raw import decode_again, raw_bytes
from tasks.verify.raw_sheets import ending


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file: the questions with their answers, none where it is no conversation. `raw` is its text.

    `unlearnt` are numbers of answers that the record itself says are not to be learnt; the last one always is. It
    has so many `messages`, system texts not counted, of which `pairs` may lack the last ones.
    """

    number: int
    system: str
    pairs: tuple[tuple[str, str], ...]
    raw: str
    unlearnt: frozenset[int] = frozenset()
    messages: int = 0

    @property
    def location(self) -> str:
        """Where its sample is."""
        return f"#{self.number}"

    @property
    def said(self) -> str:
        """Every turn, a line each, without the system text."""
        return "\n".join(text for pair in self.pairs for text in pair)

    def answers(self) -> Iterator[Answer]:
        """Its answers as older runs made a sample of each."""
        before = [self.system] if self.system else []
        several = len(self.pairs) > 1
        for turn, (question, answer) in enumerate(self.pairs, start=1):
            location = f"record {self.number}#{turn}" if several else self.location
            yield Answer(location, "\n".join([*before, question]), answer, several)
            before += [question, answer]
        if not self.pairs:
            yield Answer(self.location, "", "")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a record. `said` is everything before it, in order; both are empty where a record is none."""

    location: str
    said: str
    answer: str
    several: bool = False


def records_of(path: Path, encoding: str) -> Iterator[Record]:
    """Every record of an instruction file, in order."""
    for number, (raw, record) in enumerate(_records(path, encoding), start=1):
        yield record_of(number, raw, record)


def record_of(number: int, raw: str, record: Any) -> Record:
    """A record as a reader of conversations must take it, up to the last answer that is learnt."""
    system, pairs = _conversation(record) or ("", [])
    weights = _weights(record, len(pairs))
    last = max((at for at, learnt in enumerate(weights) if learnt), default=-1)
    unlearnt = frozenset(at for at in range(last) if not weights[at])
    whole = _LONE.search(json.dumps([system, *pairs[: last + 1]], ensure_ascii=False)) is None
    said = _messages(record) if pairs else 0
    return Record(number, system, tuple(pairs[: last + 1]) if whole else (), raw, unlearnt, said)


def _messages(record: dict[str, Any]) -> int:
    said = record.get("messages") if record.get("messages") is not None else record.get("conversations")
    if said is None:
        return 2 * len(record.get("history") or []) + 2
    return sum(_part(turn) in ("q", "a") for turn in said)


def _weights(record: Any, count: int) -> list[bool]:
    """Whether each of the answers is learnt: all of them, but for those with a weight of 0."""
    said = (record.get("messages") or record.get("conversations")) if isinstance(record, dict) else None
    given = [t.get("weight") for t in said if _part(t) == "a"] if count and said else []
    return [weight is None or weight == 1 for weight in given] or [True] * count


def _part(turn: dict[str, Any]) -> str:
    return _PART.get(str(turn.get("role") or turn.get("from")).lower(), "?")


def _records(path: Path, encoding: str) -> Iterator[tuple[str, Any]]:
    if ending(path.name) == "parquet":
        import polars as pl

        for record in pl.scan_parquet(path).collect().iter_rows(named=True):
            yield json.dumps(record, ensure_ascii=False, default=str), record
        return
    text, _ = decode_again(raw_bytes(path), encoding)
    if ending(path.name) == "json":
        whole = json.loads(text)
        inside = [v for v in whole.values() if isinstance(v, list)] if isinstance(whole, dict) else [whole]
        chosen = next(v for v in inside if (v and any(isinstance(item, dict) for item in v)) or v is whole)
        yield from ((json.dumps(record, ensure_ascii=False), record) for record in chosen)
        return
    for line in text.split("\n"):
        if line.strip():
            try:
                yield line, json.loads(line)
            except (ValueError, RecursionError):
                yield line, None


def _conversation(record: Any) -> tuple[str, list[tuple[str, str]]] | None:
    """(system text, questions with answers) of a well-formed conversation; None for whatever else a record is."""
    if not isinstance(record, dict):
        return None
    said = record.get("messages") if record.get("messages") is not None else record.get("conversations")
    if said is None:
        return _alpaca(record)
    if not isinstance(said, list) or not all(isinstance(turn, dict) for turn in said):
        return None
    order = "".join(map(_part, said))
    contents = [t.get("content") if t.get("content") is not None else t.get("value") for t in said]
    calls = any(t.get("tool_calls") or t.get("function_call") for t in said)
    if calls or not all(map(_is_text, [*contents, record.get("system")])):
        return None
    weights = [t.get("weight") for t in said if _part(t) == "a"]
    if not re.fullmatch(r"s*((?:qa)+)q?", order) or any(weight not in (None, 0, 1) for weight in weights):
        return None
    texts = [_text(content) for content in contents]
    system = "\n".join(filter(None, [_text(record.get("system")), *texts[: order.count("s")]]))
    kept = texts[order.count("s") :]
    pairs = [(kept[i], kept[i + 1]) for i in range(0, 2 * (len(kept) // 2), 2)]
    return (system, pairs) if all(q and a for q, a in pairs) else None


def _alpaca(record: dict[str, Any]) -> tuple[str, list[tuple[str, str]]] | None:
    before = record.get("history") or []
    if "instruction" not in record or "output" not in record:
        return None
    if not isinstance(before, list) or not all(isinstance(p, list) and len(p) == 2 for p in before):
        return None
    parts = [record.get(name) for name in ("system", "instruction", "input", "output")]
    if not all(map(_is_text, [*parts, *(part for pair in before for part in pair)])):
        return None
    system, asked, more, answer = map(_text, parts)
    pairs = [*((_text(q), _text(a)) for q, a in before), ("\n".join(filter(None, [asked, more])), answer)]
    return (system, pairs) if all(q and a for q, a in pairs) else None


_PART = {
    **dict.fromkeys(("user", "human", "prompter", "question"), "q"),
    **dict.fromkeys(("assistant", "gpt", "bot", "model", "chatgpt", "answer"), "a"),
    **dict.fromkeys(("system", "developer"), "s"),
}
_LONE = re.compile("[\ud800-\udfff]")


def _is_text(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content)
    return not isinstance(content, dict)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content).strip()
    return "" if content is None else str(content).strip()
