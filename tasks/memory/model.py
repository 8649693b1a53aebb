"""The model of a trace: the real classes from a configuration, the real adapters, parameters without data."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor

from specs.errors import ModelError
from tasks.memory import experts, kernels
from tasks.memory.fused_adapters import fuse_adapters
from tasks.memory.settings import TraceSettings

TORCH_DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PER_LAYER_KEYS = ("layer_types", "mlp_layer_types", "no_rope_layers", "layers_block_type")
"""Configuration lists with one entry per layer; cut together with the depth."""


def configuration(settings: TraceSettings, depth: int | None = None) -> Any:
    """The transformers configuration, cut to `depth` layers. Raises `ModelError` for a type transformers lacks."""
    from transformers import AutoConfig

    values = copy.deepcopy(settings.architecture)
    kind = values.pop("model_type", None)
    for key in ("quantization_config", "torch_dtype", "dtype", "auto_map", "transformers_version"):
        values.pop(key, None)
    if not isinstance(kind, str):
        raise ModelError("the configuration has no model_type", "use the config.json of a transformers model")
    try:
        config = AutoConfig.for_model(kind, **values)
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"transformers cannot read this configuration of type {kind}: {str(error).splitlines()[0]}",
            "check config.json; models that need code of their own are not loaded",
        ) from error
    config = config.get_text_config(decoder=True)
    if depth is not None and depth != config.num_hidden_layers:
        for key in PER_LAYER_KEYS:
            if isinstance(getattr(config, key, None), list):
                setattr(config, key, _thinned(getattr(config, key), depth))
        config.num_hidden_layers = depth
    config.use_cache = False
    return config


def _thinned(values: list[Any], depth: int) -> list[Any]:
    """The first entries, so that a periodic pattern stays one."""
    return values[:depth]


def build(settings: TraceSettings, depth: int | None = None, divide: Callable[[Any], None] | None = None) -> Any:
    """The model on the meta device, adapters attached, as the training worker sets it up.

    `divide` takes the bare model apart, before adapters are attached to what is left of it.
    """
    config = configuration(settings, depth)
    weights: str = settings.weights
    if settings.quantised:
        weights = {"amp-fp16": "fp16", "fp32": "fp32"}.get(settings.compute, "bf16")
    try:
        with torch.device("meta"):
            model = _first_that_builds(config, TORCH_DTYPE[weights], _attentions(settings, config))
    except (ValueError, ImportError, AttributeError, TypeError, RuntimeError, KeyError) as error:
        raise ModelError(
            f"no causal language model can be built from this configuration: {str(error).splitlines()[0]}",
            "the account needs the configuration of a text-generation model",
        ) from error
    if settings.generation.listed_experts:
        experts.unstack(model)
    if settings.quantised:
        from tasks.memory.quantised import quantise

        model = quantise(model, settings)
    if divide is not None:
        divide(model)
    own = settings.generation.own is not None  # attaches and checkpoints by itself
    if settings.method in ("lora", "qlora", "dora") and not own:
        model = attach(model, settings)
    if settings.activation_checkpointing and settings.method != "inference" and not own:
        if settings.method != "full":
            model.enable_input_require_grads()
        model.activation_checkpointing_enable({"use_reentrant": settings.generation.reentrant})
    if settings.generation.fused_kernels:
        kernels.fuse(model)
        if settings.quantised:
            fuse_adapters(model)
    if settings.device == "cuda":
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                _fuse_dropout(module)
    return model


def _first_that_builds(config: Any, dtype: torch.dtype, attentions: list[str]) -> Any:
    """The model with the first attention that its code knows; classes with a table of their own know few names."""
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    for attention in attentions[:-1]:
        try:
            return loader.from_config(config, dtype=dtype, attn_implementation=attention)
        except KeyError:
            continue
    return loader.from_config(config, dtype=dtype, attn_implementation=attentions[-1])


def _attentions(settings: TraceSettings, config: Any) -> list[str]:
    """The attention that is asked for, then what the worker falls back to. Some architectures have no SDPA."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    found = ["sdpa", "eager"] if kind is None or bool(getattr(kind, "_supports_sdpa", True)) else ["eager"]
    if settings.attention == "eager":
        return ["eager"]
    if settings.attention == "flash" and getattr(kind, "_supports_flash_attn", True) and settings.device == "cuda":
        found.insert(0, kernels.register(config.model_type, settings.generation))
    return found


def attach(model: Any, settings: TraceSettings, device: str = "meta") -> Any:
    """The real PEFT adapters of LoRA, QLoRA and DoRA; on `meta` they have no data."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=settings.rank,
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
        use_dora=settings.method == "dora",
        task_type="CAUSAL_LM",
    )
    try:
        with torch.device(device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return get_peft_model(model, lora)
    except ValueError as error:
        raise ModelError(
            f"adapters cannot be attached: {str(error).splitlines()[0]}",
            "name linear layers of this model in lora.targets; fused experts need lora.dropout 0",
        ) from error


def _fuse_dropout(module: nn.Dropout) -> None:
    """CUDA drops out with one kernel and a mask of one byte an element; the CPU's path keeps a mask in full width."""

    def forward(values: torch.Tensor) -> torch.Tensor:
        if not module.training or module.p == 0:
            return values
        return torch.native_dropout(values, module.p, True)[0]

    module.forward = forward  # type: ignore[method-assign, assignment]


def materialise(model: nn.Module) -> None:
    """Exchange meta parameters and buffers for CPU ones of the active fake mode; tied ones stay tied."""
    done: dict[int, Any] = {}
    mode, cpu = active_fake_mode(), torch.device("cpu")

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        if mode is None or not tensor.is_meta:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return FakeTensor(mode, tensor.detach(), cpu)

    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                if id(parameter) not in done:
                    made = nn.Parameter(fresh(parameter), requires_grad=parameter.requires_grad)
                    made.__dict__.update(parameter.__dict__)
                    done[id(parameter)] = made
                module._parameters[name] = done[id(parameter)]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                if id(buffer) not in done:
                    done[id(buffer)] = fresh(buffer)
                module._buffers[name] = done[id(buffer)]


def decoder_layers(model: nn.Module, depth: int) -> list[nn.Module]:
    """The repeated layers: the outermost module list that has `depth` entries."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return list(module)
    return []
