"""Operations of matrix products, counted from a model folder as the memory account counts them. No torch.

A token is multiplied with every weight of the layers and of the output layer; a training pass does so forward and once
more for the gradients of what came in, trained weights a third time for their own, and layers under activation
checkpointing once more forward. So frozen weights take 4 operations each, trained ones 6, adapters 6 of their own.
Attention adds what grows with the square of a length. `tests/planning/test_operations.py` compares this with a recorded
account (`tasks/memory/family.py`), which a first sheet does not wait for.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from specs.parameters import TrainingConfiguration

Lack = Literal["", "no_config", "no_matrices", "packed"]
"""Why products cannot be counted: no configuration, no matrices by layers, weights that are stored packed."""

_IN_LAYER = re.compile(r"\.(\d+)\.")
_LOOKED_UP = re.compile(r"embed|wte|wpe|position")
_EXPERT = re.compile(r"\.experts?\.\d+\.")
_MOST_HEADER_BYTES = 100 * 2**20


class Matrix(NamedTuple):
    """A weight that tokens are multiplied with. `used` is the share of tokens that reach it: 1 but for experts."""

    module: str
    rows: int
    columns: int
    used: float

    @property
    def elements(self) -> float:
        """Multiplications for a token, on the average."""
        return self.rows * self.columns * self.used


@dataclass(frozen=True)
class Products:
    """The matrix products of a model, as far as its folder tells them; `lacks` says why they are a rule of thumb."""

    parameters: int
    layers: tuple[Matrix, ...] = ()
    head: float = 0.0
    hidden: int = 0
    attention: float = 0.0
    """Query heads times their size, over all layers with attention."""
    lacks: Lack = ""

    def training(self, tokens: float, squares: float, training: TrainingConfiguration) -> float:
        """Of a forward and backward pass over samples with so many tokens, and so many squares of their lengths."""
        if self.lacks:
            return 6.0 * self.parameters * tokens
        again = 1 if training.activation_checkpointing else 0
        inside = sum(matrix.elements for matrix in self.layers)
        of_token = 4 * (inside + self.head) + 2 * again * inside
        if training.method == "full":
            of_token += 2 * (inside + self.head) - 2 * again * self._last
        else:
            of_token += (6 + 2 * again) * self._adapters(training)
        if training.attention == "eager":  # every pair of tokens, products of gradients twice
            return tokens * of_token + squares * self.attention * 4 * (3 + again)
        # what comes later is left out, backward is 2.5 of forward: flash-attention 2, section 4
        return tokens * of_token + squares * self.attention * 2 * (3.5 + again)

    def forward(self, tokens: float, squares: float) -> float:
        """Of a forward pass alone, without adapters."""
        if self.lacks:
            return 2.0 * self.parameters * tokens
        inside = sum(matrix.elements for matrix in self.layers)
        return tokens * 2 * (inside + self.head) + squares * self.attention * 2

    @property
    def _last(self) -> float:
        """Elements of the last matrix of every layer: nothing waits for its result when a layer is recomputed.

        By its size: of what writes to the hidden states, the output of the feed-forward part is the widest.
        """
        writing = [m for m in self.layers if m.rows == self.hidden]
        widest = max(writing, key=lambda m: m.columns, default=None)
        return sum(m.elements for m in writing if widest is not None and m.module == widest.module)

    def _adapters(self, training: TrainingConfiguration) -> float:
        """Elements of the adapters."""
        targets = training.lora.targets
        chosen = [m for m in self.layers if targets == "all-linear" or m.module in targets]
        return sum(training.lora.rank * (m.rows + m.columns) * m.used for m in chosen)


def tensors_of(model: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(type, shape) of every weight of a folder, from the headers of its safetensors files.

    Format: 8 bytes little-endian header length, then JSON (safetensors specification).
    """
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(model.glob("*.safetensors")):
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if 0 < length <= _MOST_HEADER_BYTES:
                header: dict[str, Any] = json.loads(file.read(length))
                found |= {n: (t["dtype"], tuple(t["shape"])) for n, t in header.items() if n != "__metadata__"}
    return found


def products_of(model: Path | None) -> Products | None:
    """The matrix products of a local model folder; null where it has no weights that can be read."""
    tensors = tensors_of(model) if model is not None and model.is_dir() else {}
    parameters = sum(math.prod(shape) for _, shape in tensors.values())
    if model is None or not parameters:
        return None
    try:
        read = json.loads((model / "config.json").read_bytes())
        config = read.get("text_config") or read
        layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        width = heads * int(config.get("head_dim") or hidden // heads)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return Products(parameters, lacks="no_config")
    if any(kind in ("U8", "I8", "I32") and len(shape) > 1 for kind, shape in tensors.values()):
        return Products(parameters, lacks="packed")
    inside = tuple(_matrices(tensors, config))
    if not inside:
        return Products(parameters, lacks="no_matrices")
    kinds = config.get("layer_types") or config.get("layers_block_type")
    attending = sum("attention" in str(kind) for kind in kinds) if kinds else layers
    return Products(parameters, inside, _head(tensors), hidden, float(attending * width))


def _matrices(tensors: Mapping[str, tuple[str, tuple[int, ...]]], config: Mapping[str, Any]) -> Iterator[Matrix]:
    """Every matrix inside the layers. Of several experts a token reaches some."""
    many = next((int(config[k]) for k in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(k)), 0)
    reached = int(config.get("num_experts_per_tok") or many)
    for name, (_, shape) in tensors.items():
        if not _IN_LAYER.search(name) or (not name.endswith("weight") and len(shape) < 3):
            continue
        module = name.removesuffix(".weight").rpartition(".")[2]
        if len(shape) == 2:
            yield Matrix(module, *shape, reached / many if many and _EXPERT.search(name) else 1.0)
        elif len(shape) == 3 and shape[0] == many:
            yield Matrix(module, shape[0] * shape[1], shape[2], reached / many)


def _head(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> float:
    """Weights of the output layer: its own, else those of the embeddings, which it then shares."""
    outside = {n: shape for n, (_, shape) in tensors.items() if len(shape) == 2 and not _IN_LAYER.search(n)}
    own = [math.prod(shape) for name, shape in outside.items() if not _LOOKED_UP.search(name)]
    return float(max(own, default=0) or max((math.prod(s) for s in outside.values()), default=0))
