"""Measures the peak of allocated tensors in a real training on the CPU, by the profiler's memory events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.memory.settings import TraceSettings

OPTIMIZERS = {"adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused", "sgd": "sgd", "adafactor": "adafactor"}


def measured_peak(settings: TraceSettings, folder: Path) -> int:
    """Bytes: weights, plus the highest sum of the allocator's events over two steps of transformers' `Trainer`."""
    import torch
    from transformers import Trainer, TrainingArguments

    from tasks.memory.model import TORCH_DTYPE, attach, configuration

    transformers: Any = __import__("transformers")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        configuration(settings), dtype=TORCH_DTYPE[settings.weights], attn_implementation=settings.attention
    )
    if settings.method != "full":
        model = attach(model, settings, "cpu")
    if settings.activation_checkpointing and settings.method != "full":
        model.enable_input_require_grads()
    rows = 2 * settings.gradient_accumulation * settings.micro_batch
    data: Any = [torch.randint(1, settings.architecture["vocab_size"], (settings.seq_len,)) for _ in range(rows)]

    def collate(samples: list[Any]) -> dict[str, Any]:
        ids = torch.stack(samples)
        batch = {"input_ids": ids, "labels": ids.clone()}
        if settings.packed:
            half = settings.seq_len // 2
            positions = torch.cat([torch.arange(half), torch.arange(settings.seq_len - half)])
            batch["position_ids"] = positions.expand(len(samples), -1).contiguous()
        elif settings.padded:
            batch["attention_mask"] = torch.ones_like(ids)
            batch["attention_mask"][0, -1] = 0
        return batch

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=settings.gradient_accumulation,
        use_cpu=True,
        bf16=settings.compute == "amp-bf16",
        optim=OPTIMIZERS[settings.optimizer],
        activation_checkpointing=settings.activation_checkpointing,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
    now = peak = sum({id(t): t.nbytes for t in (*model.parameters(), *model.buffers())}.values())
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        trainer.train()
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
