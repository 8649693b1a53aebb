"""A plain transformers `Trainer` in the situations of `test_public_failures.py`; `plain.json` says what it did."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tasks.training.collate import IGNORED, collate
from tasks.training.feed import read_samples
from tasks.training.job import Job
from tasks.training.models import build_trainable

STEPS_PER_EPOCH, EPOCHS, BATCH = 10, 2, 4


class Plain:
    """Runs one training after the other on the same samples, and notes the ids of every batch."""

    def __init__(self, job: Job, folder: Path) -> None:
        from tasks.prompts import PromptTemplate
        from tests.support.samples import training_samples

        self.job, self.folder = job, folder
        ids = [i for i, _ in training_samples(job.samples)]
        encoded = read_samples(job.samples, ids, PromptTemplate.load(job.base_model))
        self.data: Any = [{"id": i, "input_ids": encoded[i].input_ids, "sample": encoded[i]} for i in ids]

    def train(self, name: str, resume: Any = None, **how: Any) -> dict[str, Any]:
        """Train in the folder `name`; returns fed ids by batch, steps, and the error if there was one."""
        from transformers import Trainer, TrainingArguments, set_seed

        fed: list[list[str]] = []
        masked, poison, data = how.pop("masked", False), how.pop("nan_at", None), how.pop("data", self.data)

        def feed(batch: list[dict[str, Any]]) -> Any:
            fed.append([b["id"] for b in batch])
            tensors = collate([b["sample"] for b in batch], max(len(b["input_ids"]) for b in batch), 0)
            if masked:
                tensors["labels"].fill_(IGNORED)
            return tensors

        class Poisoned(Trainer):
            def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
                loss: Any = super().compute_loss(*args, **kwargs)  # type: ignore[no-untyped-call]
                return loss * float("nan") if self.state.global_step + 1 == poison else loss

        settings = {
            "output_dir": str(self.folder / name),
            "per_device_train_batch_size": BATCH,
            "num_train_epochs": EPOCHS,
            "save_steps": 5,
            "logging_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "remove_unused_columns": False,
            "learning_rate": 1e-3,
            **how,
        }
        set_seed(7)
        model = build_trainable(self.job.base_model, self.job.training, "cpu")
        trainer = Poisoned(model=model, args=TrainingArguments(**settings), train_dataset=data, data_collator=feed)
        error = ""
        try:
            trainer.train(resume_from_checkpoint=resume)
        except Exception as problem:
            error = type(problem).__name__
        finite = all(bool(p.isfinite().all()) for p in model.parameters() if p.requires_grad)
        return {"fed": fed, "steps": trainer.state.global_step, "error": error, "finite": finite}


def stopped_in_evaluation(plain: Plain) -> dict[str, int]:
    """A stop is asked for in the first batch of an evaluation after the first step: how many batches follow."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class StopInFirst(TrainerCallback):
        batches = 0

        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.batches += 1
            control.should_training_stop = True

    callback = StopInFirst()
    arguments = TrainingArguments(
        output_dir=str(plain.folder / "stopped"),
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=1,
        prediction_loss_only=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )

    def collated(batch: list[dict[str, Any]]) -> Any:
        return collate([b["sample"] for b in batch], max(len(b["input_ids"]) for b in batch), 0)

    trainer = Trainer(
        model=build_trainable(plain.job.base_model, plain.job.training, "cpu"),
        args=arguments,
        train_dataset=plain.data,
        eval_dataset=plain.data[:6],
        data_collator=collated,
        callbacks=[callback],
    )
    trainer.train()
    return {"batches": callback.batches, "planned": 6, "steps": trainer.state.global_step}


def main() -> int:
    """All situations."""
    os.dup2(2, 1)  # it prints; the lines of a worker are not for it
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    folder = Path(sys.argv[1]).parent
    plain = Plain(job, folder)
    checkpoints = folder / "grouped"
    grouping = {"train_sampling_strategy": "group_by_length"}
    found = {"grouped": plain.train("grouped", **grouping)}
    found["grouped_resumed"] = plain.train("grouped", str(checkpoints / "checkpoint-15"), **grouping)
    other = [{**row, "id": f"other-{row['id']}"} for row in plain.data]
    found["other_data"] = plain.train("grouped", str(checkpoints / "checkpoint-20"), data=other)
    found["other_batch"] = plain.train(
        "grouped", str(checkpoints / "checkpoint-10"), per_device_train_batch_size=2, max_steps=12
    )
    (checkpoints / "checkpoint-15" / "optimizer.pt").unlink()
    found["no_optimizer"] = plain.train("grouped", str(checkpoints / "checkpoint-15"), **grouping)
    newest = max(checkpoints.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2]))
    (newest / "trainer_state.json").unlink()
    found["incomplete"] = plain.train("grouped", True)
    found["nan"] = plain.train("nan", max_steps=4, nan_at=2, save_strategy="no")
    found["masked"] = plain.train("masked", max_steps=2, masked=True, save_strategy="no")
    found["stopped_in_evaluation"] = stopped_in_evaluation(plain)
    (folder / "plain.json").write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
