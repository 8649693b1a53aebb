"""From a published row to the settings it was measured with, or the reason why no path covers it."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from specs.errors import ModelError
from specs.hardware import find_model
from tasks.memory.settings import TraceSettings

Case = dict[str, Any]
GIB = 2**30
UNITS = {"bytes": 1, "GiB": GIB, "MiB": 2**20, "MB": 2**20, "GB": 10**9, "G": 10**9}
NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "output_proj": "o_proj"}
LINEAR = ("all linear", "all-linear", "q,k,v,o,gate,up,down")
PEFT_METHODS = {"LoRA": "lora", "LoRA (DoRA)": "dora", "QLoRA": "qlora", "DoRA": "dora", "full": "full"}
PRIME = {"LoRA (RL policy trainer step)": "lora", "full (RL policy trainer step)": "full", "full (SFT)": "full"}
PRIME_REVISIONS = {
    "a3a307e70": "prime-rl-2026-02",
    "09e11c752": "prime-rl-2026-05",
    "c5afcaa2e": "prime-rl-2026-05",
}
"""Revisions whose output layer goes over more of the vocabulary at a time than 2048 entries, or over tokens too."""
METHODS = {**PEFT_METHODS, **PRIME, "full (pre-training)": "full"}


ONE_GPU, ONE_GPU_OTHERS, FSDP = "exact bytes, one GPU", "exact bytes, one GPU, other models", "exact bytes, FSDP"
PEFT, PRIME_RL = "current stack: PEFT comparison (reserved)", "current stack: prime-rl (reserved)"
ROUNDED = "others, rounded"
ORDER = (ONE_GPU, PEFT, FSDP, ONE_GPU_OTHERS, PRIME_RL, ROUNDED)


class Covered(NamedTuple):
    """Settings, which figure of the account the row compares with, and what was assumed."""

    settings: TraceSettings
    compares: Literal["allocated", "reserved", "process"]
    note: str = ""


def measured_bytes(case: Case) -> float:
    """The published peak in bytes."""
    unit = re.split(r"[ (]", case["peak_unit"])[0]
    return float(case["peak_value"]) * UNITS[unit]


def exact_family(case: Case) -> bool:
    """Models whose rows are held to the goals: Llama, Mistral, Granite (PowerLM) and GPT-BigCode."""
    name = case["model"].lower()
    return "mixtral" not in name and any(w in name for w in ("llama", "mistral", "powerlm", "granite", "bigcode"))


def group(case: Case) -> str:
    """The table's line a row belongs to."""
    source = case["source"]
    if "method_comparison" in source:
        return PEFT
    if "prime-rl" in source:
        return PRIME_RL
    exact = case["peak_unit"] == "bytes" and "allocated" in case["peak_kind"]
    if exact and "FSDP" in (case["sharding"] or ""):
        return FSDP
    if exact:
        return ONE_GPU if exact_family(case) else ONE_GPU_OTHERS
    return ROUNDED


def understood(case: Case) -> Covered | str:
    """The settings of a row, or the reason why there are none."""
    reason = _not_covered(case)
    if reason:
        return reason
    try:
        architecture = find_model(_catalog_name(case["model"])).architecture
    except ModelError:
        return "the catalog lacks the model"
    weights = _weights(case)
    if weights == "int4-gptq" and re.search(r"70b|mixtral", case["model"].lower()):
        architecture["quantization_config"] = {"group_size": -1}
    method = METHODS[case["method"]]
    targets = _targets(case)
    if method != "full" and targets is None:
        return "the adapters' layers are not stated"
    sharding = _sharding(case)
    if sharding is None:
        return f"no path for {case['sharding']}"
    settings = TraceSettings(
        architecture=architecture,
        method=method,
        rank=case["lora_rank"] or 8,
        dropout=_dropout(case),
        targets=targets or "all-linear",
        weights=weights,
        compute=_compute(case, weights),
        optimizer=_optimizer(case),
        activation_checkpointing=bool(case["grad_checkpointing"]),
        attention=_attention(case),
        loss_path=_loss_path(case),
        offload_activations="CPU offload" in str(case["grad_checkpointing"]),
        kbit_prepare="prepare_model_for_kbit_training" in case["notes"] or "fms-acceleration" not in case["source"],
        gradient_accumulation=2 if "prime-rl" in case["source"] else 1,
        micro_batch=case["micro_batch"],
        seq_len=case["seq_len"],
        padded="padded to longest" in case["notes"] and case["micro_batch"] > 1,
        gpus=case["num_gpus"] if sharding != "none" else 1,
        sharding=sharding,
    )
    return Covered(settings, _compares(case), _note(case))


def _not_covered(case: Case) -> str:
    if case["method"] not in METHODS:
        return f"method {case['method']} is not modelled"
    if case["seq_len"] is None or case["micro_batch"] is None:
        return "tokens of the peak's batch are not stated"
    optimizer = case["optimizer"] or ""
    if re.search(r"backward|Muon|BAdam|Megatron|offload", optimizer, re.IGNORECASE):
        return f"optimizer {optimizer} is not modelled"
    if "capacity" in case["peak_unit"] or "TOTAL" in case["peak_kind"]:
        return "not a peak of one device"
    weights = case["weight_dtype"].lower()
    known = (True, False, None, "full", *(["True + activation CPU offload"] if "prime-rl" in case["source"] else []))
    if re.search(r"awq|int8|torchao", weights) or case["grad_checkpointing"] not in known:
        return f"weights {weights} or checkpointing {case['grad_checkpointing']} are not modelled"
    if case["grad_checkpointing"] is None:
        return "activation checkpointing is not stated"
    return ""


