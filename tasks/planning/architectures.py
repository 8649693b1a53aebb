"""Whether the numbers of a configuration can be those of a model, said before anything is built of them. Pure."""

from __future__ import annotations

from typing import Any

from specs.errors import ModelError

SIZES = (
    "num_hidden_layers",
    "n_layer",
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
)
"""Keys of config.json that are whole numbers from 1 up, where they are there and not null or one for each layer."""
LEAST = {"vocab_size": 2}
MOST = {"vocab_size": 2**31 - 1, "num_hidden_layers": 100_000, "n_layer": 100_000}


def sound(architecture: dict[str, Any], name: str) -> dict[str, Any]:
    """The same. Raises `ModelError` with everything in it that no model can have."""
    wrong = [*_sizes(architecture), *_heads(architecture)]
    if wrong:
        raise ModelError(f"{name} is the configuration of no model: {'; '.join(wrong)}", "correct it in config.json")
    return architecture


def _sizes(architecture: dict[str, Any]) -> list[str]:
    found = []
    for key in SIZES:
        value, least, most = architecture.get(key), LEAST.get(key, 1), MOST.get(key, 2**31 - 1)
        if value is None or isinstance(value, list):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            found.append(f"{key} is {value!r}, not a whole number from {least} to {most}")
    return found


def _heads(architecture: dict[str, Any]) -> list[str]:
    """Key heads are shared by equally many heads; without `head_dim` the heads divide the hidden size."""
    heads = _number(architecture, "num_attention_heads", "n_head")
    keys = _number(architecture, "num_key_value_heads", "num_kv_heads")
    hidden = _number(architecture, "hidden_size", "n_embd")
    found = []
    if heads and keys and heads % keys:
        found.append(f"{keys} key heads do not divide {heads} heads")
    if heads and hidden and hidden % heads and not architecture.get("head_dim"):
        found.append(f"{heads} heads do not divide a hidden size of {hidden}, and there is no head_dim")
    return found


def _number(architecture: dict[str, Any], *keys: str) -> int | None:
    value = next((architecture[key] for key in keys if architecture.get(key) is not None), None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
