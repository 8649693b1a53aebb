"""The nearest known word to a misspelt one, the names other tools use for the same thing, and texts made harmless
or laid out in columns."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

SYNONYMS: dict[str, str] = {
    "=": "==",
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "learning_rate": "lr",
    "per_device_train_batch_size": "micro_batch",
    "batch_size": "micro_batch",
    "micro_batch_size": "micro_batch",
    "gradient_accumulation_steps": "gradient_accumulation",
    "grad_accum": "gradient_accumulation",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "lora_r": "rank",
    "r": "rank",
    "lora_rank": "rank",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "target_modules": "targets",
    "lora_targets": "targets",
    "max_seq_length": "max_length",
    "max_seq_len": "max_length",
    "seq_len": "max_length",
    "cutoff_len": "max_length",
    "warmup_steps": "lr_warmup_steps",
    "lr_scheduler_type": "lr_schedule",
    "scheduler": "lr_schedule",
    "optim": "optimizer",
    "gradient_checkpointing": "activation_checkpointing",
    "attn_implementation": "attention",
    "save_total_limit": "keep_checkpoints",
    "num_threads": "threads",
    "model": "base_model",
    "model_name": "base_model",
    "model_name_or_path": "base_model",
    "pretrained_model": "base_model",
    "name": "project",
    "project_name": "project",
    "lang": "language",
    "locale": "language",
    "data": "sources",
    "dataset": "sources",
    "datasets": "sources",
    "files": "sources",
    "type": "kind",
    "format": "kind",
    "file": "path",
    "folder": "path",
    "glob": "path",
    "filename": "path",
    "mapping": "columns",
    "fields": "columns",
    "headers": "columns",
    "tab": "sheet",
    "worksheet": "sheet",
    "charset": "encoding",
    "timezone": "time_zone",
    "tz": "time_zone",
    "time": "timestamp",
    "finetuning_type": "method",
    "peft": "method",
    "criteria": "acceptance",
    "acceptance_criteria": "acceptance",
    "limits": "caps",
    "bounds": "stages",
    "parameters": "stages",
    "gpus": "count",
    "vram": "memory_gb",
    "memory": "memory_gb",
    "operator": "op",
    "threshold": "bound",
    "value": "bound",
    "target": "at_least",
    "minimum": "min",
    "maximum": "max",
    "api_base": "base_url",
    "endpoint": "mirror",
    "database": "ledger",
    "database_url": "ledger",
    "user": "id",
    "who": "id",
    "symptom": "phenomenon",
    "problem": "phenomenon",
    "machine": "device_model",
    "solution": "repair",
    "fix": "repair",
    "checks": "steps",
    "code": "fault_type",
    "fault_code": "fault_type",
}


def nearest(word: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """At most `limit` known words that `word` may stand for, the most likely first."""
    words = list(dict.fromkeys(known))
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    found = [w for w in (plain, SYNONYMS.get(plain)) if w in words]
    found += difflib.get_close_matches(plain, words, n=limit, cutoff=0.6)
    if len(plain) >= 4:
        found += [w for w in words if plain in w or (len(w) >= 4 and w in plain)]
    return list(dict.fromkeys(found))[:limit]


def listed(words: Iterable[str], last: str = "or") -> str:
    """`a, b or c`."""
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def harmless(text: str) -> str:
    """The text with what cannot be seen, or what steers a terminal, written as its code. Lines and tabs stay."""
    return "".join(c if _shows(c) else c.encode("unicode_escape").decode() for c in text)


def _shows(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


def compared(header: tuple[str, str, str], rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Lines of a table of (what, one value, the other value), in columns, for messages."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(2)]
    return [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in table]
