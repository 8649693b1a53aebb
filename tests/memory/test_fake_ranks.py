"""FSDP2 as torch runs it on a process group without other ranks, every storage followed, against the closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from tasks.memory import kernels, optimizers, trace
from tasks.memory import model as models
from tasks.memory.assembly import _whole
from tasks.memory.places import watch_layers
from tasks.memory.settings import TraceSettings
from tasks.memory.sharding import rank_of
from tasks.memory.timeline import Peak, Place, peaks
from tasks.memory.tracker import StorageTracker

RANKS, LAYERS, HIDDEN = 4, 4, 512
ARCHITECTURE = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 1408,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 8000,
}


class ShardTracker(StorageTracker):
    """Follows local tensors behind distributed ones, and storages that FSDP empties and fills again."""

    def see(self, tensor: torch.Tensor, kind: Any = None) -> None:
        """The tensor of this rank."""
        local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        if local.untyped_storage().nbytes():
            super().see(local, kind)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is DTensor for kind in types):
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)

    def filled(self, tensor: torch.Tensor) -> None:
        """What `alloc_storage` of FSDP does."""
        storage, size = tensor.untyped_storage(), tensor.numel() * tensor.itemsize
        if storage.size() != size:
            storage.resize_(size)
        if self._live.get(storage._cdata, -1) in (-1, *self._released):
            self._live.pop(storage._cdata, None)
            self.see(tensor)

    def emptied(self, tensor: torch.Tensor) -> None:
        """What `free_storage` of FSDP does."""
        if tensor.untyped_storage().size():
            self.release(tensor)
            tensor.untyped_storage().resize_(0)


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of four ranks of which three do not exist."""
    from torch.testing._internal.distributed import fake_pg

    assert fake_pg
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def traced(settings: TraceSettings, monkeypatch: pytest.MonkeyPatch) -> dict[Place, Peak]:
    """The peaks of a micro batch on one of the ranks, the second, when buffers are where they stay."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    tracker = ShardTracker()
    monkeypatch.setattr(_fsdp_param, "alloc_storage", tracker.filled)
    monkeypatch.setattr(_fsdp_param, "free_storage", tracker.emptied)
    model = models.build(settings, None)
    layers = models.decoder_layers(model, LAYERS)
    mesh = init_device_mesh("cpu", (RANKS,))
    with trace._one_sequence_a_row(), FakeTensorMode(allow_non_fake_inputs=True):
        models.materialise(model)
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = optimizers.build(settings, model)
        trace._make_states(optimizer, trainable)
        with tracker, kernels.gpu_kernels(model, settings.generation):
            workspaces = trace._workspaces(tracker, settings)
            for state in optimizers.states(optimizer):
                tracker.see(state, "optimizer_states")
            model.train()
            trace._micro_batch(model, model, tracker, settings)
            optimizer.zero_grad()
            tracker.timeline.events.append(began := Place("end", "model"))
            begun = len(tracker.timeline.events)
            trace._micro_batch(model, model, tracker, settings)
            del workspaces
    places = [e for e in tracker.timeline.events[begun:] if isinstance(e, Place) and e != began]
    found = peaks(tracker.timeline, 512)
    return {place: found[place] for place in places}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_closed_form_is_what_fsdp2_holds_at_every_place_of_a_step(
    group: None, monkeypatch: pytest.MonkeyPatch, checkpointing: bool, method: Any
):
    settings = TraceSettings(
        architecture=ARCHITECTURE,
        method=method,
        weights="bf16",
        compute="bf16",
        activation_checkpointing=checkpointing,
        micro_batch=2,
        seq_len=512,
        optimizer="adamw_fused",
        gpus=RANKS,
        sharding="fsdp",
    )
    whole = trace.trace(settings)
    rank = rank_of(_whole(whole, HIDDEN), settings)
    compared = {}
    for place, peak in traced(settings, monkeypatch).items():
        if place.phase in ("forward", "loss", "backward", "recompute") and place.part != "before":
            closed = sum(rank.at(place, dict(whole.peaks[place].residents)).values())
            compared[place] = peak.total / closed - 1
    assert len(compared) >= 2 * LAYERS + 3
    assert {place: round(off, 4) for place, off in compared.items() if abs(off) > 0.005} == {}
