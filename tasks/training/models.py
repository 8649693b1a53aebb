"""Loading base models and putting what is trained on them: adapters, or nothing with method full."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from specs.canonical import digest_folder
from specs.errors import ModelError
from specs.files import storage_errors
from specs.parameters import TrainingConfiguration
from tasks.out_of_memory import is_out_of_memory
from tasks.storage import library_storage_errors

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
FULL_WEIGHTS = "model.safetensors"
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
    "vocab*",
    "merges.txt",
    "added_tokens.json",
)

_COMPUTE_OF: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32", "amp-bf16", "amp-fp16"),
    "bf16": ("bf16", "amp-bf16"),
    "fp16": ("amp-fp16",),
    "nf4": ("fp32", "bf16", "amp-bf16", "amp-fp16"),
    "nf4-dq": ("fp32", "bf16", "amp-bf16", "amp-fp16"),
}
"""Which compute each weight format allows. Without autocast (amp) a model computes in the format of its weights."""


def choose_device() -> str:
    """`cuda` where torch sees a GPU, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def contradictions(training: TrainingConfiguration) -> list[tuple[str, str]]:
    """Settings that exclude each other on every machine, each with its way out."""
    problems = []
    if training.compute not in _COMPUTE_OF[training.weights]:
        allowed = ", ".join(_COMPUTE_OF[training.weights])
        problems.append((f"weights {training.weights} cannot compute in {training.compute}", f"compute: {allowed}"))
    if training.packing and training.attention == "flash" and training.micro_batch > 1:
        problems.append(
            ("attention flash keeps samples of a packed row apart only with one row per forward pass", "micro_batch: 1")
        )
    if training.packing and training.fill_micro_batches:
        problems.append(
            ("packing fills its rows, and fill_micro_batches has nothing left to fill", "one of them: false")
        )
    if training.method == "full" and training.weights in ("nf4", "nf4-dq", "fp16"):
        problems.append((f"method full cannot train {training.weights} weights", "weights: fp32 or bf16"))
    if (training.method == "qlora") != training.weights.startswith("nf4"):
        problems.append((f"method {training.method} does not go with weights {training.weights}", "qlora: nf4, nf4-dq"))
    if training.sharding != "ddp":
        what = f"sharding {training.sharding} is predicted (`gatewright estimate`), but no worker trains it yet"
        problems.append((what, "sharding: ddp: every rank holds the whole model"))
    return problems


def check_possible(training: TrainingConfiguration, device: str) -> None:
    """Raise `ModelError` for a configuration that this machine or these libraries cannot train as asked."""
    problems = contradictions(training)
    if training.attention == "flash" and device == "cpu":
        problems.append(("attention flash needs a CUDA GPU; there is none here", "attention: sdpa"))
    elif training.attention == "flash" and importlib.util.find_spec("flash_attn") is None:
        problems.append(("attention flash needs the package flash-attn", "attention: sdpa, or install flash-attn"))
    if training.allocator != "default" and device == "cpu":
        problems.append((f"allocator {training.allocator} is a setting of the GPU's allocator", "allocator: default"))
    if training.compute == "amp-fp16" and device == "cpu":
        problems.append(("amp-fp16 scales its loss on a GPU only; there is none here", "compute: fp32 or amp-bf16"))
    eight_bit = "8bit" in training.optimizer
    if (training.method == "qlora" or eight_bit) and importlib.util.find_spec("bitsandbytes") is None:
        what = "method qlora" if training.method == "qlora" else f"optimizer {training.optimizer}"
        problems.append((f"{what} needs bitsandbytes", 'pip install "bitsandbytes>=0.50.2,<0.51"'))
    if problems:
        raise ModelError("; ".join(p for p, _ in problems), "; ".join(way for _, way in problems))