def _catalog_name(model: str) -> str:
    name = re.sub(r"^(TheBloke|TechxGenus)/", "", model).removesuffix("-GPTQ")
    return {"Llama-2-70B": "meta-llama/Llama-2-70b-hf", "Llama-3-8B": "meta-llama/Meta-Llama-3-8B"}.get(name, name)


def _weights(case: Case) -> Any:
    stated = case["weight_dtype"].lower()
    if "gptq" in stated:
        return "int4-gptq"
    if "nf4" in stated or "4bit" in stated:
        return "nf4-dq" if "dq" in stated else "nf4"
    if stated.startswith("fp32"):
        return "fp32"
    return "fp16" if stated.startswith(("float16", "fp16")) else "bf16"


def _compute(case: Case, weights: str) -> Any:
    notes = case["notes"]
    if "fp16 AMP" in notes:
        return "amp-fp16"
    # the scenarios of fms-acceleration train packed weights with bf16 autocast, whatever the table's notes say
    four_bits = "fms-acceleration" in case["source"] and weights == "nf4-dq"
    return "amp-bf16" if "bf16 AMP" in notes or "bf16=True" in notes or four_bits or weights == "fp32" else "bf16"


def _targets(case: Case) -> Any:
    stated = case["lora_targets"]
    if case["method"] not in METHODS or METHODS[case["method"]] == "full":
        return "all-linear"
    if stated is None or "trained" in stated:
        return None
    if stated == "all" or stated.startswith(LINEAR):
        return "all-linear"
    if stated.startswith("DEFAULT"):
        return ["q_proj", "k_proj", "v_proj"] if "qwen" not in case["model"].lower() or "2" in case["model"] else None
    if stated.startswith("query,value"):
        return ["q_proj", "v_proj"]
    words = [w for w in re.split(r"[ ,()]+", stated) if w and w not in ("default", "config")]
    known = [NAMES.get(w, w) for w in words]
    return known if all(w.endswith(("_proj", "attn", "w1", "w2")) for w in known) else None


def _sharding(case: Case) -> Any:
    stated = case["sharding"] or ""
    if not stated:
        return "none" if case["num_gpus"] == 1 else None
    if re.search(r"expert|TP|CP|offload|Ulysses|device_map|tp\d|EP\d|PP\d", stated, re.IGNORECASE):
        return None
    if "FSDP" in stated:
        return "fsdp"
    if "ZeRO-3" in stated or "ZeRO-2" in stated:
        return "zero3" if "ZeRO-3" in stated else "zero2"
    return "ddp" if stated == "DDP" else None


def _dropout(case: Case) -> float:
    if "fms-acceleration" in case["source"]:
        return 0.1
    return 0.0 if "method_comparison" in case["source"] or "prime-rl" in case["source"] else 0.05


def _optimizer(case: Case) -> Any:
    stated = (case["optimizer"] or "").lower()
    if "8bit" in stated:
        return "paged_adamw_8bit" if "paged" in stated else "adamw_8bit"
    return "adamw_fused" if "fused" in stated else "adamw"


def _attention(case: Case) -> Any:
    stated = (case["attention"] or "flash_attention_2").lower()
    if "flash" in stated or "fa2" in stated:
        return "flash"
    return "eager" if "eager" in stated else "sdpa"


def _loss_path(case: Case) -> Any:
    notes, source = case["notes"], case["source"]
    if "method_comparison" in source:
        return "current"
    if "prime-rl" in source:
        return _prime_rl(case)
    if "fms-acceleration" in source:
        framework = re.search(r"framework_config=([\w-]+)", notes)
        name = framework.group(1) if framework else ""
        if "liger" in name:
            return "chunked"
        if "foak" in name:
            return "fused-2025" if source.endswith("a100_80gb.csv") else "fused"
        return "hf-2024"
    if re.search(r"CutCrossEntropy|(?<!no )Liger|chunked CE|unsloth", notes + (case["attention"] or ""), re.IGNORECASE):
        return "chunked"
    return "current" if "litgpt" in source else "hf-2024"


def _prime_rl(case: Case) -> str:
    """The generation of prime-rl that a row's revision belongs to, as its code at that revision has it.

    Rows of 12 January 2026 come from an image before the output layer was chunked, where theirs are of fine-tuning.
    """
    if "SFT" in case["method"]:
        return "prime-rl-sft"
    revision = re.search(r"@([0-9a-f]{9})", case["source"])
    return PRIME_REVISIONS.get(revision.group(1) if revision else "", "prime-rl-2026-01")


def _compares(case: Case) -> Literal["allocated", "reserved", "process"]:
    kind = case["peak_kind"].lower()
    if "allocated" in kind or "active" in kind or "alloc" in kind:
        return "allocated"
    return "reserved" if "reserved" in kind else "process"


def _note(case: Case) -> str:
    if "prime-rl" in case["source"]:
        return "reserved: gaps in the pools of several streams"
    if "method_comparison" in case["source"]:
        return "reserved after generation, in a cache emptied every 10 steps"
    if "bigcode" in case["model"]:
        return "what keeps its logits is not known"
    return "" if group(case) != ROUNDED else "rounded, lengths are caps, kind of figure often not stated"
