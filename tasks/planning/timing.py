"""Seconds of a step and hours of a run, from counted work and stated rates. Pure.

Operations of matrix products and bytes written come from the recorded step, so that adapters, recomputation, 4-bit
unpacking and the loss are in them as they are; attention kernels are counted by their formula. A card reaches a share
of its rates: `COMPUTE` and `MEMORY` are (low, expected, high); docs/planning.md says what they were checked against.
"""

from __future__ import annotations

import math

from tasks.memory.account import Account
from tasks.memory.family import Family
from tasks.memory.moments import Polynomial, value
from tasks.planning.candidates import SHARDS_WEIGHTS
from tasks.planning.machine import CPU_MEMORY_GB_S, CPU_TFLOPS, Machine
from tasks.planning.plans import Configuration, Duration, Seconds
from tasks.planning.workload import Sums, Workload

Three = tuple[float, float, float]

COMPUTE: Three = (0.55, 0.70, 0.85)
"""Of the dense 16-bit rate, in large matrix products."""
MEMORY: Three = (0.60, 0.75, 0.90)
"""Of a card's memory bandwidth, in element-wise kernels."""
TRAFFIC = 2.0
"""Bytes moved for a byte that is written: each result is read about once."""
LINK: Three = (0.4, 0.7, 0.9)
"""Of a link's paper rate, in collectives; PCIe between cards goes through the host, which halves it."""
LAUNCH_S: Three = (12e-6, 7e-6, 4e-6)
"""Seconds per operator that the host needs to launch it: small models wait for this."""
HOST_ADAM_BYTES = 28.0
"""Bytes a trained value moves in host memory when AdamW runs there: weight, gradient, two states, read and written."""
SETUP_S = 60.0
"""Starting processes, reading configurations, building the model."""
TRAINING = ("forward", "loss", "recompute", "backward")


def step_seconds(
    configuration: Configuration, account: Account, family: Family, machine: Machine, sums: Sums
) -> Seconds | None:
    """An average optimizer step over the micro batches of `sums`; null where the card's rates are not known."""
    tflops, memory_gb_s = machine.tflops, machine.memory_gb_s
    if machine.device.kind == "cpu":
        tflops, memory_gb_s = CPU_TFLOPS, CPU_MEMORY_GB_S
    if not tflops or not memory_gb_s or not sums.micro_batches:
        return None
    c = configuration
    micro_batches = float(c.gradient_accumulation)
    rows = sums.padded_tokens / sums.micro_batches
    squares = sums.padded_squares / sums.micro_batches
    operations = sum(_mean(family.work.operations.get(p, {}), c, rows, squares) for p in TRAINING)
    if c.attention != "eager":
        passes = 1 + (1 if c.activation_checkpointing else 0) + 2.5  # flash-attention 2, section 4: backward is 2.5
        operations += passes * 2 * squares * family.work.attention_width * family.work.attention_layers
    moved = TRAFFIC * sum(_mean(family.work.written_bytes.get(p, {}), c, rows, squares) for p in TRAINING)
    moved += _weight_reads(c, account)
    return _seconds(
        {
            "compute": micro_batches * operations / (tflops * 1e12),
            "memory": (micro_batches * moved + _optimizer_bytes(c, account)) / (memory_gb_s * 1e9),
            "link": _link_seconds(c, account, machine, micro_batches),
            "host": _host_seconds(c, account, machine, micro_batches),
            "launch": micro_batches * family.work.kernels,
        }
    )


def _mean(polynomial: Polynomial, c: Configuration, rows: float, squares: float) -> float:
    """A polynomial over micro batches of different lengths, by their means: it is linear in B S and in B S^2."""
    length = rows / c.micro_batch
    return value(polynomial, c.micro_batch, length) + polynomial.get("BSS", 0.0) * (squares - c.micro_batch * length**2)


def _seconds(ideal: dict[str, float]) -> Seconds:
    """Shares of the rates applied; work on the card and on links overlap between not at all and fully."""
    results = []
    for k in range(3):
        on_card = max(ideal["compute"] / COMPUTE[k] + ideal["memory"] / MEMORY[k], ideal["launch"] * LAUNCH_S[k])
        link, host = ideal["link"] / LINK[k], ideal["host"] / LINK[k]
        hidden = min(on_card, link) * (0.0, 0.5, 1.0)[k]
        results.append(on_card + link - hidden + host)
    parts = {
        "compute": ideal["compute"] / COMPUTE[1],
        "memory": ideal["memory"] / MEMORY[1],
        "link": ideal["link"] / LINK[1],
        "host": ideal["host"] / LINK[1],
        "launch": ideal["launch"] * LAUNCH_S[1],
    }
    parts = {name: seconds for name, seconds in parts.items() if seconds > 0}
    return Seconds(
        expected=results[1], low=results[2], high=results[0], parts=parts, bound=max(parts, key=lambda n: parts[n])
    )


