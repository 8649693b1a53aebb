"""Follows every storage of the tensors that operators return, from birth to death."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tasks.memory import quick
from tasks.memory.timeline import Place, Resident, Timeline

PRODUCTS: dict[Any, int] = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.baddbmm.default: 1,
}
"""Matrix products, and which of their arguments are multiplied: this one and the next."""


DEVICE: Any = torch.ops.prim.device.default
"""Where a tensor is: two of three calls in a trace. Answered here as the fake mode would, which costs a tenth less."""


def _operations(left: torch.Tensor, right: torch.Tensor) -> int:
    """A multiplication and an addition for each entry of the result and of the inner dimension."""
    return 2 * left.numel() * right.shape[-1]


class StorageTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that writes a `Timeline`. Works on fake tensors as on real ones.

    What a kernel allocates and frees inside itself is not seen.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch's guard against it would double the cost of every operator."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.timeline = Timeline()
        self.place = Place("build", "model")
        self.stream = ""
        """Where what is born now is allocated; empty: in the stream that computes."""
        self._live: dict[int, int] = {}
        self._released: set[int] = set()

    def at(self, phase: str, part: str, layer: int | None = None) -> None:
        """What follows happens there."""
        place = Place(phase, part, layer)
        if place != self.place:
            self.place = place
            self.timeline.move(place)

    def see(self, tensor: torch.Tensor, kind: Resident | None = None) -> None:
        """A tensor whose storage counts; `kind` says what it is, once that is known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self._live.get(key)
        if number is None:
            number = self._live[key] = self.timeline.born(storage.nbytes())
            weakref.finalize(storage, self._forget, key, number)
            if self.stream:
                self.timeline.streams[number] = self.stream
            if self.place.phase == "recompute":
                self.timeline.kinds[number] = "activations"
        if kind is not None:
            self.timeline.kinds[number] = kind

    def accumulated(self, tensor: torch.Tensor) -> None:
        """A gradient has become its parameter's; while accumulating it would be added to an earlier one and die."""
        self.timeline.accumulated.append((len(self.timeline.events), self._live[tensor.untyped_storage()._cdata]))

    def release(self, tensor: torch.Tensor) -> None:
        """Count a tensor's memory as free from here on, although this process still holds the object."""
        number = self._live.get(tensor.untyped_storage()._cdata)
        if number is not None and number not in self._released:
            self._released.add(number)
            self.timeline.died(number)

    def _forget(self, key: int, number: int) -> None:
        if self._live.get(key) == number:
            del self._live[key]
        if number not in self._released:
            self.timeline.died(number)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is DEVICE and isinstance(args[0], FakeTensor):
            return torch.device("meta") if args[0].fake_mode.in_kernel_invocation else args[0].fake_device
        if self.place.phase in ("backward", "recompute") and self.place.part == "layer":
            # Autograd's own work has gradients disabled; a layer run again for its activations has them enabled.
            self.at("recompute" if torch.is_grad_enabled() else "backward", self.place.part, self.place.layer)
        if func in PRODUCTS:
            self.timeline.products.append((self.place.phase, _operations(*args[PRODUCTS[func] :][:2])))
        out = quick.run(func, args, kwargs) if func in quick.QUICK else quick.MISSED
        if out is quick.MISSED:
            out = func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, torch.Tensor) else tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        return out