def load_base(folder: Path, weights: str = "fp32", attention: str = "sdpa", device: str = "cpu", **options: Any) -> Any:
    """A causal language model from a local folder of safetensors, on `device`, in evaluation mode.

    Raises `ModelError` when the folder has no weights, cannot be read as a model, or lacks tensors.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} holds no model weights", "a model folder needs config.json and *.safetensors files")
    loader: Any = AutoModelForCausalLM
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(weights, torch.float32)
    try:
        model, report = loader.from_pretrained(
            folder,
            dtype=options.pop("dtype", dtype),
            attn_implementation={"flash": "flash_attention_2"}.get(attention, attention),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{folder} cannot be loaded as a causal language model: {str(error).splitlines()[0]}",
            "check that the download or conversion is complete, and that the model's code is part of transformers",
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} tensors of its own architecture, the first {missing[0]}",
            "the weights are incomplete: download or convert the model again",
        )
    if "quantization_config" not in options:
        model.to(device)
    else:
        _keep_as_quantized(model)
    return model.eval()


def _keep_as_quantized(model: Any) -> None:
    """Keep bitsandbytes from packing 4-bit weights anew at the first forward pass without gradients on a CPU.

    It rounds their scales to bf16 in place, so that measuring a loss would change what is trained from there on; it
    needs inputs that are a multiple of its block, and it is done on some processors and not on others.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def build_trainable(folder: Path, training: TrainingConfiguration, device: str) -> Any:
    """The base model with what is trained: adapters (lora, dora, qlora), or every weight (full).

    The adapters are drawn from `training.seed`: the same configuration begins with the same bytes.
    """
    import torch
    from transformers import set_seed

    check_possible(training, device)
    options: dict[str, Any] = {}
    if training.method == "qlora":
        import transformers

        quantization: Any = transformers.BitsAndBytesConfig
        compute = torch.bfloat16 if "bf16" in training.compute else torch.float32
        compute = torch.float16 if training.compute == "amp-fp16" else compute
        options["quantization_config"] = quantization(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=training.weights == "nf4-dq",
            bnb_4bit_compute_dtype=compute,
        )
        options["device_map"] = {"": device}
        options["dtype"] = compute
    model = load_base(folder, training.weights, training.attention, device, **options)
    if training.method == "full":
        return model
    set_seed(training.seed)
    return _attach(model, training)


def _attach(model: Any, training: TrainingConfiguration) -> Any:
    import peft

    lora_config: Any = peft.LoraConfig
    prepare: Any = peft.prepare_model_for_kbit_training
    if training.method == "qlora":
        model = prepare(model, use_gradient_checkpointing=training.activation_checkpointing)
    targets, alpha = training.lora.targets, training.lora.alpha
    config = lora_config(
        r=training.lora.rank,
        lora_alpha=int(alpha) if alpha.is_integer() else alpha,
        lora_dropout=training.lora.dropout,
        target_modules=targets if isinstance(targets, str) else sorted(targets),
        use_dora=training.method == "dora",
        task_type="CAUSAL_LM",
        bias="none",
    )
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        names = sorted({name.rpartition(".")[2] for name, _ in model.named_modules() if name})
        raise ModelError(
            f"the model has no layers that lora.targets = {targets} names", f"its modules are {', '.join(names)}"
        ) from error


def gradient_nodes(model: Any) -> list[Any]:
    """Autograd's nodes that add to the gradients of what is trained: held, they are made once.

    Otherwise each forward pass makes them anew among its activations, and what is left of them stands in the middle of
    the heap until the next one does.
    """
    from torch.autograd.graph import get_gradient_edge

    return [get_gradient_edge(p).node for p in model.parameters() if p.requires_grad]


def is_adapted(model: Any) -> bool:
    """Whether adapters are trained rather than the weights themselves."""
    return hasattr(model, "peft_config")


