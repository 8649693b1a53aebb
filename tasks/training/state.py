"""What a checkpoint holds beside its manifest: weights, optimizer, scheduler, scaler, random numbers, counters."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.errors import WorkerError
from specs.files import storage_errors, write_json
from tasks.storage import library_storage_errors
from tasks.training.models import load_weights, save_weights

OPTIMIZER, SCHEDULER, SCALER = "optimizer.pt", "scheduler.pt", "scaler.pt"
RANDOM, RANDOM_TENSORS = "random.json", "random.safetensors"
COUNTERS = "state.json"
TRAINER = "trainer_state.json"


def write_state(folder: Path, trainer: Any, counters: dict[str, Any], random_states: Sequence[PackedRandom]) -> None:
    """Everything that the next step depends on. `trainer` is a transformers `Trainer` between two steps; the random
    numbers are those of each rank, the rest is the same on all of them."""
    import torch

    with library_storage_errors(folder):
        save_weights(trainer.model, folder)
        torch.save(trainer.optimizer.state_dict(), folder / OPTIMIZER)
        torch.save(trainer.lr_scheduler.state_dict(), folder / SCHEDULER)
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None:
            torch.save(scaler.state_dict(), folder / SCALER)
        trainer.state.save_to_json(str(folder / TRAINER))
        for rank, packed in enumerate(random_states):
            save_random(folder, packed, rank)
    write_json(folder / COUNTERS, counters)


def read_counters(folder: Path) -> dict[str, Any]:
    """Counters and settings of a checkpoint."""
    found: dict[str, Any] = json.loads((folder / COUNTERS).read_text("utf-8"))
    return found


def restore_weights(folder: Path, model: Any) -> None:
    """The trained weights, proven equal to the file."""
    load_weights(model, folder)


def restore_optimizer(folder: Path, trainer: Any) -> None:
    """Optimizer, scheduler and scaler. Raises `WorkerError` when a file that this training needs is not there."""
    import torch

    def load(name: str) -> Any:
        path = folder / name
        if not path.is_file():
            raise WorkerError(f"{path} is missing: the checkpoint cannot be resumed exactly", "use an older checkpoint")
        return torch.load(path, map_location="cpu", weights_only=True)

    trainer.optimizer.load_state_dict(load(OPTIMIZER))
    trainer.lr_scheduler.load_state_dict(load(SCHEDULER))
    scaler = getattr(trainer.accelerator, "scaler", None)
    if scaler is not None:
        scaler.load_state_dict(load(SCALER))


@dataclass(frozen=True)
class RandomStates:
    """Where every generator stands: Python's, NumPy's, torch's, and that of each device by its name."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    tensors: dict[str, Any]


def take_random() -> RandomStates:
    """Copies of the states, without waiting for a device."""
    import numpy as np
    import torch

    tensors = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return RandomStates(random.getstate(), tuple(np.random.get_state(legacy=True)), tensors)


def put_random(states: RandomStates) -> None:
    """Put every generator back. Raises `WorkerError` when the number of devices is another."""
    import numpy as np
    import torch

    random.setstate(states.python)
    np.random.set_state(states.numpy)
    torch.set_rng_state(states.tensors["cpu"])
    known = len(states.tensors) - 1
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if known != devices:
        raise WorkerError(
            f"the checkpoint knows {known} GPUs, this machine shows {devices}",
            "set CUDA_VISIBLE_DEVICES to as many as before",
        )
    if devices:
        torch.cuda.set_rng_state_all([states.tensors[f"cuda:{i}"] for i in range(devices)])


PackedRandom = dict[str, Any]
"""The random states of one rank as JSON values, to be sent to the rank that writes."""


def pack_random(states: RandomStates) -> PackedRandom:
    """`document` holds Python's and NumPy's, `tensors` torch's as safetensors in base64."""
    import safetensors.torch

    version, internal, gauss = states.python
    name, keys, position, has_gauss, cached = states.numpy
    document = {
        "python": [version, list(internal), _hex(gauss)],
        "numpy": [name, [int(k) for k in keys], int(position), int(has_gauss), float(cached).hex()],
    }
    return {"document": document, "tensors": base64.b64encode(safetensors.torch.save(states.tensors)).decode()}


def save_random(folder: Path, packed: PackedRandom, rank: int = 0) -> None:
    """Write where every generator of a rank stands."""
    write_json(folder / _of_rank(RANDOM, rank), packed["document"])
    with storage_errors(folder):
        (folder / _of_rank(RANDOM_TENSORS, rank)).write_bytes(base64.b64decode(packed["tensors"]))


def restore_random(folder: Path, rank: int = 0) -> None:
    """Put every generator of a rank back where it was saved. Raises `WorkerError` when it saved none, or the number of
    devices is another."""
    import numpy as np
    import safetensors.torch

    path = folder / _of_rank(RANDOM, rank)
    if not path.is_file():
        raise WorkerError(f"{path} is missing: rank {rank} cannot be resumed exactly", "use an older checkpoint")
    saved = json.loads(path.read_text("utf-8"))
    version, internal, gauss = saved["python"]
    name, keys, position, has_gauss, cached = saved["numpy"]
    put_random(
        RandomStates(
            (version, tuple(internal), float.fromhex(gauss) if gauss is not None else None),
            (name, np.array(keys, dtype=np.uint32), position, has_gauss, float.fromhex(cached)),
            safetensors.torch.load_file(folder / _of_rank(RANDOM_TENSORS, rank)),
        )
    )


def _of_rank(name: str, rank: int) -> str:
    stem, _, ending = name.partition(".")
    return name if rank == 0 else f"{stem}-rank{rank}.{ending}"


def weights_checksum(model: Any) -> int:
    """The bits of every trained weight, added up: equal on ranks that hold the same weights."""
    import torch

    total = 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            bits = {4: torch.int32, 2: torch.int16, 8: torch.int64, 1: torch.uint8}[parameter.element_size()]
            total += int(parameter.detach().contiguous().view(bits).sum(dtype=torch.int64))
    return total


def _hex(value: float | None) -> str | None:
    return None if value is None else float(value).hex()


def expected_checkpoint_bytes(model: Any, optimizer: str) -> int:
    """Bytes of one checkpoint, estimated: trained weights, their optimizer state, and 1 MiB for the rest."""
    per_parameter = {"adamw_8bit": 2, "paged_adamw_8bit": 2, "sgd": 0, "adafactor": 1}.get(optimizer, 8)
    trained = [p for p in model.parameters() if p.requires_grad]
    return sum(int(p.numel()) * (int(p.element_size()) + per_parameter) for p in trained) + 2**20
