"""Ranks that divide layers, in closed form: tensor ranks share each layer, pipeline stages the row of them. Pure.

A tensor rank runs the layers of a narrower model: with its share of heads and of the inner width, under norms, hidden
states and adapters' outer sides that are whole. So one device's trace of that narrower model, with as many layers as a
stage has, holds what the rank holds, but for

- the input embedding and the output layer, of which a rank has a share of the vocabulary; the gradient of the embedding
  and the logits are whole on every rank (transformers, `distributed/tensor_parallel.py`);
- the gathering of the logits: the rank's share, what arrives, and the same in order;
- in a pipeline what the other stages hold, the micro batches in flight, and the buffers of arrivals (`pipeline.py`).

`tests/memory/test_grid.py` holds this against `grid_trace.py`, where transformers and torch run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.memory.fsdp2 import WORKSPACES
from tasks.memory.ranks import BACKWARD, Parts, Whole
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Peak, Place

WIDTHS = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
"""Inner widths of feed-forward layers, as configurations name them."""
LOSS_BYTES = 4.0
"""Of a logit, in what the loss keeps of it: log-probabilities in fp32."""


@dataclass(frozen=True)
class StageOf:
    """One stage: `index` of `stages`, each with as many layers, and the micro batches of a step."""

    index: int
    stages: int
    layers: int
    micro_batches: int

    @property
    def first(self) -> bool:
        """Whether it holds the input embedding."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Whether it holds the last norm, the output layer and the loss."""
        return self.index == self.stages - 1

    @property
    def in_flight(self) -> int:
        """Micro batches that have gone forward before the first goes backward (1F1B, arXiv:2104.04473)."""
        return min(self.stages - self.index, self.micro_batches)

    @property
    def buffers(self) -> int:
        """Of the size of hidden states, in which activations and gradients arrive."""
        return self.micro_batches * ((not self.first) + (not self.last))


