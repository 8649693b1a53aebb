"""What a project has nothing of, so that a metric of it does not apply. Decided by the samples and the spec alone.

A count of faults needs no such word: where nothing could be wrong it is 0. A measure (a share, a loss, a size) of what
is not there has no value, or one that says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from specs.criteria import Metric

NO_QUESTION = "no sample has a question"
NO_FAULT_TYPE = "no sample has a fault type, and no source maps or names them"


def not_applicable(unit: str, lacks: str, value: float | None = None) -> Metric:
    """A metric of what is not there; `value` is what it would be judged by where a person asks for it."""
    return Metric(value=value, unit=unit, reason=lacks, applies=False)


def without_questions(samples: Iterable[Mapping[str, Any]]) -> bool:
    """Whether there are samples, and all of them are plain text."""
    first, *others = [not sample["prompt"] for sample in samples] or [False]
    return first and all(others)


def without_questions_in(table: Path) -> bool:
    """The same of a table of samples; false where there is none."""
    import pyarrow.parquet as pq

    return table.is_file() and without_questions(pq.read_table(table, columns=["prompt"]).to_pylist())


def names_fault_types(spec: Mapping[str, Any] | None) -> bool:
    """Whether a source of a frozen spec says what the fault types are: without any in the samples, some were lost."""
    return any(
        source["kind"] == "fault_codes" or source.get("event") or "fault_type" in (source.get("columns") or {})
        for source in (spec or {}).get("sources") or ()
    )
