"""Whether forgetting was measured on general text as asked, and how much was forgotten, counted again.

Reads the raw files with the verifier's own decoding; a passage is a piece of its file, word for word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.sources import GENERAL_TEXT_ENDINGS
from tasks.verify import training_logs as logs
from tasks.verify.data_raw import decode_again, files_of, raw_bytes

FEWEST = 8
SAME_FROM = 32

Row = Mapping[str, Any]


def general_text(
    artifacts: Path, context: Mapping[str, Any], samples: Mapping[str, Row], evaluated: bool
) -> dict[str, Metric]:
    """The metrics of forgetting; without `general_text` in the spec there is nothing to be wrong."""
    asked = (context.get("spec") or {}).get("general_text")
    rows = logs.table(artifacts / "general_losses.parquet")
    if not asked:
        reason = "general_text is not set in project.yaml"
        wrong = Metric(value=len(rows), unit="count") if evaluated else logs.missing("count", "eval_losses.parquet")
        change = Metric(value=None, unit="nats/token", reason=reason)
        return {"general_text_wrong": wrong, "general_text_loss_base": change, "general_text_loss_change": change}
    base, adapter = (_mean(rows, name) for name in ("loss_base", "loss_adapter"))
    change = logs.missing("nats/token", "a finite loss of each passage in general_losses.parquet")
    if base.value is not None and adapter.value is not None:
        change = Metric(value=adapter.value - base.value, unit="nats/token")
    return {
        "general_text_wrong": _wrong(rows, asked, Path(context["project_dir"]), samples),
        "general_text_loss_base": base,
        "general_text_loss_change": change,
    }


def _mean(rows: Sequence[Row], name: str) -> Metric:
    """Mean over all tokens that were predicted."""
    if not rows or not all(row[name] is not None and math.isfinite(row[name]) for row in rows):
        return logs.missing("nats/token", f"a finite {name} of each passage in general_losses.parquet")
    total = sum(int(row["n_tokens"]) for row in rows)
    return Metric(value=math.fsum(row[name] * int(row["n_tokens"]) for row in rows) / total, unit="nats/token")


def _wrong(rows: Sequence[Row], asked: Row, project: Path, samples: Mapping[str, Row]) -> Metric:
    """Passages that do not stand in their file, stand twice, or were trained on; and how many are lacking."""
    if not rows:
        return logs.missing("count", "general_losses.parquet")
    files = {name: path for name, path in files_of(project, {"kind": "notes", **asked}) if _is_text(name)}
    raw: dict[str, str] = {}
    trained = [row for row in samples.values() if row["split"] == "train"]
    joined = "\0".join(_words(f"{row['prompt'] or ''}{row['answer'] or ''}") for row in trained)
    seen, faults = set[str](), []
    for row in rows:
        name, text = row["source"], row["text"]
        if name not in raw:
            raw[name] = _words(decode_again(raw_bytes(files[name]), row["encoding"])[0]) if name in files else ""
        said = [_words(part) for part in text.split("\n\n")]
        if not text.strip() or _words(text) not in raw[name]:
            faults.append(f"{row['location']} is not in its file")
        elif text in seen:
            faults.append(f"{row['location']} stands twice")
        elif any(len(part) >= SAME_FROM and part in joined for part in said):
            faults.append(f"{row['location']} was trained on")
        seen.add(text)
    lacking = max(0, FEWEST - len(rows)) + max(0, len(rows) - int(asked["passages"]))
    return Metric(value=len(faults) + lacking, unit="count", reason="; ".join(faults[:5]))


def _is_text(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(GENERAL_TEXT_ENDINGS)


def _words(text: str) -> str:
    return "".join(text.split()).lower()