def stages_of(settings: TraceSettings) -> list[StageOf]:
    """The stages that differ: the first, the second, and the last. Those between hold what the second does, with fewer
    micro batches in flight."""
    count, layers = settings.pipeline_stages, int(settings.architecture["num_hidden_layers"])
    wanted = sorted({0, min(1, count - 1), count - 1})
    return [StageOf(index, count, layers // count, settings.gradient_accumulation) for index in wanted]


def of_one_device(settings: TraceSettings) -> TraceSettings:
    """The model that one device would train to do what a rank does: narrower by the tensor ranks, and of one stage."""
    ranks, found = settings.tensor_parallel, dict(settings.architecture)
    if ranks > 1:
        heads = int(found["num_attention_heads"])
        if not found.get("head_dim"):
            found["head_dim"] = int(found["hidden_size"]) // heads
        found["num_key_value_heads"] = int(found.get("num_key_value_heads") or heads) // ranks
        found["num_attention_heads"] = heads // ranks
        found |= {name: -(-int(found[name]) // ranks) for name in WIDTHS if found.get(name)}
    found["num_hidden_layers"] = int(found["num_hidden_layers"]) // settings.pipeline_stages
    undivided = {"tensor_parallel": 1, "pipeline_stages": 1, "sharding": "none", "gpus": 1, "nodes": 1}
    return settings.model_copy(update={"architecture": found, **undivided})


class GridRank:
    """A rank of a stage, from the trace of `of_one_device`: `at` turns its places into those of the rank."""

    def __init__(self, whole: Whole, settings: TraceSettings, stage: StageOf) -> None:
        self.whole, self.settings, self.stage = whole, settings, stage
        self.ranks = settings.tensor_parallel
        self.tied = not whole.embedding_bytes
        outside = float(whole.root_weight_bytes)
        self.embedding = (outside if self.tied else float(whole.embedding_bytes)) if stage.first else 0.0
        self.head = outside - whole.embedding_bytes if stage.last and not (self.tied and stage.first) else 0.0
        self.layers = float(whole.layers * whole.layer_weight_bytes)
        together = stage.first and stage.last and self.tied  # one weight, whose gradient is divided as it is
        self.outside_gradients = self.embedding / (self.ranks if together else 1) + self.head / self.ranks
        in_layers = whole.layers * whole.layer_gradient_bytes
        self.trainable = in_layers + ((self.embedding + self.head) / self.ranks if whole.trains_all else 0.0)
        self.gradients = in_layers + (self.outside_gradients if whole.trains_all else 0.0)
        self.share = self.trainable / max(1, whole.trainable_bytes)
        tokens = settings.micro_batch * settings.seq_len
        self.hidden = tokens * whole.hidden_size * (4.0 if settings.weights == "fp32" else 2.0)
        self.logits = tokens * float(settings.architecture["vocab_size"])
        self.logit_bytes = 4.0 if settings.compute == "fp32" else 2.0
        self.workspaces = WORKSPACES if settings.device == "cuda" else 0.0
        self.casts = settings.compute.startswith("amp") and settings.weights == "fp32"
        """Whether 16-bit copies of weights are made, half as large."""

    @property
    def weights(self) -> float:
        """Of this rank, buffers included."""
        return self.whole.buffer_bytes + self.layers + (self.embedding + self.head) / self.ranks

    def at(self, peaks: Mapping[Place, Peak]) -> dict[Place, Parts]:
        """Bytes by resident at every place that this stage comes to."""
        found = {}
        for place, peak in peaks.items():
            if place.phase not in ("build", "end") and self._comes_to(place):
                found[place] = self._held(place, {n: float(size) for n, size in peak.residents.items()}, peaks)
        return found

    def _comes_to(self, place: Place) -> bool:
        if place.layer is not None or place.phase == "optimizer":
            return self.stage.first or place.layer != 0 or self.whole.layers == 1
        return self.stage.first if place.part == "before" else self.stage.last

    def _held(self, place: Place, parts: Parts, peaks: Mapping[Place, Peak]) -> Parts:
        paged = self.settings.optimizer.startswith("paged")
        found = {**parts, "weights": self.weights}
        found["optimizer_states"] = 0.0 if paged else self.whole.state_bytes * self.share
        found["gradients"] = self._gradients(place, parts.get("gradients", 0.0))
        found["temporary"] = self._temporary(place, parts.get("temporary", 0.0))
        if self.casts and place.layer is None and place.phase in ("forward", "loss", "backward"):
            found["activations"] = parts.get("activations", 0.0) - self.head * (1 - 1 / self.ranks) / 2
        if self.ranks > 1 and place.part == "after" and place.phase in ("forward", "evaluate"):
            found |= self._gathered(place, found)
        if self.settings.sharding == "ddp":
            found["communication"] = self.gradients  # the buckets of replicas
        if self.stage.stages > 1:
            found |= self._of_pipeline(place, found, peaks)
        return found

    def _gradients(self, place: Place, there: float) -> float:
        if place.phase == "optimizer":
            return self.gradients
        if self.settings.gradient_accumulation > 1:
            filling = self.stage.stages > 1 and self.stage.micro_batches <= self.stage.in_flight
            none = place.phase == "evaluate" or (filling and place.phase in ("forward", "loss"))
            return 0.0 if none else self.gradients
        left = self.head * (1 - 1 / self.ranks) if self.whole.trains_all and not self.tied else 0.0
        return max(0.0, there - left)

    def _temporary(self, place: Place, there: float) -> float:
        working = max(0.0, there - self.workspaces)
        if place.phase == "optimizer":
            return self.workspaces + working * self.share
        if self.casts and (self.ranks > 1 or (self.stage.stages > 1 and place.layer is None)):
            # on one device autocast keeps its copies until the loss is there
            if place.phase == "evaluate":
                return self.workspaces + max(0.0, working - (self.layers + self.head) / 2)
            if place.phase == "loss" and self.stage.stages > 1 and self.settings.activation_checkpointing:
                return there - self.layers / 2
        if self.tied and self.whole.trains_all and place.layer is not None and place.phase in BACKWARD:
            whole = float(self.whole.root_weight_bytes)  # the output layer's gradient waits for the embedding's
            return there - whole * (1 - 1 / self.ranks if self.stage.stages == 1 else 1)
        if self.stage.stages > 1 and self.settings.compute.startswith("amp") and place == Place("forward", "after"):
            return self.workspaces + max(0.0, working - LOSS_BYTES * self.logits)  # accelerate returns logits in fp32
        return there

    def _gathered(self, place: Place, parts: Parts) -> Parts:
        """The moment at which the logits have come together, where it takes more than what follows."""
        logits, hidden = self.logits, 0.0 if self.whole.trains_all else self.hidden
        if place.phase == "evaluate":
            share = self.settings.evaluation_batch / self.settings.micro_batch
            logits, hidden = logits * share, self.hidden * share
        beside = max(0.0, parts.get("activations", 0.0) - (LOSS_BYTES * logits if place.phase == "forward" else 0.0))
        copies = 2 + 1 / self.ranks + (self.stage.stages > 1 and place.phase == "forward")
        gathering = self.workspaces + hidden + copies * logits * self.logit_bytes
        if beside + gathering <= parts.get("activations", 0.0) + parts["temporary"]:
            return {}
        return {"activations": beside, "temporary": gathering}

    def _of_pipeline(self, place: Place, parts: Parts, peaks: Mapping[Place, Peak]) -> Parts:
        """Micro batches in flight, buffers, the gradient sent last, and the logits that the last stage holds on to."""
        found = {"communication": parts.get("communication", 0.0) + self.stage.buffers * self.hidden}
        if place.phase not in ("forward", "loss", *BACKWARD):
            return found
        last = peaks.get(Place("forward", "layer", -1)) or peaks.get(Place("forward", "layer", 0))
        sent = 0.0 if self.stage.first else self.hidden
        received = (
            sent if self.settings.activation_checkpointing else 0.0
        )  # lies in a buffer, and is what a layer keeps
        kept = (last.residents.get("activations", 0) if last else 0) + self.hidden - received
        own = parts.get("activations", 0.0) - received
        found["activations"] = max(0.0, own) + (self.stage.in_flight - 1) * kept
        holds = self.stage.last and (place.layer is not None or place.phase in BACKWARD)
        found["temporary"] = parts["temporary"] + sent + (self.logits * self.logit_bytes if holds else 0.0)
        return found
