"""Where an architecture comes from: a model folder, a config.json, or a name of the catalog. Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specs.errors import ModelError
from specs.hardware import find_model


def architecture_of(model: str | Path) -> dict[str, Any]:
    """The content of config.json. Raises `ModelError` when the path has none, or the catalog lacks the name."""
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise ModelError(f"{path.parent} has no config.json", "name the folder of a model")
    if path.is_file():
        return _read(path)
    if isinstance(model, Path) or str(model).startswith((".", "/", "~")) or str(model).endswith(".json"):
        raise ModelError(f"{model} does not exist", "name a model folder, a config.json or a model of the catalog")
    return find_model(model).architecture


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}", "use the config.json of the model") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a configuration", "use the config.json of the model")
    return text_part(found)


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a multimodal configuration."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) and "model_type" in inner and "hidden_size" not in config else config
