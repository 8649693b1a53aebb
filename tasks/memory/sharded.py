"""FSDP2 traced: one rank of a process group whose other ranks do not exist, sharded by accelerate's own code.

`fsdp2_prepare_model` of accelerate decides what is sharded, in which units and types, as it does under `Trainer`; the
collectives of torch's fake process group move nothing. The tensors of rank 0 are followed: its shards are the largest.
With gradient accumulation every micro batch reduces its gradients (`sync_each_batch`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from tasks.memory import caching, experts, kernels, optimizers, step
from tasks.memory import model as models
from tasks.memory.places import watch_layers
from tasks.memory.settings import ROUNDING, TraceSettings
from tasks.memory.sizes import bytes_of, parameters_of
from tasks.memory.timeline import Resident, outliving, peaks
from tasks.memory.traced import Trace
from tasks.memory.tracker import StorageTracker


class ShardTracker(StorageTracker):  # type: ignore[no-untyped-call]
    """Follows the local tensors behind distributed ones, and storages that FSDP empties and fills again."""

    def see(self, tensor: torch.Tensor, kind: Resident | None = None) -> None:
        """The tensor of this rank; one whose storage is empty counts when it is filled."""
        local = local_of(tensor)
        if local.untyped_storage().nbytes():
            super().see(local, kind)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is DTensor for kind in types):
            return NotImplemented  # it comes back with local tensors
        return super().__torch_dispatch__(func, types, args, kwargs)

    def filled(self, tensor: torch.Tensor) -> None:
        """In the place of FSDP's `alloc_storage`, which resizes a storage that stays the same object."""
        storage, size = tensor.untyped_storage(), tensor.numel() * tensor.itemsize
        if storage.size() != size:
            storage.resize_(size)
        if self._live.get(storage._cdata) in self._released:
            del self._live[storage._cdata]
        self.see(tensor, "gathered")

    def emptied(self, tensor: torch.Tensor) -> None:
        """In the place of FSDP's `free_storage`."""
        if tensor.untyped_storage().size():
            self.release(tensor)
            tensor.untyped_storage().resize_(0)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def trace_sharded(settings: TraceSettings, depth: int | None = None, optimizer_step: bool = True) -> Trace:
    """As `trace`, of one rank: peaks are its own, sizes those of the whole model.

    Raises whatever torch, accelerate or the model's code raise where they cannot run without data.
    """
    with step.one_sequence_a_row(), experts.grouped_products(), group_of(settings.gpus) as mesh:
        return _trace(settings, depth, optimizer_step, mesh)


def _trace(settings: TraceSettings, depth: int | None, optimizer_step: bool, mesh: Any) -> Trace:
    model = models.build(settings, depth)
    layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
    tracker = ShardTracker()
    with FakeTensorMode(allow_non_fake_inputs=True), followed(tracker):
        models.materialise(model)
        layer_weight_bytes = max((bytes_of([*w.parameters()]) for w in layers), default=0)
        _prepare(model, settings, mesh)
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        entered = watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        shards = Shards(trainable)
        optimizer = optimizers.build(settings, shards)
        step.make_states(optimizer, shards.values)
        earlier = [torch.empty_like(value) for value in shards.values] if settings.gradient_accumulation > 1 else []
        with tracker, kernels.gpu_kernels(model, settings.generation):
            workspaces = step.workspaces(tracker, settings)
            for state in [] if optimizers.paged(settings) else optimizers.states(optimizer):
                tracker.see(state, "optimizer_states")
            model.eval()
            step.evaluate(model, model, tracker, settings)
            model.train()
            shards.give(earlier, tracker)
            del earlier
            step.micro_batch(model, model, tracker, settings)
            shards.take(tracker)
            if optimizer_step:
                step.clip_and_step(optimizer, shards.values, tracker, settings)
            shards.clear()
            tracker.at("end", "model")
            del workspaces
    timeline = tracker.timeline
    for number in outliving(timeline, "forward+loss", "backward"):
        timeline.kinds.setdefault(number, "activations")
    states = bytes_of(optimizers.states(optimizer))
    whole_states = round(states * sum(p.numel() for p in trainable) / max(1, sum(v.numel() for v in shards.values)))
    return Trace(
        peaks=peaks(timeline, ROUNDING[settings.device]),
        trainable_parameters=sum(p.numel() for p in trainable),
        total_parameters=parameters_of(model),
        weight_bytes=bytes_of([*model.parameters(), *model.buffers()]),
        trainable_bytes=bytes_of(trainable),
        state_bytes=whole_states,
        paged_bytes=states if optimizers.paged(settings) else 0,
        buffer_bytes=bytes_of([*model.buffers()]),
        layers=len(layers),
        layer_weight_bytes=layer_weight_bytes,
        layer_input_bytes=max(entered, default=0),
        of_one_rank=True,
        streams=caching.of_streams(timeline, ROUNDING[settings.device]),
    )


