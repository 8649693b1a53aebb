"""Which example projects there are, by name and language, and where their files lie."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from specs.errors import InputError


@dataclass(frozen=True)
class Example:
    """An example project: `folder` holds project.yaml, README.md and raw/."""

    name: str
    language: str
    folder: Path


_FOLDERS = {("cnc-repair", "en"): "cnc-repair", ("cnc-repair", "zh"): "cnc-repair-zh"}


def list_examples() -> list[Example]:
    """Every example, sorted by name and language."""
    root = Path(str(resources.files("examples")))
    return [Example(name, language, root / folder) for (name, language), folder in sorted(_FOLDERS.items())]


def stages_file(name: str, language: str, kind: str) -> Path:
    """A file of the example stages in a language: `added` (yaml) or `abbreviations` (csv)."""
    return Path(str(resources.files("examples"))) / "stages" / f"{name}_{language}.{kind}"


def locate(name: str, language: str = "en") -> Path:
    """The folder of an example. The name of a folder (`cnc-repair-zh`) names its language too.

    Raises `InputError` that lists what there is.
    """
    examples = list_examples()
    for example in examples:
        if (example.name, example.language) == (name, language) or name == example.folder.name != example.name:
            return example.folder
    known = ", ".join(f"{e.name} ({e.language})" for e in examples)
    raise InputError(f"there is no example {name!r} in language {language!r}", f"examples are: {known}")