def save_weights(model: Any, folder: Path) -> None:
    """Write what is trained into `folder`: adapter or all weights, as safetensors. Equal weights give equal bytes."""
    import safetensors.torch

    with library_storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if is_adapted(model):
            safetensors.torch.save_file(_adapter_state(model), folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        else:
            safetensors.torch.save_model(model, str(folder / FULL_WEIGHTS))


def load_weights(model: Any, folder: Path) -> None:
    """Put saved weights into a model of the same configuration, and prove that exactly they are in it.

    Raises `ModelError` when a tensor is missing, left over, or not equal after loading.
    """
    import safetensors.torch
    import torch

    if not is_adapted(model):
        safetensors.torch.load_model(model, str(folder / FULL_WEIGHTS), strict=True)
        return
    from peft import set_peft_model_state_dict

    saved = safetensors.torch.load_file(folder / ADAPTER_WEIGHTS)
    expected = _adapter_state(model)
    if saved.keys() != expected.keys():
        odd = sorted(saved.keys() ^ expected.keys())
        raise ModelError(
            f"{folder / ADAPTER_WEIGHTS} does not fit this configuration: {len(odd)} tensors differ, as {odd[0]}",
            "it was written for another base model, rank or target list",
        )
    set_peft_model_state_dict(model, saved)
    loaded = _adapter_state(model)
    wrong = [name for name, tensor in saved.items() if not torch.equal(tensor, loaded[name])]
    if wrong:
        raise ModelError(f"{len(wrong)} adapter tensors are not what {folder} holds, as {wrong[0]}", "report this")


def load_parent(model: Any, folder: Path, sha256: str | None) -> None:
    """Begin with the adapter of an earlier training. Raises `ModelError` when its files are not those of the job."""
    adapter = folder / "adapter"
    if not adapter.is_dir() or digest_folder(adapter) != sha256:
        raise ModelError(
            f"the adapter of the parent in {adapter} is not the one that this run began with",
            "restore it from a backup, or start a new run",
        )
    load_weights(model, adapter)


def _adapter_state(model: Any) -> dict[str, Any]:
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: state[name].detach().cpu().contiguous() for name in sorted(state)}


def export(model: Any, base_model: Path, base_model_name: str, folder: Path) -> Path:
    """Write the result in the format of its ecosystem: `adapter/` (PEFT), or `model/` with tokenizer. Returns it."""
    if is_adapted(model):
        target = folder / "adapter"
        save_weights(model, target)
        _write_adapter_config(model, base_model_name, target)
        return target
    import shutil

    target = folder / "model"
    with library_storage_errors(target):
        model.save_pretrained(target, safe_serialization=True)
        for pattern in TOKENIZER_FILES:
            for source in sorted(base_model.glob(pattern)):
                shutil.copyfile(source, target / source.name)
    return target


def _write_adapter_config(model: Any, base_model_name: str, folder: Path) -> None:
    """PEFT's configuration, with sets sorted and no path of this machine: equal configurations are equal bytes."""
    import json

    config = model.peft_config["default"].to_dict()
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    config |= {"base_model_name_or_path": base_model_name, "inference_mode": True}
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False, default=str)
    with storage_errors(folder):
        (folder / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8", newline="\n")


def load_trained(
    base_model: Path, artifacts: Path | None, weights: str = "fp32", attention: str = "sdpa", device: str = "cpu"
) -> Any:
    """A model for evaluation: the base model (`artifacts` null), or what a training left in its `artifacts`.

    `artifacts` holds `adapter/` or `model/`. Raises `ModelError` when it holds neither.
    """
    if artifacts is None:
        return load_base(base_model, weights, attention, device)
    if (artifacts / "model").is_dir():
        return load_base(artifacts / "model", weights, attention, device)
    if not (artifacts / "adapter" / ADAPTER_WEIGHTS).is_file():
        raise ModelError(f"{artifacts} holds neither adapter/ nor model/", "train first")
    from peft import PeftModel

    model = PeftModel.from_pretrained(load_base(base_model, weights, attention, device), artifacts / "adapter")
    load_weights(model, artifacts / "adapter")
    return model.eval()
