"""What a trace depends on: the architecture, the training configuration's memory side, and the batch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from specs.base import Strict
from specs.errors import InputError
from specs.parameters import Method, Optimizer, TrainingConfiguration
from tasks.memory.generations import GENERATIONS, Generation, LossPath

Weights = Literal["fp32", "bf16", "fp16", "nf4", "nf4-dq", "int4-gptq"]
"""How base weights lie in memory; GPTQ is known to the account, the training worker does not load it."""
KvDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"]
Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]
Offload = Literal["none", "optimizer", "all"]
DeviceKind = Literal["cuda", "cpu"]

ROUNDING: dict[DeviceKind, int] = {"cuda": 512, "cpu": 1}
"""Bytes to which the allocator of a device rounds a request (CUDA: kMinBlockSize of c10's caching allocator)."""


class TraceSettings(Strict):
    """One account's inputs. `architecture` is the content of config.json, `model_type` included."""

    architecture: dict[str, Any]
    method: Method | Literal["inference"] = "lora"
    rank: int = Field(16, ge=1)
    dropout: float = Field(0.05, ge=0, lt=1)
    targets: Literal["all-linear"] | list[str] = "all-linear"
    weights: Weights = "fp32"
    compute: Literal["fp32", "bf16", "amp-bf16", "amp-fp16"] = "fp32"
    optimizer: Optimizer = "adamw"
    activation_checkpointing: bool = False
    offload_activations: bool = Field(False, description="what forward keeps waits on the host; of own trainers only")
    attention: Literal["sdpa", "eager", "flash"] = "sdpa"
    gradient_accumulation: int = Field(1, ge=1)
    loss_path: LossPath = "current"
    kbit_prepare: bool = True
    device: DeviceKind = "cuda"
    micro_batch: int = Field(1, ge=1)
    seq_len: int = Field(1024, ge=8)
    padded: bool = Field(False, description="samples of one micro batch differ in length: an attention mask is built")
    packed: bool = Field(False, description="samples share rows: a mask of every pair of tokens keeps them apart")
    evaluation_batch: int = Field(1, ge=1)
    kv_dtype: KvDtype | None = Field(None, description="of cached keys and values; null: that of the weights")
    in_fp32: bool = Field(False, description="shards are fp32, gathered in 16 bits: weights fp32 with autocast in FSDP")
    gpus: int = Field(1, ge=1, description="ranks that share the work")
    nodes: int = Field(1, ge=1, description="machines that the ranks are spread over")
    sharding: Sharding = "none"
    offload: Offload = "none"
    tensor_parallel: int = Field(1, ge=1, description="ranks that share a layer")
    pipeline_stages: int = Field(1, ge=1, description="ranks that share the row of layers")

    @property
    def divides_layers(self) -> bool:
        """Whether a layer, or the row of layers, is divided among ranks."""
        return self.tensor_parallel > 1 or self.pipeline_stages > 1

    @property
    def quantised(self) -> bool:
        """Whether linear layers are packed to 4 bits."""
        return self.weights in ("nf4", "nf4-dq", "int4-gptq")

    @property
    def ranks_per_node(self) -> int:
        """Ranks on the fullest machine."""
        return -(-self.gpus // self.nodes)

    @property
    def generation(self) -> Generation:
        """What the software that `loss_path` names does with memory."""
        return GENERATIONS[self.loss_path]

    def at(self, micro_batch: int, seq_len: int) -> TraceSettings:
        """The same with another batch."""
        return self.model_copy(update={"micro_batch": micro_batch, "seq_len": seq_len})


def from_training(
    architecture: dict[str, Any], training: TrainingConfiguration, longest: int, device: DeviceKind
) -> TraceSettings:
    """The settings of the heaviest micro batch that `training` allows with samples of at most `longest` tokens.

    Packed rows may be as long as `max_length`, however short the samples are.
    """
    settings = TraceSettings(
        architecture=architecture,
        method=training.method,
        rank=training.lora.rank,
        dropout=training.lora.dropout,
        targets=training.lora.targets,
        weights=training.weights,
        compute=training.compute,
        optimizer=training.optimizer,
        activation_checkpointing=training.activation_checkpointing,
        attention=training.attention,
        gradient_accumulation=training.gradient_accumulation,
        device=device,
        micro_batch=training.micro_batch,
        seq_len=max(longest, training.max_length) if training.packing else longest,
        packed=training.packing,
        padded=training.micro_batch > 1 or training.fill_micro_batches,
        evaluation_batch=training.micro_batch,
        gpus=training.ranks,
        sharding=training.sharding if training.ranks > 1 else "none",
    )
    refuse_contradictions(settings)
    return settings


def refuse_contradictions(settings: TraceSettings) -> None:
    """Raise `InputError` for types that exclude each other."""
    if settings.compute == "bf16" and settings.weights == "fp32":
        raise InputError("compute bf16 needs 16-bit weights", "use weights bf16, or compute amp-bf16 with fp32 weights")
    if settings.attention == "flash" and settings.compute == "fp32" and settings.device == "cuda":
        raise InputError("flash attention computes in 16 bits", "use attention sdpa, or compute bf16 or amp-bf16")


FRAMEWORK_BYTES: dict[DeviceKind, int] = {"cuda": 512 * 2**20, "cpu": 448 * 2**20}
"""What a process holds before the model: on the CPU the interpreter and libraries (421 MiB measured in the training
worker with torch 2.13, transformers 5.23), on a GPU the CUDA context and its modules (an assumption: not measured)."""

CUBLAS_WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 2**10
"""PyTorch's default per thread on cards before Hopper (`CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8`), where it is 32 MiB."""

LIBRARY_BYTES: dict[DeviceKind, int] = {"cuda": 0, "cpu": 64 * 2**20}
"""What kernels keep for themselves and operators do not show: oneDNN and MKL buffers, measured on two threads as
55 to 66 MiB above the trace for a 135M model in fp32 and bf16, 25 MiB for one of half a million parameters."""
