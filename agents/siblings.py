"""Small siblings of known model families, for dry runs."""

from __future__ import annotations

from specs.project import Project

_FAMILIES: tuple[tuple[str, str], ...] = (
    ("Qwen/Qwen2.5-", "Qwen/Qwen2.5-0.5B"),
    ("Qwen/Qwen3-", "Qwen/Qwen3-0.6B"),
    ("meta-llama/Llama-3.2-", "meta-llama/Llama-3.2-1B"),
    ("meta-llama/Llama-3.1-", "meta-llama/Llama-3.2-1B"),
    ("HuggingFaceTB/SmolLM2-", "HuggingFaceTB/SmolLM2-135M"),
)
"""Prefix of a hub id to the smallest published model with the same tokenizer and template."""


def dry_run_model(spec: Project) -> str:
    """What the spec names, else a smaller sibling of the base model, else the base model itself."""
    if spec.dry_run.model:
        return spec.dry_run.model
    for prefix, sibling in _FAMILIES:
        if spec.base_model.startswith(prefix):
            return sibling + ("-Instruct" if spec.base_model.endswith("-Instruct") and "Qwen3" not in prefix else "")
    return spec.base_model
