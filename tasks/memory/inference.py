"""One prompt and one more token of the real model code on fake tensors: weights, cache of keys and values, working
memory. The prompt is as long as the cache may become, which bounds every shorter one."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.memory import model as models
from tasks.memory.kernels import gpu_kernels
from tasks.memory.places import watch_layers
from tasks.memory.settings import ROUNDING, TraceSettings
from tasks.memory.sizes import bytes_of, parameters_of
from tasks.memory.timeline import Peak, peaks
from tasks.memory.traced import Trace
from tasks.memory.tracker import StorageTracker

CACHE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of one cached value by type; scales of quantised caches are not counted."""


def trace_inference(settings: TraceSettings, depth: int | None = None) -> Trace:
    """Peaks of prefill and of decoding at the full length. Only the last position's logits are made."""
    model = models.build(settings, depth)
    model.config.use_cache = True
    model.eval()
    layers = models.decoder_layers(model, models.configuration(settings, depth).num_hidden_layers)
    with FakeTensorMode(allow_non_fake_inputs=True):
        models.materialise(model)
        tracker = StorageTracker()
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.see(tensor, "weights")
        watch_layers(layers, tracker)
        with tracker, gpu_kernels(model, settings.generation), torch.no_grad():
            tracker.at("prefill", "before")
            ids = torch.zeros(settings.micro_batch, settings.seq_len, dtype=torch.long)
            held = model(input_ids=ids, use_cache=True, logits_to_keep=1)["past_key_values"]
            _count_cache(held, tracker)
            tracker.at("decode", "before")
            del ids
            answer = model(input_ids=torch.zeros(settings.micro_batch, 1, dtype=torch.long), past_key_values=held)
            _count_cache(answer["past_key_values"], tracker)
            tracker.at("end", "model")
            del answer, held
    share = CACHE_BYTES[settings.kv_dtype or _kind(model)] / CACHE_BYTES[_kind(model)]
    return Trace(
        peaks={place: _with_cache(peak, share) for place, peak in peaks(tracker.timeline, ROUNDING["cuda"]).items()},
        trainable_parameters=0,
        total_parameters=parameters_of(model),
        weight_bytes=bytes_of([*model.parameters(), *model.buffers()]),
        trainable_bytes=0,
        state_bytes=0,
        paged_bytes=0,
    )


def _kind(model: Any) -> str:
    return {torch.float32: "fp32", torch.float16: "fp16"}.get(model.dtype, "bf16")


def _count_cache(held: Any, tracker: StorageTracker) -> None:
    """Name what the cache holds; recurrent layers keep states of other shapes, which count the same."""
    for layer in getattr(held, "layers", []):
        for value in vars(layer).values():
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, torch.Tensor) and tensor.ndim > 1:
                    tracker.see(tensor, "kv_cache")


def _with_cache(peak: Peak, share: float) -> Peak:
    """The cache in another type than the model's."""
    residents = {**peak.residents}
    if "kv_cache" in residents:
        residents["kv_cache"] = round(residents["kv_cache"] * share)
    return Peak(sum(residents.values()), residents)
