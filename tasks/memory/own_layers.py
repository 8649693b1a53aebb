"""Layers that trainers of their own put in the place of a model's (`generations.Own`), by what they allocate.

Adapters lie in slots beside a frozen layer and are stacked when it works. A mixture of experts sorts its tokens by
expert and takes grouped products of stacked weights (TorchTitan's); without adapters it copies rows once more, so that
every expert's begin at a multiple of eight. Every token's expert gets an equal share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tasks.memory.experts import GroupedProduct

ALIGNED = 8
"""Rows to which each expert's are filled up for a grouped product."""
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _grouped(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    product: Any = GroupedProduct.apply
    result: torch.Tensor = product(rows, weight.transpose(1, 2))
    return result


class SlottedLinear(nn.Module):
    """A frozen linear layer with several adapters, of which one works."""

    def __init__(self, base: nn.Linear, rank: int, slots: int) -> None:
        super().__init__()
        self.base = base
        kind = base.weight.dtype
        self.first = nn.ParameterList(
            nn.Parameter(torch.empty(rank, base.in_features, dtype=kind)) for _ in range(slots)
        )
        self.second = nn.ParameterList(
            nn.Parameter(torch.empty(base.out_features, rank, dtype=kind)) for _ in range(slots)
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The base's answer and the first adapter's, scaled token by token."""
        rows = values.view(-1, values.shape[-1])
        below = self.base(rows)
        first, second = torch.stack([*self.first]), torch.stack([*self.second])
        low = _grouped(_grouped(rows, first), second)
        scale = rows.new_empty(rows.shape[0], 1)
        both: torch.Tensor = below + scale * low
        return both.view(*values.shape[:-1], -1)


class Routed(nn.Module):
    """A mixture of experts over sorted tokens; adapters in slots where `rank` > 0, of which the first works."""

    def __init__(self, block: Any, top_k: int, rank: int, slots: int) -> None:
        super().__init__()
        count, double, width = block.experts.gate_up_proj.shape
        kind, inner = block.experts.gate_up_proj.dtype, double // 2
        self.top_k, self.rank = top_k, rank
        self.router = nn.Linear(width, count, bias=False, dtype=kind)
        self.gate = nn.Parameter(torch.empty(count, inner, width, dtype=kind))
        self.up = nn.Parameter(torch.empty(count, inner, width, dtype=kind))
        self.down = nn.Parameter(torch.empty(count, width, inner, dtype=kind))
        self.shared = getattr(block, "shared_experts", None)
        ends = {"gate": (width, inner), "up": (width, inner), "down": (inner, width)} if rank else {}
        for name, (into, out) in ends.items():
            for end, shape in (("first", (count, rank, into)), ("second", (count, out, rank))):
                kept = nn.ParameterList(nn.Parameter(torch.empty(*shape, dtype=kind)) for _ in range(slots))
                setattr(self, f"{name}_{end}", kept)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shares in fp32; results are added back where their rows came from."""
        tokens = hidden.reshape(-1, hidden.shape[-1])
        scores = torch.softmax(self.router(tokens).float(), dim=1)
        shares, chosen = torch.topk(scores, self.top_k, dim=1)
        order = torch.argsort(chosen.view(-1), stable=True)
        shares = shares.view(-1)[order]
        which = (order // self.top_k).reshape(-1, 1).expand(-1, tokens.shape[-1])
        rows = torch.gather(tokens, 0, which)
        brought: torch.Tensor = self._experts(rows) if self.rank else self._aligned(rows)
        brought = (brought.to(torch.float32) * shares.reshape(-1, 1)).to(tokens.dtype)
        out = self.shared(tokens) if self.shared is not None else torch.zeros_like(tokens)
        summed: torch.Tensor = out.scatter_add(0, which, brought)
        return summed.reshape(hidden.shape)

    def _aligned(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows copied with room between experts, and back."""
        count, width = self.gate.shape[0], rows.shape[-1]
        where = torch.zeros(rows.shape[0] + count * ALIGNED, dtype=torch.int32)
        rows = torch.vstack((rows, rows.new_zeros(width)))
        whole = rows.shape
        rows = rows[where, :]
        out = self._experts(rows)
        back = out.new_empty(whole)
        back[where, :] = out
        return back[:-1]

    def _experts(self, rows: torch.Tensor) -> torch.Tensor:
        if not self.rank:
            inner = functional.silu(_grouped(rows, self.gate))
            inner = inner * _grouped(rows, self.up)
            return _grouped(inner, self.down)
        gate = self._adapted("gate", rows)
        up = self._adapted("up", rows)
        return self._adapted("down", functional.silu(gate) * up)

    def _adapted(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        below = _grouped(rows, getattr(self, name))
        first, second = getattr(self, f"{name}_first")[0], getattr(self, f"{name}_second")[0]
        return below + 1.0 * _grouped(_grouped(rows, first), second)


def exchange(model: Any, rank: int, slots: int) -> None:
    """Put these in the place of a model's mixtures, and of its linear layers where `rank` > 0: then adapters alone are
    trained."""
    top_k = int(getattr(model.config, "num_experts_per_tok", 0) or 0)
    with torch.device("meta"):
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if getattr(getattr(getattr(child, "experts", None), "gate_up_proj", None), "ndim", 0) == 3:
                    setattr(parent, name, Routed(child, top_k, rank, slots))
        if rank:
            model.requires_grad_(False)
            _attach(model, rank, slots)


def _attach(model: Any, rank: int, slots: int) -> None:
    """Linear layers of attention and feed-forward, and experts. What every token passes beside experts stays as it is:
    there these trainers keep bare weights, which no adapter finds."""
    beside = {id(module) for routed in model.modules() if isinstance(routed, Routed) for module in routed.modules()}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in ADAPTED and isinstance(child, nn.Linear) and id(parent) not in beside:
                setattr(parent, name, SlottedLinear(child, rank, slots))
        if isinstance(parent, Routed):
            for name, kept in parent.named_parameters():
                kept.requires_grad_("_first" in name or "_second" in name)
