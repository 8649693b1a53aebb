"""How long a text a model was made for, and samples that are longer: they end a run before anything is spent on it.

A model with learnt positions fails on the first such sample; one with rotary positions trains on without a word, on
distances that it never saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specs.errors import InputError

_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
"""What the configurations of transformers call it."""


def positions_of(folder: Path) -> int | None:
    """The longest text, in tokens, that the model of a folder was made for; null where it does not say."""
    try:
        found = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    inner = found.get("text_config") if isinstance(found, dict) else None
    for settings in (inner, found):
        values = (settings.get(name) for name in _NAMES) if isinstance(settings, dict) else ()
        known = next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)
        if known is not None:
            return known
    return None


def require_within(lengths: Mapping[str, int], folder: Path, name: str) -> None:
    """Raise `InputError` for samples (id to tokens) longer than the model of `folder`, called `name`, was made for."""
    positions = positions_of(folder)
    over = {i: n for i, n in lengths.items() if positions is not None and n > positions}
    if not over or positions is None:
        return
    longest = sorted(over, key=lambda i: (-over[i], i))
    shown = ", ".join(f"{i} ({over[i]} tokens)" for i in longest[:5]) + (" and more" if len(over) > 5 else "")
    raise InputError(
        f"{len(over)} samples are longer than the {positions} tokens that {name} was made for: {shown}",
        f"limit them in the data stage: `gatewright resume --anew` opens this gate again, then `gatewright rework "
        f"--stage data --want max_length={positions} --want over_long=split` (or drop_list); a model with rotary "
        "positions is made longer by rope_scaling and max_position_embeddings in its config.json",
    )
