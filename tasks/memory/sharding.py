"""What one rank of several holds: the trace of one device with weights, gradients and states divided. Pure.

Activations come from the trace. What is gathered, reduced and kept beside them is closed form, by scheme:

- `ddp`: everything whole, and gradients once more in the buckets that are reduced.
- `zero1`, `zero2`, `zero3` (DeepSpeed): optimizer states with an fp32 copy of 16-bit weights divided, then gradients,
  then weights. Buckets as transformers sets them: `hidden_size` squared values, 0.9 of it prefetched; the rest as
  DeepSpeed sets it.
- `fsdp` of 2024: every layer is a unit, what lies outside of layers one more that stays gathered from forward to
  backward. One layer is gathered at a time under re-entrant checkpointing, and with frozen weights hooks keep the
  input and the gradient of every checkpointed layer until backward ends. Today's is in `fsdp2.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks.memory.fsdp2 import Fsdp2
from tasks.memory.ranks import BACKWARD, FullyShardedRank, Parts, Rank, Whole
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Place


def rank_of(whole: Whole, settings: TraceSettings) -> Rank:
    """The scheme of a configuration."""
    if settings.sharding == "fsdp":
        return Fsdp(whole, settings) if settings.generation.reentrant else Fsdp2(whole, settings)
    if settings.sharding in ("zero1", "zero2", "zero3"):
        return Zero(whole, settings)
    return Ddp(whole, settings)


class Ddp(Rank):
    """Replicas; PyTorch's buckets hold a second copy of the gradients."""

    def at(self, place: Place, parts: Mapping[str, float]) -> Parts:
        """As on one device, and the buckets."""
        return {**parts, "communication": float(self.whole.trainable_bytes)}


class Fsdp(FullyShardedRank):
    """FSDP1: layers are gathered when they work."""

    def at(self, place: Place, parts: Mapping[str, float]) -> Parts:
        """Shards, what is gathered, and the trace's activations."""
        whole, ranks, grow = self.whole, self.ranks, self.grow
        layer_gradients = whole.layer_gradient_bytes
        found: Parts = dict(parts)
        found["weights"] = whole.buffer_bytes + (0.0 if self.offloads_weights else self.shard_bytes)
        found["optimizer_states"] = 0.0 if self.offloads_states else whole.state_bytes * grow / ranks
        if place.phase == "optimizer":
            found["gradients"] = 0.0 if self.offloads_weights else whole.trainable_bytes * grow / ranks
            working = 0.0 if self.offloads_states else parts.get("temporary", 0.0) * grow / ranks
            return {**found, "temporary": working, "gathered": 0.0}
        done = self.done(place)
        reduced = done * layer_gradients * grow / ranks
        fresh = max(0.0, parts.get("gradients", 0.0) - done * layer_gradients)
        if self.accumulates and place.phase != "evaluate":
            # shards of earlier micro batches; what is fresh lies among the temporaries, what is outside of layers waits
            reduced = whole.trainable_bytes * grow / ranks
            fresh = float(whole.root_weight_bytes) if whole.trains_all and place.phase in BACKWARD else 0.0
        found["gradients"] = fresh + (0.0 if self.offloads_weights else reduced)
        layer = float(whole.layer_weight_bytes)
        if not whole.trains_all:
            layer -= layer_gradients  # it wrapped adapters by themselves
        found["gathered"] = whole.root_weight_bytes + (layer if place.layer is not None else 0.0)
        if not whole.trains_all and self.settings.activation_checkpointing and done:
            found["activations"] = parts.get("activations", 0.0) + (2 * done - 1) * whole.layer_input_bytes
        return found


