"""Tensor parallel as transformers runs it: one rank of a group whose other ranks do not exist, divided by its own plan.

`base_model_tp_plan` of a configuration and `_tp_plan` of its class say what is divided: matrices of the layers by
columns, then by rows; the input embedding and the output layer by vocabulary, but the logits are gathered, whole, on
every rank. Norms, hidden states between layers and the loss are whole. Adapters are divided as PEFT does beside it.
Weights are divided without data, as `from_pretrained(distributed_config=...)` does before it loads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from tasks.memory import model as models
from tasks.memory.sharded import Shards, ShardTracker, local_of
from tasks.memory.timeline import Resident

WRAPPERS: tuple[Any, ...] = (DTensor, AsyncCollectiveTensor)
"""Tensors that stand for others; what they do comes back to the tracker with those."""
WAIT: Any = torch.ops._c10d_functional.wait_tensor.default
"""Returns the tensor that it waited for; on tensors without data torch makes another, which no run has."""


class GridTracker(ShardTracker):  # type: ignore[no-untyped-call]
    """Follows local tensors, and neither what `DTensor` tries on whole shapes nor what lies on no device."""

    trying = False

    def see(self, tensor: torch.Tensor, kind: Resident | None = None) -> None:
        """The tensor of this rank that others stand for."""
        local: Any = local_of(tensor)
        local = local.elem if isinstance(local, AsyncCollectiveTensor) else local
        if not self.trying and _device_of(local) != "meta":
            super().see(local, kind)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind in WRAPPERS for kind in types):
            return NotImplemented
        if func is WAIT:
            return args[0]
        if self.trying:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def _device_of(tensor: torch.Tensor) -> str:
    return tensor.fake_device.type if isinstance(tensor, FakeTensor) else tensor.device.type


@contextmanager
def tried_unseen(tracker: GridTracker) -> Iterator[None]:
    """Before an operator of distributed tensors runs, torch tries it on their whole shapes: nobody allocates that."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    original = ShardingPropagator._propagate_tensor_meta_non_cached

    def trial(self: Any, schema: Any) -> Any:
        before, tracker.trying = tracker.trying, True
        try:
            return original(self, schema)
        finally:
            tracker.trying = before

    with patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", trial):
        yield


@contextmanager
def grid_of(stages: int, ranks: int, rank: int) -> Iterator[Any]:
    """A mesh of pipeline stages by tensor ranks, seen by one of them; this process must have no group of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import debug
    from torch.testing._internal.distributed import fake_pg

    assert fake_pg  # its import registers the backend
    stores: Any = dist
    dist.init_process_group("fake", rank=rank, world_size=stages * ranks, store=stores.HashStore())
    try:
        yield init_device_mesh("cpu", (stages, ranks), mesh_dim_names=("pp", "tp"))
    finally:
        dist.destroy_process_group()
        forget: Any = debug._clear_sharding_prop_cache
        forget()  # what torch keeps of a group that is gone names it


def divide(model: Any, mesh: Any) -> None:
    """Divide a model that has no data among the tensor ranks of a mesh, as transformers does before loading.

    Raises `ValueError` for a model without a plan.
    """
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    config: Any = DistributedConfig(tp_size=mesh["tp"].size())
    model.config.distributed_config = config
    model._device_mesh = mesh
    model._tp_size = config.tp_size
    plan, _, _ = model._resolve_parallel_plans(config)
    modules = {name for name, module in model.named_modules() if not isinstance(module, nn.Identity)}
    here = {*modules, *dict(model.named_parameters())}
    style: Any = apply_tensor_parallelism
    style(model, mesh["tp"], {name: how for name, how in plan.items() if name in here})
    model.tie_weights()


@contextmanager
def attached_without_data() -> Iterator[None]:
    """PEFT sends every rank the adapters of the first: without data nothing is sent, and it takes no memory."""
    with patch.object(dist, "broadcast", lambda *_, **__: None):
        yield


def materialise(model: nn.Module) -> None:
    """Give every parameter data of the active fake mode, divided ones only their part; tied ones stay tied."""
    distributed: Any = DTensor
    divided: list[tuple[nn.Module, str, Any]]
    divided = [(m, n, p) for m in model.modules() for n, p in m._parameters.items() if isinstance(p, DTensor)]
    for module, name, _ in divided:
        module._parameters[name] = None
    models.materialise(model)
    done: dict[int, nn.Parameter] = {}
    for module, name, parameter in divided:
        if id(parameter) not in done:
            local = torch.empty_like(parameter._local_tensor, device="cpu")
            whole = distributed(local, parameter._spec, requires_grad=False)
            done[id(parameter)] = nn.Parameter(whole, requires_grad=parameter.requires_grad)
        module._parameters[name] = done[id(parameter)]


def adapter_widths(model: nn.Module) -> bool:
    """Give adapters of layers divided by rows the whole width as theirs; whether any had another.

    PEFT 0.21 makes them as wide as this rank's part, which transformers 5.23 takes for the whole width: it then divides
    once more, and such a training fails at its first step.
    """
    found = False
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Linear) and isinstance(weight, DTensor):
            found = found or module.in_features != weight.shape[1]
            module.out_features, module.in_features = weight.shape
    return found


class Locals(Shards):
    """The trained tensors of this rank: of divided parameters their part, of others all."""

    gradient_bytes = 0

    def take(self, tracker: ShardTracker) -> None:
        """The gradients, for clipping and the step. One that is whole on every rank (that of the input embedding) lends
        the optimizer this rank's part."""
        for parameter, value in zip(self.distributed, self.values, strict=True):
            if parameter.grad is not None:
                gradient = local_of(parameter.grad)
                tracker.see(gradient, "gradients")
                self.gradient_bytes += gradient.nbytes
                for dim, size in enumerate(value.shape):
                    gradient = gradient.narrow(dim, 0, size)
                value.grad = gradient
