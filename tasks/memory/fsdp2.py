"""What one rank holds under FSDP2 as accelerate sets it up, in closed form. Pure.

Units are the layers, the input embedding, and a tail of last norm and output layer (with tied embeddings the tail
holds the embedding). A unit is gathered into a buffer and copied out of it: in forward the buffer stays until the next
unit is copied out, in backward the next unit is gathered ahead. The tail stays gathered after forward, and so from an
evaluation on through the next forward pass. Gradients leave in a buffer that stays until the next unit's leave.
`tests/memory/test_fake_ranks.py` holds this against `sharded.py`, where torch and accelerate run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks.memory.ranks import BACKWARD, FullyShardedRank, Parts, Whole
from tasks.memory.settings import CUBLAS_WORKSPACE_BYTES, TraceSettings
from tasks.memory.timeline import Peak, Place

WORKSPACES = 2.0 * CUBLAS_WORKSPACE_BYTES
"""What cuBLAS keeps, as the trace counts it; every rank has it whole."""


class Fsdp2(FullyShardedRank):
    """`fully_shard`: shards in the type that is trained, gathered in the type that is computed with."""

    def __init__(self, whole: Whole, settings: TraceSettings) -> None:
        super().__init__(whole, settings)
        amp = settings.compute.startswith("amp")
        self.layer = float(whole.layer_weight_bytes)
        if amp and not whole.trains_all:
            self.layer -= whole.layer_gradient_bytes / 2  # adapters in fp32 are gathered in 16 bits
        self.embedding = float(min(whole.embedding_bytes, whole.root_weight_bytes))
        self.tail = whole.root_weight_bytes - self.embedding
        self.sent = whole.layer_gradient_bytes
        """Of a layer, in the buffer from which they leave."""

    @property
    def tied(self) -> bool:
        """Whether the tail holds the embedding, and so works first and last."""
        return not self.embedding

    def places(self, peaks: Mapping[Place, Peak]) -> dict[Place, Mapping[str, float]]:
        """Also the neighbours of the first and the last layer, which a shallow trace does not have: beside the last no
        layer's gradients have left yet, and the first has no layer to gather ahead."""
        found = super().places(peaks)
        layers = self.whole.layers
        ends = [peaks.get(Place("forward", "layer", index)) for index in (0, -1)]
        if layers < 4 or ends[0] is None or ends[1] is None:
            return found
        kept = [float(end.residents.get("activations", 0)) for end in ends if end]
        slope = (kept[1] - kept[0]) / (layers - 1)
        for phase in BACKWARD:
            last = found.get(Place(phase, "layer", -1))
            for index, before in ((-2, 1), (1, layers - 2)):
                place = Place(phase, "layer", index)
                if last is None or place in found:
                    continue
                found[place] = {
                    **last,
                    "activations": max(0.0, last.get("activations", 0) - before * slope),
                    "gradients": last.get("gradients", 0) + (0 if self.accumulates else before * self.sent),
                }
        return found

    def at(self, place: Place, parts: Mapping[str, float]) -> Parts:
        """Shards, what is gathered and sent, and the trace's activations."""
        whole, ranks, grow = self.whole, self.ranks, self.grow
        found: Parts = dict(parts)
        found["weights"] = whole.buffer_bytes + (0.0 if self.offloads_weights else self.shard_bytes)
        found["optimizer_states"] = 0.0 if self.offloads_states else whole.state_bytes * grow / ranks
        if place.phase == "optimizer":
            found["gradients"] = 0.0 if self.offloads_weights else whole.trainable_bytes * grow / ranks
            working = parts.get("temporary", 0.0)
            kept = min(working, WORKSPACES if self.settings.device == "cuda" else 0.0)
            return {**found, "temporary": kept + (0.0 if self.offloads_states else (working - kept) * grow / ranks)}
        reduced = 0.0
        if place.phase in BACKWARD:
            reduced, beside = self._backward(place, parts)
        else:
            beside = self._forward(place)
        if self.accumulates and place.phase != "evaluate":
            reduced = float(whole.trainable_bytes)
        shards = 0.0 if self.offloads_weights else reduced * grow / ranks
        found |= {name: size for name, size in beside.items() if name != "temporary"}
        found["temporary"] = parts.get("temporary", 0.0) + beside.get("temporary", 0.0)
        found["gradients"] = shards + beside.get("gradients", 0.0)
        return found

    def _forward(self, place: Place) -> Parts:
        """What is gathered, and the buffers it came in, while nothing is sent."""
        evaluates = place.phase == "evaluate"
        stays = self.tail if self.tied or not evaluates else 0.0
        if place.layer is not None:
            return {"gathered": self.layer + stays, "communication": self.layer}
        if place.part != "before":
            return {"gathered": self.tail, "communication": self.tail if evaluates and not self.tied else self.layer}
        if self.tied:
            return {"gathered": self.tail + self.layer, "communication": self.layer + (self.tail if evaluates else 0.0)}
        return {"gathered": self.embedding + stays, "communication": self.embedding}

    def _backward(self, place: Place, parts: Mapping[str, float]) -> tuple[float, Parts]:
        """Gradients that are divided already, in bytes of them whole, and what stands beside them."""
        whole, trains = self.whole, self.whole.trains_all
        if place.layer is None:
            return 0.0, {"gathered": self.tail, "gradients": 0.0 if self.accumulates else parts.get("gradients", 0.0)}
        done = self.done(place)
        tail = self.tail if trains and not self.tied else 0.0
        first = done == whole.layers - 1
        if first and trains and place.phase == "backward":
            return self._embedding(tail + whole.layers * self.sent)
        if self.accumulates:  # in the trace they are added and die at once; here a layer's live until they leave
            fresh = self.sent if place.phase == "backward" else 0.0
        else:
            fresh = max(0.0, parts.get("gradients", 0.0) - done * self.sent - tail)
        return tail + done * self.sent, {
            "gathered": self.layer + (self.tail if self.tied else 0.0),
            "communication": (self.sent if done else tail) + (self.embedding if first else self.layer),
            "gradients": fresh,
        }

    def _embedding(self, divided: float) -> tuple[float, Parts]:
        """The end of the backward pass: the embedding's gradient is whole, `divided` are all others."""
        if self.tied:
            beside = {"gathered": self.tail, "communication": self.sent}
            return divided, beside | ({} if self.accumulates else {"gradients": self.tail})
        e = self.embedding
        made = {"gathered": e, "communication": self.sent + e}
        share = e / self.ranks  # as it arrives, and once more in the type that is trained
        left = {"communication": 2 * e + share}
        widened = share * self.grow if self.accumulates and self.grow > 1 else 0.0
        extra = widened if self.accumulates else share * self.grow
        if sum(left.values()) + extra > sum(made.values()):
            made, divided = left | {"temporary": widened}, divided + e
        return divided, made | ({} if self.accumulates else {"gradients": e})
