"""Tensor and pipeline parallel: where they are allowed, and one rank's account in closed form. Pure.

They come last: only for a method that no division of weights (ZeRO-3, FSDP) makes fit. The training worker of this
version does not run them; a plan with them says what cards a training would need, and is marked.

- tensor parallel (Megatron-LM, arXiv:1909.08053): matrices and vocabulary are divided among cards of one machine;
  hidden states between layers are whole on every card, and summed twice a layer in each direction.
- pipeline (1F1B, arXiv:2104.04473): consecutive layers on each machine; the first stage holds the activations of as
  many micro batches as there are stages; (stages - 1) / micro batches of the time is the bubble.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks.memory.account import Account, assemble
from tasks.memory.family import Family
from tasks.memory.host import frameworks
from tasks.planning.machine import Machine
from tasks.planning.plans import Configuration, LeftOut, Pipeline, Seconds
from tasks.planning.timing import LINK

MOST_ON_PCIE = 4
"""Cards that share a layer where the host bus is their link."""
BUBBLE = 0.2
"""Of a pipeline's time at most: with fewer micro batches than `fewest_micro_batches` a plan is not made."""
DIVIDED = ("weights", "gradients", "optimizer_states", "gathered")


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


def fewest_micro_batches(stages: int) -> int:
    """Of a step, so that the bubble stays within its share: (p - 1) / m <= BUBBLE."""
    return max(stages, -(-round((stages - 1) * 1000) // round(BUBBLE * 1000)))


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


def rank_account(
    whole: Account, c: Configuration, layers: int, layer_input_bytes: float, root_share: float, per_machine: int
) -> Account:
    """The fullest rank: `whole` is the account of one device, `root_share` what of its weights lies outside layers.

    On the host stand the `per_machine` ranks of one machine, and one copy of the weights for each of its replicas.
    """
    t, p = c.tensor_parallel, c.pipeline_stages
    kept = (1 - root_share) / p + root_share  # embedding or output layer stay on one stage
    inputs = layer_input_bytes * layers
    copies = max(0, per_machine // t - 1)
    weights = round(max(parts.get("weights", 0) for parts in whole.residents_by_phase.values()) * kept)
    by_phase = {}
    for phase, parts in whole.residents_by_phase.items():
        found = {name: round(size * kept / t) for name, size in parts.items() if name in DIVIDED}
        activations = parts.get("activations", 0)
        whole_on_each = min(activations, inputs)  # hidden states are not divided; 1F1B holds p times 1/p of the layers
        found["activations"] = round(whole_on_each + (activations - whole_on_each) / t)
        found["temporary"] = round(parts.get("temporary", 0) / t)
        found["communication"] = round(
            parts.get("communication", 0) * kept / t + (2 * layer_input_bytes if t > 1 else 0)
        )
        by_phase[phase] = {name: size for name, size in found.items() if size}
    return assemble(
        by_phase,
        framework_bytes=whole.framework_bytes,
        library_bytes=0,
        host_fixed_bytes=whole.host_peak_bytes + frameworks(per_machine) - frameworks(1) + copies * weights,
        disk_bytes=whole.disk_bytes,
        trainable_parameters=whole.trainable_parameters,
        total_parameters=whole.total_parameters,
        method="closed-form",
        micro_batch=whole.micro_batch,
        seq_len=whole.seq_len,
        notes=[*whole.notes, "tensor and pipeline parallel are in closed form and not checked against a measurement"],
    )


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
