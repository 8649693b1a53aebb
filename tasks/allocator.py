"""How the caching allocator of a GPU is asked to divide memory: by environment variables, set before torch starts."""

from __future__ import annotations

from collections.abc import Mapping

from specs.parameters import Allocator

VARIABLE = "PYTORCH_ALLOC_CONF"
OLDER_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
"""The name before torch 2.10; the newer one wins where both are set."""

_SETTINGS: dict[Allocator, str] = {
    "expandable_segments": "expandable_segments:True",
    "max_split_size": "max_split_size_mb:128",
}
"""Blocks above 128 MiB are never split: where segments cannot grow, that keeps large ones free for large requests."""


def variables(allocator: Allocator) -> dict[str, str]:
    """What to set for a worker; nothing for the default, which leaves what the person has set."""
    setting = _SETTINGS.get(allocator)
    return {VARIABLE: setting, OLDER_VARIABLE: setting} if setting else {}


def in_effect(environment: Mapping[str, str]) -> str:
    """The allocator that an environment asks for, by our name where it has one, else the setting itself."""
    setting = environment.get(VARIABLE) or environment.get(OLDER_VARIABLE) or ""
    names = {value: name for name, value in _SETTINGS.items()}
    return names.get(setting, "default")
