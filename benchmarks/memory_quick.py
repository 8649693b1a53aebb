"""Predicted against measured peaks: three published Mistral-7B rows, and trainings measured here on the CPU.

    python benchmarks/memory_quick.py

The published rows are `torch.cuda.max_memory_allocated` on an A100-80GB (foundation-model-stack/fms-acceleration,
scripts/benchmarks/refs/a100_80gb.csv, 2024). The software of those rows kept the 16-bit logits alive during the
backward pass, which is the loss path `hf-2024`; the figure for today's `Trainer` stands beside it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specs.hardware import find_model
from tasks.memory.fit import account
from tasks.memory.settings import TraceSettings
from tests.memory.measured import measured_peak

GIB = 2**30
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
COMMON: dict[str, Any] = {"weights": "bf16", "compute": "bf16", "seq_len": 4096, "activation_checkpointing": True}

PUBLISHED: list[tuple[str, float, dict[str, Any]]] = [
    ("LoRA r16 q,k,v,o  4 x 4096", 24.87, {"targets": ATTENTION, "micro_batch": 4}),
    ("LoRA r16 q,k,v,o  8 x 4096", 36.08, {"targets": ATTENTION, "micro_batch": 8}),
    ("full bf16         8 x 4096", 67.46, {"method": "full", "micro_batch": 8}),
]

MEASURED_HERE: list[tuple[str, dict[str, Any]]] = [
    ("LoRA fp32", {}),
    ("LoRA, checkpointing", {"activation_checkpointing": True}),
    ("LoRA, amp-bf16", {"compute": "amp-bf16"}),
    ("LoRA, eager", {"attention": "eager"}),
    ("LoRA, padded", {"padded": True}),
    ("DoRA", {"method": "dora"}),
    ("full, AdamW, 2 micro batches", {"method": "full", "gradient_accumulation": 2}),
    ("full, Adafactor", {"method": "full", "optimizer": "adafactor"}),
]


def main() -> None:
    """Print both tables."""
    print(f"{'Mistral-7B':30s} {'measured':>9s} {'predicted':>9s} {'error':>7s} {'today':>7s} {'seconds':>7s}   GiB")
    architecture = find_model("mistralai/Mistral-7B-v0.1").architecture
    for name, measured, settings in PUBLISHED:
        began = time.perf_counter()
        then, now = (
            account(TraceSettings(architecture=architecture, **COMMON, **settings, loss_path=path))
            for path in ("hf-2024", "current")
        )
        seconds = (time.perf_counter() - began) / 2
        predicted = then.peak_allocated_bytes / GIB
        print(
            f"{name:30s} {measured:9.2f} {predicted:9.2f} {predicted / measured - 1:+7.2%} "
            f"{now.peak_allocated_bytes / GIB:7.2f} {seconds:7.1f}"
        )
    small = find_model("HuggingFaceTB/SmolLM2-135M").architecture | {"num_hidden_layers": 6, "vocab_size": 4096}
    print(f"\n{'6 layers of SmolLM2, 2 x 256':30s} {'measured':>9s} {'predicted':>9s} {'error':>7s}   MiB, on this CPU")
    for name, settings in MEASURED_HERE:
        wanted = TraceSettings(architecture=small, device="cpu", **{"micro_batch": 2, "seq_len": 256, **settings})
        with tempfile.TemporaryDirectory() as folder:
            measured = measured_peak(wanted, Path(folder)) / 2**20
        predicted = account(wanted).peak_allocated_bytes / 2**20
        print(f"{name:30s} {measured:9.1f} {predicted:9.1f} {predicted / measured - 1:+7.2%}", flush=True)


if __name__ == "__main__":
    main()