class Zero(Rank):
    """DeepSpeed's stages: 16-bit weights and gradients, fp32 copy and two states divided from stage 1 on.

    Stage 3 keeps a buffer for its share of the gradients from the start, and goes through the optimizer's step by
    sub-groups; stages 1 and 2 take their whole share at once (`step` in `zero/stage3.py` and `stage_1_and_2.py`).
    """

    PREFETCHED = 0.9
    """Of a bucket, stage 3 gathers ahead (`stage3_prefetch_bucket_size` as transformers sets it)."""
    MASTER = 4.0
    """Bytes a trained value of the fp32 copy that is divided with the states; its gradient has as many."""
    SUB_GROUP = 1e9
    """Values of its share that a rank of stage 3 steps at a time (`sub_group_size` by default). The parameter that
    fills a group belongs to it: its share, a hundredth of a group or less, is not counted."""
    REUSED = 1e9
    """Values that may be gathered between two uses of a layer for it to stay (`stage3_max_reuse_distance`)."""

    def __init__(self, whole: Whole, settings: TraceSettings) -> None:
        super().__init__(whole, settings)
        self.stage = int(settings.sharding[-1])
        self.bucket = 2.0 * whole.hidden_size**2
        values = max(1, whole.trainable_parameters)
        # states are those of the fp32 copy, except where the optimizer packs them
        self.grow = 4.0 * values / max(1, whole.trainable_bytes)
        states = 1.0 if settings.optimizer.endswith("8bit") else self.grow
        self.partitioned = self.MASTER + whole.state_bytes / values * states
        self.shared_bytes = whole.trainable_bytes / self.ranks
        self.kept_layers = self._kept_layers()

    def at(self, place: Place, parts: Mapping[str, float]) -> Parts:
        """By stage."""
        whole, ranks, stage = self.whole, self.ranks, self.stage
        found: Parts = dict(parts)
        divided = 0.0 if self.offloads_weights else whole.weight_bytes / ranks
        found["weights"] = whole.buffer_bytes + (divided if stage == 3 else whole.weight_bytes)
        found["optimizer_states"] = (
            0.0 if self.offloads_states else self.partitioned * whole.trainable_parameters / ranks
        )
        if place.phase == "optimizer":
            return {**found, **self._step(parts.get("temporary", 0.0))}
        if stage == 3 or (self.accumulates and stage > 1 and place.phase != "evaluate"):
            found["gradients"] = 0.0 if self.offloads_states else self.shared_bytes
        if place.phase in BACKWARD:
            done = self.done(place)
            layer_gradients = whole.layer_gradient_bytes
            shared = parts.get("gradients", 0.0) if stage == 1 else done * layer_gradients / ranks
            fresh = 0.0 if stage == 1 else max(0.0, parts.get("gradients", 0.0) - done * layer_gradients)
            if self.accumulates and stage > 1:
                shared, fresh = self.shared_bytes, 0.0
            elif stage == 3:
                shared = self.shared_bytes
            found["gradients"] = (0.0 if self.offloads_states and stage > 1 else shared) + fresh
            found["communication"] = 2 * self.bucket
        if stage == 3:
            inside = self._gathered_layers(place) * whole.layer_weight_bytes
            found["gathered"] = inside + self.PREFETCHED * self.bucket
            if place.layer is None:
                found["gathered"] += whole.root_weight_bytes
        return found

    def _step(self, working_bytes: float) -> Parts:
        """Gradients and what works beside them in the optimizer's step; `working_bytes` is the trace's, of all values.

        A 16-bit share is flattened and copied to fp32. Stages 1 and 2 drop both 16-bit copies when the fp32 one
        stands; stage 3 keeps its buffer, and flattens and steps group by group.
        """
        if self.offloads_states:
            return {"gradients": 0.0, "temporary": 0.0}
        values = self.whole.trainable_parameters / self.ranks
        working = working_bytes * self.grow / max(1, self.whole.trainable_parameters)  # bytes a value of the fp32 copy
        if self.stage < 3:
            return {"gradients": self.MASTER * values, "temporary": max(self.MASTER, working) * values}
        group = min(values, self.SUB_GROUP)
        flat = self.shared_bytes / max(1.0, values)
        widened = flat if flat < self.MASTER else 0.0
        return {
            "gradients": self.shared_bytes + self.MASTER * group,
            "temporary": max(widened, working) * group,
        }

    def _kept_layers(self) -> int:
        """How many of the last layers stay gathered from forward to backward.

        Between the two uses of a layer lie those after it, forward and backward, twice backward where they are
        recomputed, and the output layer both ways.
        """
        if self.stage < 3 or self.whole.layer_weight_bytes <= 0 or self.settings.method == "inference":
            return 0
        packed = self.settings.quantised  # counted as they are stored: a byte each
        value_bytes = 1.0 if packed else self.whole.weight_bytes / max(1, self.whole.total_parameters)
        layer = self.whole.layer_weight_bytes / value_bytes
        head = self.whole.root_weight_bytes / value_bytes / 2  # the output layer; the embedding is as large
        times = 3 if self.settings.activation_checkpointing else 2
        room = (self.REUSED - 2 * head) / (times * layer)
        return max(0, min(self.whole.layers, int(room) + 1)) if room >= 0 else 0

    def _gathered_layers(self, place: Place) -> int:
        """Layers whose weights are whole at a place: the one at work, and those that stay until backward."""
        if place.layer is None:
            return self.kept_layers if place.phase == "loss" else 0
        index = place.layer if place.layer >= 0 else self.whole.layers + place.layer
        behind = self.whole.layers - 1 - index
        kept = self.kept_layers if place.phase in ("forward", *BACKWARD) else 0
        return max(1, kept - behind)

    def host_bytes(self) -> float:
        """The offloaded share with its gradients in fp32 and a 16-bit buffer, and the weights of stage 3."""
        if not self.offloads_states:
            return 0.0
        partition = (self.partitioned + self.MASTER) * self.whole.trainable_parameters / self.ranks + self.shared_bytes
        return partition + (self.whole.weight_bytes / self.ranks if self.offloads_weights else 0.0)
