"""The common operators on fake tensors by the short way: the kernel for shapes at once, without a key into a cache.

`FakeTensorMode` looks every call up by the shapes of its arguments, which costs more than the kernel of shapes itself.
For the operators below it would run that kernel and nothing else. Everything else, and every call with an argument that
is not an ordinary fake tensor of the mode, takes the usual way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

_NAMES = """
_to_copy.default _unsafe_view.default add.Tensor add_.Tensor addmm.default bmm.default cat.default clone.default
copy_.default cos.default detach.default div.Scalar div.Tensor expand.default mean.dim mm.default mul.Scalar mul.Tensor
native_dropout.default native_dropout_backward.default neg.default permute.default pow.Tensor_Scalar rsqrt.default
silu.default silu_backward.default sin.default slice.Tensor slice_backward.default split.Tensor sub.Tensor
sum.dim_IntList t.default transpose.int unsqueeze.default view.default
"""


def _operators() -> frozenset[Any]:
    found = set()
    for name in _NAMES.split():
        packet, _, overload = name.partition(".")
        found.add(getattr(getattr(torch.ops.aten, packet), overload))
    return frozenset(found)


QUICK = _operators()
"""Their kernels of shapes need no help: none makes a tensor from nothing, on another device, or by values."""
MISSED = object()
"""Says that the usual way has to be taken."""


def run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """The result of one of `QUICK`, or `MISSED`."""
    mode = None
    for argument in args:
        for one in argument if type(argument) is list else (argument,):
            if isinstance(one, torch.Tensor):
                if type(one) is not FakeTensor or one.constant is not None or one._fake_device.type != "cpu":
                    return MISSED
                mode = one.fake_mode
    if mode is None or mode.in_kernel_invocation or mode.shape_env is not None or (kwargs and "device" in kwargs):
        return MISSED
    with in_kernel_invocation_manager(mode):
        out = func(*args, **(kwargs or {}))
    if type(out) is torch.Tensor:
        return FakeTensor(mode, out, CPU)
    if isinstance(out, tuple | list):
        return type(out)(FakeTensor(mode, one, CPU) if type(one) is torch.Tensor else one for one in out)
    return out


CPU = torch.device("cpu")
