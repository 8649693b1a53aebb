"""What stands before the question of a sample: the system text and earlier turns, as `samples.parquet` holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from specs.errors import InputError

Role = Literal["system", "user", "assistant"]
ROLES: tuple[str, ...] = get_args(Role)
COLUMN = "earlier"
"""The column of `samples.parquet`: a list of (role, text, learnt); null, or not there, for a question by itself."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn before the question. `learnt`: an answer that is trained on, its end token included."""

    role: Role
    text: str
    learnt: bool = False


Turns = tuple[Turn, ...]


def turns_of(row: Mapping[str, Any]) -> Turns:
    """The turns before the question of a row of `samples.parquet`; none where the file is of an older form.

    Raises `InputError` for a role that is none.
    """
    found = row.get(COLUMN) or ()
    wrong = next((turn["role"] for turn in found if turn["role"] not in ROLES), None)
    if wrong is not None:
        raise InputError(
            f"sample {row.get('sample_id', '')}: a turn before the question has the role {wrong!r}",
            f"the roles are {', '.join(ROLES)}; run the data stage again",
        )
    return tuple(Turn(turn["role"], turn["text"] or "", bool(turn["learnt"])) for turn in found)


def rows_of(turns: Iterable[Turn]) -> list[dict[str, Any]] | None:
    """The turns as the column holds them; null where there is none."""
    return [{"role": t.role, "text": t.text, "learnt": t.learnt} for t in turns] or None


def columns_of(names: Sequence[str], there: Iterable[str]) -> list[str]:
    """Names of columns to be read, with that of the turns where the file has it."""
    return [*names, *({COLUMN} & set(there))]


def as_context(turns: Turns) -> Turns:
    """The same turns with nothing of them learnt."""
    return tuple(replace(turn, learnt=False) for turn in turns)


def spoken(turns: Iterable[Turn]) -> str:
    """What was asked and answered, a line each. System text is not said by anybody: many records share it."""
    return "\n".join(turn.text for turn in turns if turn.role != "system")
