"""Our configuration in the words of transformers' `Trainer`."""

from __future__ import annotations

from pathlib import Path

from transformers import TrainingArguments

from specs.parameters import TrainingConfiguration

OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw_fused": "adamw_torch_fused",
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}


def training_arguments(training: TrainingConfiguration, steps: int, folder: Path, device: str) -> TrainingArguments:
    """Our configuration in `Trainer`'s words. Saving, order and accumulation stay with us: see `trainer.py`."""
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=training.micro_batch,
        gradient_accumulation_steps=1,
        learning_rate=training.lr,
        lr_scheduler_type=training.lr_schedule,
        warmup_steps=training.lr_warmup_steps,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        optim=OPTIMIZERS[training.optimizer],
        bf16=training.compute == "amp-bf16",
        fp16=training.compute == "amp-fp16",
        activation_checkpointing=training.activation_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},
        seed=training.seed,
        data_seed=training.seed,
        use_cpu=device == "cpu",
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ignore_data_skip=True,
    )
