"""The command `estimate`: the memory account of one training or inference configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show
from flows.cli.values import refuse_empty, refuse_odd
from specs.errors import EXIT_DONE, InputError

if TYPE_CHECKING:
    from tasks.memory.account import Account
    from tasks.memory.devices import Device

Text = Optional[str]  # noqa: UP045  typer reads these at run time
Number = Optional[float]  # noqa: UP045

Model = Annotated[str, typer.Option("--model", help="A name of the catalog, a folder, or a config.json.")]
Method = Annotated[str, typer.Option("--method", help="full, lora, qlora, dora or inference.")]
Rank = Annotated[int, typer.Option("--lora-rank", help="Rank of the adapters.")]
Targets = Annotated[str, typer.Option("--lora-targets", help="all-linear, or names with commas.")]
Weights = Annotated[Text, typer.Option("--weights", help="fp32, bf16, fp16, nf4 or nf4-dq; by method when left out.")]
Compute = Annotated[Text, typer.Option("--compute", help="bf16, amp-bf16, amp-fp16 or fp32.")]
Optimizer = Annotated[
    str, typer.Option("--optimizer", help="adamw, adamw_fused, adamw_8bit, paged_adamw_8bit, adafactor or sgd.")
]
MicroBatch = Annotated[int, typer.Option("--micro-batch", "--batch", help="Samples at a time.")]
SeqLen = Annotated[int, typer.Option("--seq-len", help="Tokens per sample; for inference prompt and answer together.")]
Checkpointing = Annotated[
    bool, typer.Option("--activation-checkpointing", help="Recompute activations in the backward pass.")
]
OffloadActivations = Annotated[
    bool, typer.Option("--offload-activations", help="What forward keeps waits on the host; known for prime-rl alone.")
]
Packing = Annotated[
    bool, typer.Option("--packing", help="Samples share rows of --seq-len tokens and do not see each other.")
]
Attention = Annotated[str, typer.Option("--attention", help="flash, sdpa or eager.")]
LossPath = Annotated[
    str,
    typer.Option(
        "--loss-path",
        help="Software: current, hf-2024, fused, fused-2025, chunked, chunked-current, prime-rl-2026-01, "
        "prime-rl-2026-02, prime-rl-2026-05 or prime-rl-sft.",
    ),
]
Gpus = Annotated[int, typer.Option("--gpus", help="GPUs that share the work.")]
Nodes = Annotated[int, typer.Option("--nodes", help="Machines that these GPUs are in, evenly.")]
Sharding = Annotated[str, typer.Option("--sharding", help="none, ddp, zero1, zero2, zero3 or fsdp.")]
TensorParallel = Annotated[int, typer.Option("--tensor-parallel", help="GPUs that share every layer.")]
PipelineStages = Annotated[
    int, typer.Option("--pipeline-stages", help="GPUs, one behind the other, that share the row of layers.")
]
Accumulation = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--gradient-accumulation",
        help="Micro batches of an optimizer step; when left out 1, in a pipeline as many as keep its bubble at 20 %.",
    ),
]
Offload = Annotated[str, typer.Option("--offload", help="none, optimizer or all, to host memory.")]
KbitPrepare = Annotated[
    str, typer.Option("--kbit-prepare", help="yes or no: what stays unpacked beside 4-bit weights goes to fp32.")
]
KvDtype = Annotated[
    Text, typer.Option("--kv-dtype", help="Of the cache in inference: fp32, bf16, fp16, fp8, int8 or int4.")
]
Card = Annotated[Text, typer.Option("--gpu", help="A card of the catalog, to see whether it fits.")]
HostMemoryGb = Annotated[Number, typer.Option("--host-memory-gb", help="Host memory there is, in GiB; with --gpu.")]
DiskGb = Annotated[Number, typer.Option("--disk-gb", help="Free disk there is, in GiB; with --gpu.")]


@app.command()
@guarded
def estimate(
    model: Model,
    method: Method = "lora",
    lora_rank: Rank = 16,
    lora_targets: Targets = "all-linear",
    weights: Weights = None,
    compute: Compute = None,
    optimizer: Optimizer = "adamw",
    micro_batch: MicroBatch = 1,
    seq_len: SeqLen = 1024,
    activation_checkpointing: Checkpointing = False,
    offload_activations: OffloadActivations = False,
    packing: Packing = False,
    attention: Attention = "sdpa",
    loss_path: LossPath = "current",
    gpus: Gpus = 1,
    nodes: Nodes = 1,
    sharding: Sharding = "none",
    tensor_parallel: TensorParallel = 1,
    pipeline_stages: PipelineStages = 1,
    gradient_accumulation: Accumulation = None,
    offload: Offload = "none",
    kbit_prepare: KbitPrepare = "yes",
    kv_dtype: KvDtype = None,
    gpu: Card = None,
    host_memory_gb: HostMemoryGb = None,
    disk_gb: DiskGb = None,
    as_json: AsJson = False,
) -> int:
    """One memory account: the predicted peak of one training or inference configuration, by phase and by resident."""
    refuse_empty({"--model": model, "--gpu": gpu, "--lora-targets": lora_targets})
    account = _estimated(
        model,
        {
            "method": method,
            "rank": lora_rank,
            "targets": lora_targets if lora_targets == "all-linear" else lora_targets.split(","),
            "weights": weights,
            "compute": compute,
            "optimizer": optimizer,
            "micro_batch": micro_batch,
            "seq_len": seq_len,
            "activation_checkpointing": activation_checkpointing,
            "offload_activations": offload_activations,
            "packed": packing,
            "attention": attention,
            "loss_path": loss_path,
            "gpus": gpus,
            "nodes": nodes,
            "sharding": sharding,
            "tensor_parallel": tensor_parallel,
            "pipeline_stages": pipeline_stages,
            "gradient_accumulation": gradient_accumulation,
            "offload": offload,
            "kbit_prepare": _yes(kbit_prepare),
            "kv_dtype": kv_dtype,
        },
        _device(gpu, gpus, host_memory_gb, disk_gb),
    )
    _show(account, as_json)
    return EXIT_DONE


def _yes(word: str) -> bool:
    if word not in ("yes", "no"):
        raise InputError(f"--kbit-prepare is yes or no, not {word}", "yes is what PEFT's preparation does")
    return word == "yes"


def _device(gpu: str | None, gpus: int, host_memory_gb: float | None, disk_gb: float | None) -> Device | None:
    """The cards to set the account against; null where none is named."""
    from tasks.memory.devices import named

    beside = {"--host-memory-gb": host_memory_gb, "--disk-gb": disk_gb}
    refuse_odd(beside)
    for option, value in beside.items():
        if value is not None and gpu is None:
            raise InputError(f"{option} has no effect without --gpu", "name a card: --gpu NAME")
    return None if gpu is None else named(gpu, max(1, gpus)).with_host(host_memory_gb, disk_gb)


def _estimated(model: str, options: dict[str, Any], device: Device | None) -> Account:
    from flows.cli.progress import for_terminal
    from tasks.memory.architecture import architecture_of
    from tasks.memory.asked import settings_of
    from tasks.memory.estimate import estimate as estimate_account
    from tasks.planning.architectures import sound
    from tasks.planning.weighing import positions_of

    architecture = sound(architecture_of(model), model)
    with for_terminal() as progress:
        account = estimate_account(settings_of(architecture, options), device, progress)
    made_for = positions_of(architecture)
    if made_for is None or options["seq_len"] <= made_for:
        return account
    note = f"--seq-len {options['seq_len']} is more than the {made_for} tokens that the model was made for"
    return account.model_copy(update={"notes": [*account.notes, note]})


def _show(account: Account, as_json: bool) -> None:
    if as_json:
        emit(account.model_dump(mode="json"))
        return
    show(_account_table(account))
    for line in _verdict(account):
        say(line)


def _verdict(account: Account) -> list[str]:
    """Whether it fits, what it takes beside the GPU, and what was assumed."""
    found = account.fits
    lines = [f"note: {note}" for note in account.notes]
    if found is None:
        return lines
    word = "fits" if found.fits else "does not fit"
    lines.append(f"{word} {found.device}: {found.share:.0%} of {found.usable_bytes / 2**30:.1f} GiB that can be used")
    return [*lines, *(f"  {reason}" for reason in found.reasons)]


def _account_table(account: Account) -> Any:
    from rich.table import Table

    table = Table(title=f"predicted peak ({account.method})", title_justify="left")
    table.add_column("")
    table.add_column("GiB", justify="right")
    table.add_row("peak allocated", f"{account.peak_allocated_bytes / 2**30:.2f}", style="bold")
    table.add_row("peak reserved", f"{account.peak_reserved_bytes / 2**30:.2f}")
    for name, size in account.phases.items():
        table.add_row(f"phase {name}", f"{size / 2**30:.2f}")
    for name, size in account.residents.items():
        table.add_row(f"at the peak: {name}", f"{size / 2**30:.2f}")
    for stage in account.stages:
        name = f"stage {stage.stage}: {stage.layers} layers, {stage.in_flight} micro batches in flight"
        table.add_row(name, f"{stage.peak_allocated_bytes / 2**30:.2f}")
    table.add_row("host memory", f"{account.host_peak_bytes / 2**30:.2f}")
    if account.pinned_bytes:
        table.add_row("of it pinned", f"{account.pinned_bytes / 2**30:.2f}")
    table.add_row("disk", f"{account.disk_bytes / 2**30:.2f}")
    return table
