"""Tensor and pipeline parallel: where they are allowed, and the account of the fullest rank in closed form. Pure.

They come last: only for a method that no division of weights (ZeRO-3, FSDP) makes fit. The training worker of this
version does not run them; a plan with them says what cards a training would need, and is marked.

- tensor parallel as transformers has it (the matrices divided as in Megatron-LM, arXiv:1909.08053): matrices and
  vocabulary are divided among cards of one machine; hidden states between layers, summed twice a layer in each
  direction, and the logits are whole on every card.
- pipeline as torch has it (1F1B, arXiv:2104.04473): consecutive layers on each machine; the first stage holds the
  activations of as many micro batches as there are stages; (stages - 1) / micro batches of the time is the bubble.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks.memory.account import Account
from tasks.memory.dividing import fewest_micro_batches
from tasks.memory.family import Family
from tasks.memory.grid import stages_of
from tasks.memory.grid_sums import fullest, rank_trace
from tasks.memory.moments import GRANULE
from tasks.memory.narrowing import narrower
from tasks.memory.settings import TraceSettings
from tasks.planning.machine import Machine
from tasks.planning.plans import Configuration, LeftOut, Pipeline, Seconds
from tasks.planning.timing import LINK

MOST_ON_PCIE = 4
"""Cards that share a layer where the host bus is their link."""
SAID = (
    "what tensor ranks divide within a layer is estimated from one device; gatewright estimate --tensor-parallel "
    "--pipeline-stages traces a rank"
)
WHOLE = "every stage is counted with all layers: a model of so few is recorded whole"


def tensor_degrees(architecture: dict[str, Any], machine: Machine) -> list[int]:
    """Cards that may share a layer: within a machine, dividing heads, key heads and vocabulary; few on PCIe."""
    most = machine.device.count if machine.nvlink else min(machine.device.count, MOST_ON_PCIE)
    sizes = divided_sizes(architecture)
    if sizes is None:
        return []
    return [t for t in range(2, most + 1) if machine.device.count % t == 0 and all(size % t == 0 for size in sizes)]


def divided_sizes(architecture: dict[str, Any]) -> tuple[int, int, int] | None:
    """Heads, key heads and vocabulary, under the names that families of models give them; null where one is not said.

    `multi_query` models (GPT-BigCode, the first Falcon) share one key head among all heads.
    """
    heads = architecture.get("num_attention_heads") or architecture.get("n_head")
    keys = architecture.get("num_key_value_heads") or architecture.get("num_kv_heads")
    if architecture.get("multi_query") and not architecture.get("new_decoder_architecture"):
        keys = 1
    vocabulary = architecture.get("vocab_size")
    if not isinstance(heads, int) or not isinstance(vocabulary, int):
        return None
    return heads, keys if isinstance(keys, int) else heads, vocabulary


def pipeline(c: Configuration) -> Pipeline | None:
    """What the row of stages of a configuration costs; null where it has none."""
    stages = c.pipeline_stages
    if stages == 1:
        return None
    return Pipeline(bubble=bubble(stages, c.gradient_accumulation), fewest_micro_batches=fewest_micro_batches(stages))


def left_out(architecture: dict[str, Any], machine: Machine, effective_batch: int) -> list[LeftOut]:
    """Why no layer can be divided here, and why no pipeline over all machines can be kept filled: a row of stages for
    each card of a machine, each with its share of the effective batch."""
    found, sizes = list[LeftOut](), divided_sizes(architecture)
    if machine.device.count > 1 and not tensor_degrees(architecture, machine):
        names = ("heads", "key_heads", "vocabulary")
        found.append(LeftOut(reason="heads", values=dict(zip(names, sizes or (0, 0, 0), strict=True))))
    fewest, rows = fewest_micro_batches(machine.nodes), machine.device.count
    if machine.nodes > 1 and effective_batch // rows < fewest:
        values = {"stages": machine.nodes, "fewest": fewest, "rows": rows, "needed": fewest * rows}
        found.append(LeftOut(reason="pipeline_short", values=values))
    return found


def bubble(stages: int, micro_batches: int) -> float:
    """The time that stages wait, as a share of the time that they work."""
    return (stages - 1) / micro_batches


def variants(
    candidate: Configuration, architecture: dict[str, Any], machine: Machine, effective_batch: int
) -> Iterator[Configuration]:
    """A single-card candidate over tensor ranks, over pipeline stages, over both; the effective batch is kept."""
    per_node, nodes = machine.device.count, machine.nodes
    degrees = tensor_degrees(architecture, machine)
    grids = [(t, 1) for t in degrees] + ([(1, nodes)] if nodes > 1 else [])
    grids += [(t, nodes) for t in degrees if nodes > 1]
    for tensor, stages in grids:
        replicas = per_node // tensor * (1 if stages > 1 else nodes)
        share, rest = divmod(effective_batch, replicas * candidate.micro_batch)
        if rest or not share or (stages > 1 and share < fewest_micro_batches(stages)):
            continue
        yield candidate.model_copy(
            update={
                "tensor_parallel": tensor,
                "pipeline_stages": stages,
                "data_ranks": replicas,
                "gradient_accumulation": share,
                "sharding": "ddp" if replicas > 1 else "none",
            }
        )


def rank_account(family: Family, c: Configuration, settings: TraceSettings, nodes: int) -> Account:
    """The fullest rank of a configuration: `settings` are those of it on one device, `family` that of this device.

    Stages are exact where the family was recorded in depth; what tensor ranks divide within a layer is estimated.
    """
    layers = -(-family.layers // c.pipeline_stages)
    sizes = {"num_hidden_layers": layers * c.pipeline_stages, "vocab_size": settings.architecture.get("vocab_size", 0)}
    asked = settings.model_copy(
        update={
            "architecture": {**settings.architecture, **sizes},
            "seq_len": -(-settings.seq_len // GRANULE) * GRANULE,
            "gpus": c.cards,
            "nodes": nodes,
            "sharding": c.sharding,
            "tensor_parallel": c.tensor_parallel,
            "pipeline_stages": c.pipeline_stages,
        }
    )
    one_device = narrower(family.trace(settings, layers), asked, family.hidden_size)
    found = [(stage, rank_trace(one_device, family.hidden_size, asked, stage)) for stage in stages_of(asked)]
    whole = family.trace(settings)
    said = [SAID, WHOLE] if c.pipeline_stages > 1 and len(family.depths) == 1 else [SAID]
    account = fullest(
        asked, found, "closed-form", parameters=whole.total_parameters, trainable=whole.trainable_parameters, said=said
    )
    return account.model_copy(update={"seq_len": c.seq_len})


def slowed(alone: Seconds, c: Configuration, family: Family, machine: Machine) -> Seconds:
    """The seconds of a step on one device, divided among the ranks; the sums of tensor ranks and the bubble added."""
    per_input = family.layer_input_bytes_per_token * c.micro_batch * c.seq_len
    rate = (machine.link_gb_s or 0.0) * 1e9 / (1.0 if machine.nvlink else 2.0)
    sums = c.gradient_accumulation * sent_bytes(c, family.layers, per_input) / rate / c.pipeline_stages if rate else 0.0
    wait = 1 + bubble(c.pipeline_stages, c.gradient_accumulation)
    ranks = c.tensor_parallel * c.pipeline_stages
    low, expected, high = (
        (one / ranks + sums / share) * wait
        for one, share in zip((alone.low, alone.expected, alone.high), LINK[::-1], strict=True)
    )
    parts = {name: part / ranks for name, part in alone.parts.items()}
    parts["link"] = parts.get("link", 0.0) + sums / LINK[1]
    return Seconds(expected=expected, low=low, high=high, parts=parts, bound=max(parts, key=lambda n: parts[n]))


def sent_bytes(c: Configuration, layers: int, layer_input_bytes: float) -> float:
    """What a micro batch sends: two ring sums a layer forward, two backward, two more where layers are run again."""
    t = c.tensor_parallel
    passes = 6 if c.activation_checkpointing else 4
    return passes * layers * 2 * (t - 1) / t * layer_input_bytes