class Shards(nn.Module):
    """The trained shards of this rank as parameters of their own.

    Clipping and the optimizer work on them: what torch does with distributed ones comes to the same tensors, but it
    tries every operator on whole shapes first, and the trace cannot tell these trials from the work.
    """

    def __init__(self, trainable: list[nn.Parameter]) -> None:
        super().__init__()
        self.distributed = trainable
        self.values = [nn.Parameter(local_of(p)) for p in trainable]
        self.held = nn.ParameterList(self.values)

    def give(self, gradients: list[torch.Tensor], tracker: ShardTracker) -> None:
        """Gradients of earlier micro batches."""
        distributed: Any = DTensor
        for parameter, gradient in zip(self.distributed, gradients, strict=False):
            assert isinstance(parameter, DTensor)
            parameter.grad = distributed(gradient, parameter._spec, requires_grad=False)
            tracker.stream = "reduced"
            tracker.see(gradient, "gradients")
            tracker.stream = ""

    def take(self, tracker: ShardTracker) -> None:
        """The reduced gradients, for clipping and the step."""
        for parameter, value in zip(self.distributed, self.values, strict=True):
            if parameter.grad is not None:
                value.grad = local_of(parameter.grad)
                tracker.see(value.grad, "gradients")

    def clear(self) -> None:
        """No gradients any more."""
        for parameter in (*self.distributed, *self.values):
            parameter.grad = None


@contextmanager
def group_of(ranks: int) -> Iterator[Any]:
    """A mesh of so many ranks, of which only the first exists; this process must have no group of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed import fake_pg

    assert fake_pg  # its import registers the backend
    stores: Any = dist
    dist.init_process_group("fake", rank=0, world_size=ranks, store=stores.HashStore())
    try:
        yield init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    finally:
        dist.destroy_process_group()


@contextmanager
def followed(tracker: ShardTracker) -> Iterator[None]:
    """Storages that FSDP empties and fills, the buffers of its collectives, and the streams they are allocated in are
    told to the tracker: what is gathered comes out of one stream of its own, what is reduced out of another."""
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param, _fsdp_param_group
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

    original = _fsdp_collectives.DefaultAllocMixin.allocate
    sent = 0

    def allocated(self: Any, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal sent
        if isinstance(self, ReduceScatter):
            sent += 1
            if sent == 2:  # the first is what is sent, from the stream that computes
                tracker.stream = "reduced"
        buffer = original(self, size, dtype=dtype, device=device)
        tracker.see(buffer, "communication")
        return buffer

    def gather(*args: Any, **kwargs: Any) -> Any:
        tracker.stream = "gathered"
        try:
            return gathers(*args, **kwargs)
        finally:
            tracker.stream = ""

    def reduce(*args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        sent = 0
        try:
            return reduces(*args, **kwargs)
        finally:
            tracker.stream = ""

    group: Any = _fsdp_param_group
    gathers, reduces = group.foreach_all_gather, group.foreach_reduce
    with ExitStack() as stack:
        stack.enter_context(patch.object(_fsdp_param, "alloc_storage", tracker.filled))
        stack.enter_context(patch.object(_fsdp_param, "free_storage", tracker.emptied))
        stack.enter_context(patch.object(_fsdp_collectives.DefaultAllocMixin, "allocate", allocated))
        stack.enter_context(patch.object(group, "foreach_all_gather", gather))
        stack.enter_context(patch.object(group, "foreach_reduce", reduce))
        yield


def _prepare(model: nn.Module, settings: TraceSettings, mesh: Any) -> None:
    """Shard a model as `Accelerator.prepare` does under `Trainer` with `fsdp: true`: layers of `_no_split_modules`."""
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    with patch.dict(os.environ), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="TRANSFORMER_BASED_WRAP",
            reshard_after_forward=True,
            cpu_offload=False,
            cpu_ram_efficient_loading=False,
            activation_checkpointing=False,
            activation_checkpointing_offload=False,
        )
        mixed = settings.compute.removeprefix("amp-") if settings.compute.startswith("amp") else "no"
        if mixed != "no":
            plugin.set_mixed_precision(mixed)
        accelerator = SimpleNamespace(
            state=SimpleNamespace(fsdp_plugin=plugin),
            torch_device_mesh=mesh,
            parallelism_config=SimpleNamespace(fsdp_dim_names=("fsdp",)),
            mixed_precision=mixed,
            is_main_process=False,
            device=torch.device("cpu"),
        )
        prepare: Callable[..., Any] = fsdp2_prepare_model  # untyped or unknown, as accelerate is installed
        prepare(accelerator, model)
