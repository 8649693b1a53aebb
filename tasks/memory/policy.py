"""One rank under a trainer of its own (`generations.Own`): two steps of forward and backward passes on fake tensors.

Such a trainer shards by layers with `fully_shard`, keeps fp32 shards, computes in bf16 and reduces in fp32, on one GPU
as on several. It asks for compiled layers, but recomputed ones run as they are written: `torch.compile` cannot trace a
branch on data in their attention, and what `checkpoint` then calls is not compiled by itself. Its adapters lie in slots
that all get gradients; where there are several, optimizers belong to runs, which a trainer alone does not have, so that
nothing steps and gradients stay. It runs no evaluation.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from warnings import catch_warnings, simplefilter

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from tasks.memory import caching, experts, kernels, optimizers, own_layers, step
from tasks.memory import model as models
from tasks.memory.own_losses import OwnLoss
from tasks.memory.places import watch_layers
from tasks.memory.settings import ROUNDING, TraceSettings
from tasks.memory.sharded import Shards, ShardTracker, followed, group_of
from tasks.memory.sizes import bytes_of, parameters_of
from tasks.memory.timeline import outliving, peaks
from tasks.memory.traced import Trace

STEPS = 2
"""The first, of one micro batch, makes the optimizer's states where activations have left room; the second counts."""


def trace_own(settings: TraceSettings, depth: int | None = None) -> Trace:
    """As `trace_sharded`, and how much the caching allocator leaves between blocks: that is not linear in depth."""
    with step.one_sequence_a_row(), experts.grouped_products(), group_of(settings.gpus) as mesh, catch_warnings():
        simplefilter("ignore")  # torch's advice for people who write such trainers
        return _trace(settings, depth, mesh)


def _trace(settings: TraceSettings, depth: int | None, mesh: Any) -> Trace:
    own = settings.generation.own
    assert own is not None
    model = models.build(settings, depth)
    own_layers.exchange(model, settings.rank if settings.method != "full" else 0, own.adapter_slots)
    tracker = ShardTracker()
    with FakeTensorMode(allow_non_fake_inputs=True), followed(tracker):
        models.materialise(model)
        layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
        layer_weight_bytes = max((bytes_of([*w.parameters()]) for w in layers), default=0)
        layers = _prepare(model, layers, settings, mesh)
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        entered = watch_layers(layers, tracker)
        trainable = [p for p in model.parameters() if p.requires_grad]
        shards = Shards(trainable)
        optimizer = optimizers.build(settings, shards)
        loss = OwnLoss(own, model.get_output_embeddings(), tracker.release)
        loss.defer()
        model.loss_function = loss
        model.train()
        with tracker, kernels.gpu_kernels(model, settings.generation):
            workspaces = step.workspaces(tracker, settings)
            for number in range(STEPS):
                for _ in range(settings.gradient_accumulation if number else 1):
                    _micro_batch(model, tracker, settings)
                if settings.method == "full" or own.adapter_slots == 1:
                    _optimize(shards, optimizer, tracker, settings)
            tracker.at("end", "model")
            del workspaces
    return _answer(tracker, model, trainable, shards, optimizer, settings, entered, layers, layer_weight_bytes)


def _prepare(model: Any, layers: list[nn.Module], settings: TraceSettings, mesh: Any) -> list[nn.Module]:
    """Checkpoints around layers, then units: layers; where the output layer is not tied, the input embedding, and the
    output layer with the last norm, which stay gathered from forward to backward; and what is left."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if settings.activation_checkpointing:
        wrapping: Any = checkpoint_wrapper
        layers = [wrapping(layer, preserve_rng_state=False) for layer in layers]
        model.model.layers = nn.ModuleList(layers)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    shard: Any = fully_shard
    for layer in layers:
        shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    if not model.config.tie_word_embeddings:
        shard(model.model.embed_tokens, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
        shard([model.lm_head, model.model.norm], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    return layers


def _micro_batch(model: nn.Module, tracker: ShardTracker, settings: TraceSettings) -> None:
    tracker.at("forward", "before")
    ids = torch.zeros(settings.micro_batch, settings.seq_len, dtype=torch.long)
    keeping = saved_tensors_hooks(_to_host, _from_host) if settings.offload_activations else nullcontext()
    with keeping:
        loss = model(input_ids=ids, labels=torch.zeros_like(ids), position_ids=torch.zeros_like(ids))["loss"]
    tracker.at("backward", "after")
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            tracker.see(parameter.grad, "gradients")
    tracker.at("end", "model")


LEAST = 1024
"""Smaller tensors stay where they are (torchtune's `OffloadActivations`)."""


def _to_host(kept: torch.Tensor) -> Any:
    """What the backward pass needs to make the tensor again; weights stay."""
    if isinstance(kept, nn.Parameter) or kept.nbytes < LEAST:
        return kept
    return kept.shape, kept.dtype


def _from_host(kept: Any) -> torch.Tensor:
    return kept if isinstance(kept, torch.Tensor) else torch.empty(kept[0], dtype=kept[1])


def _optimize(shards: Shards, optimizer: torch.optim.Optimizer, tracker: ShardTracker, settings: TraceSettings) -> None:
    shards.take(tracker)
    step.clip_and_step(optimizer, shards.values, tracker, settings)
    for state in optimizers.states(optimizer):
        tracker.see(state, "optimizer_states")
    shards.clear()


def _answer(
    tracker: ShardTracker,
    model: nn.Module,
    trainable: list[nn.Parameter],
    shards: Shards,
    optimizer: torch.optim.Optimizer,
    settings: TraceSettings,
    entered: list[int],
    layers: list[nn.Module],
    layer_weight_bytes: int,
) -> Trace:
    timeline = tracker.timeline
    for number in outliving(timeline, "forward+loss", "backward"):
        timeline.kinds.setdefault(number, "activations")
    states = bytes_of(optimizers.states(optimizer))
    values = sum(v.numel() for v in shards.values)
    streams = caching.of_streams(timeline, ROUNDING["cuda"])
    highest = sum(max(places.values()) for places in streams.values())
    return Trace(
        peaks=peaks(timeline, ROUNDING["cuda"]),
        trainable_parameters=sum(p.numel() for p in trainable),
        total_parameters=parameters_of(model),
        weight_bytes=bytes_of([*model.parameters(), *model.buffers()]),
        trainable_bytes=bytes_of(trainable),
        state_bytes=round(states * sum(p.numel() for p in trainable) / max(1, values)),
        paged_bytes=0,
        buffer_bytes=bytes_of([*model.buffers()]),
        layers=len(layers),
        layer_weight_bytes=layer_weight_bytes,
        layer_input_bytes=max(entered, default=0),
        of_one_rank=True,
        streams=streams,
        gaps_bytes=sum(caching.reserved(timeline).values()) - highest,
    )
