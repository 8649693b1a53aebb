"""The weights of a parent where a stage needs them: the same files as when the run began, on the same base model."""

from __future__ import annotations

from pathlib import Path

from specs.canonical import digest_folder, sha256_file
from specs.errors import GuardRefused, InputError
from specs.parameters import TrainingConfiguration
from specs.parent import LearntSamples, differing
from specs.stages import StageContext

ADAPTER = "adapter"


def require_parent(context: StageContext, training: TrainingConfiguration | None = None) -> Path | None:
    """The folder that holds the parent's adapter/; None for a run without a parent.

    Raises `InputError` when its files are gone or changed, `GuardRefused` with a table when this run's base model,
    tokenizer or adapter is another.
    """
    parent = context.spec.parent_record
    if parent is None:
        return None
    folder = context.project_dir / parent.folder
    if not (folder / ADAPTER).is_dir():
        raise InputError(
            f"the adapter of parent {parent.named} is gone: {folder / ADAPTER}", "restore it from a backup"
        )
    if digest_folder(folder / ADAPTER) != parent.weights_sha256:
        raise InputError(
            f"the adapter of parent {parent.named} is not the one that this run began with: {folder / ADAPTER}",
            "restore it from a backup, or start a new run",
        )
    table = differing(parent, training, context.base_model_sha256)
    if table:
        raise GuardRefused(
            f"the adapter of parent {parent.named} does not fit this run:\n" + "\n".join(table),
            "take the parent's values, or leave parent out and train from the base model",
        )
    return folder


def learnt_samples(project_dir: Path, learnt: list[LearntSamples]) -> list[Path]:
    """Files of samples that the parents were trained on. Raises `InputError` for one that is gone or changed."""
    found = []
    for one in learnt:
        path = project_dir / one.path
        if not path.is_file() or sha256_file(path) != one.sha256:
            raise InputError(
                f"{one.path}, on which parent {one.run} was trained, is {'changed' if path.is_file() else 'gone'}: "
                "whether held-out samples were trained on cannot be told",
                "restore it from a backup, or start from the base model",
            )
        found.append(path)
    return found