def _weight_reads(c: Configuration, account: Account) -> float:
    """Weights are read in every pass of every micro batch."""
    passes = 3 if c.activation_checkpointing else 2
    return passes * account.total_parameters * _weight_size(c)


def _weight_size(c: Configuration) -> float:
    return {"fp32": 4.0, "nf4": 0.56, "nf4-dq": 0.52}.get(c.weights, 2.0)


def _optimizer_bytes(c: Configuration, account: Account) -> float:
    """Weight, gradient and two states, read and written: AdamW in fp32, or with one byte a state."""
    states = 2.0 if c.optimizer.endswith("8bit") else 8.0
    ranks = c.data_ranks if c.sharding not in ("none", "ddp") else 1
    return account.trainable_parameters * (2 * states + 12.0) / ranks if c.offload == "none" else 0.0


def _link_seconds(c: Configuration, account: Account, machine: Machine, micro_batches: float) -> float:
    """What a rank sends and receives in the collectives of a step (rings), over the slowest link it crosses."""
    n = c.data_ranks
    if n == 1:
        return 0.0
    within = (machine.link_gb_s or 0.0) / (1.0 if machine.nvlink else 2.0)
    rate = min(within, machine.node_link_gb_s / machine.device.count) if n > machine.device.count else within
    if not rate:
        return 0.0
    share = (n - 1) / n
    weights = account.total_parameters * (_weight_size(c) if c.method == "qlora" else 2.0)
    gradients = account.trainable_parameters * (2.0 if c.method == "full" else 4.0)
    if c.sharding in SHARDS_WEIGHTS:
        volume = micro_batches * share * (2 * weights + gradients)
    elif c.sharding == "zero2":
        volume = micro_batches * share * gradients + share * account.trainable_parameters * 2.0
    else:
        volume = 2 * share * gradients
    return volume / (rate * 1e9)


def _host_seconds(c: Configuration, account: Account, machine: Machine, micro_batches: float) -> float:
    """Gradients to the host, AdamW there, weights back; with everything on the host, weights in every pass."""
    if c.offload == "none":
        return 0.0
    bus = (machine.host_bus_gb_s or 16.0) * 1e9
    trained = account.trainable_parameters / c.data_ranks
    seconds = 4.0 * trained / bus + HOST_ADAM_BYTES * account.trainable_parameters / (machine.host_memory_gb_s * 1e9)
    if c.offload == "all":
        seconds += micro_batches * 2 * account.total_parameters * 2.0 / c.data_ranks / bus
    return seconds


def run_duration(
    configuration: Configuration,
    account: Account,
    family: Family,
    machine: Machine,
    workload: Workload,
    seconds: Seconds,
    sums: Sums,
) -> Duration | None:
    """Training, evaluation after every epoch, saves, loading; null where the number of samples is not known."""
    steps = workload.steps(configuration.seq_len)
    if not steps:
        return None
    c = configuration
    per_epoch = sums.micro_batches / c.data_ranks / c.gradient_accumulation
    epochs = workload.epochs * workload.share(c.seq_len)
    training = [s * per_epoch * epochs for s in (seconds.low, seconds.expected, seconds.high)]
    held_out = workload.evaluation_sums(c.micro_batch, c.seq_len)
    evaluating = _forward_share(family, c) * seconds.expected / c.gradient_accumulation if held_out else 0.0
    evaluation = evaluating * held_out.micro_batches / c.data_ranks * math.ceil(epochs) if held_out else 0.0
    saves = max(1.0, training[1] / (workload.save_minutes * 60)) + 1
    saving = saves * account.disk_bytes / 4 / (machine.disk_gb_s * 1e9)  # three checkpoints and the result are on disk
    loading = SETUP_S + account.total_parameters * 2.0 / (machine.disk_gb_s * 1e9)
    rest = evaluation + saving + loading
    low, expected, high = ((t + rest) / 3600 for t in training)
    return Duration(
        hours=expected,
        low=low,
        high=high,
        parts={
            "training": training[1] / 3600,
            "evaluation": evaluation / 3600,
            "saving": saving / 3600,
            "loading": loading / 3600,
        },
        steps=steps,
        tokens=sums.padded_tokens * epochs,
        money=expected * c.cards * machine.price_per_card_hour if machine.price_per_card_hour is not None else None,
    )


def _forward_share(family: Family, c: Configuration) -> float:
    """An evaluation's share of the operations of a training micro batch."""
    work = family.work.operations
    whole = sum(value(work.get(p, {}), c.micro_batch, c.seq_len) for p in TRAINING)
    return value(work.get("evaluate", {}), c.micro_batch, c.seq_len) / whole if whole else 0.0
