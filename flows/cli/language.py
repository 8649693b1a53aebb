"""In which language a command speaks: that of the run, else of the project, else as asked for."""

from __future__ import annotations

import json
from pathlib import Path

from specs.base import Language
from specs.errors import GatewrightError, InputError


def asked(lang: str | None) -> Language | None:
    """What `--lang` says; null where it is left out. Raises `InputError` for another language."""
    if lang not in (None, "en", "zh"):
        raise InputError(f"--lang is en or zh, not {lang}", "leave it out for the project's language")
    return "zh" if lang == "zh" else "en" if lang == "en" else None


def of_project(folder: Path | None = None) -> Language:
    """That of the project in or above a folder (default: the current one); English where there is none."""
    from flows.cli.find import project_folder
    from specs.loading import load_project

    try:
        return load_project(project_folder(folder)).spec.language
    except GatewrightError:
        return "en"


def of_run(folder: Path) -> Language:
    """That of the project whose run lies in a folder, as its frozen spec says; English where that cannot be read."""
    try:
        return "zh" if json.loads((folder / "spec.json").read_bytes()).get("language") == "zh" else "en"
    except (OSError, ValueError, AttributeError, RecursionError):
        return "en"
