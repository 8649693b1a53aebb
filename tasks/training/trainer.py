"""transformers' `Trainer`, made to take exactly the planned batches, to check before it moves, and to resume exactly.

One item of the data is one optimizer step with all its micro batches, so that steps may have any number of them.
`Trainer`'s own samplers, accumulation, checkpoint writing and resuming are not used: order comes from the plan,
state from `checkpoints.py`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from specs.errors import TrainingError
from specs.parameters import TrainingConfiguration
from tasks.interrupts import StopRequest
from tasks.training.checkpoints import Checkpoint, CheckpointStore
from tasks.training.collate import IGNORED
from tasks.training.feed import Feed, MicroBatch, Step
from tasks.training.job import Job
from tasks.training.logbook import Logbook
from tasks.training.measure import PeakMeter
from tasks.training.state import expected_checkpoint_bytes, restore_optimizer, restore_random, write_state
from tasks.worker_side import Channel

OPTIMIZERS = {
    "adamw": "adamw_torch",
    "adamw_fused": "adamw_torch_fused",
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}

SCALER_PATIENCE = 20
"""Steps in a row that fp16 loss scaling may skip before it counts as not finite."""


def training_arguments(training: TrainingConfiguration, steps: int, folder: Path, device: str) -> TrainingArguments:
    """Our configuration in `Trainer`'s words. Saving, order and accumulation stay with us: see the module."""
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


class PlannedTrainer(Trainer):
    """Trains the steps of a `Feed`, logs each to a `Logbook`, saves to a `CheckpointStore`."""

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        *,
        job: Job,
        feed: Feed,
        store: CheckpointStore,
        logbook: Logbook,
        meter: PeakMeter,
        channel: Channel,
        stop: StopRequest,
        counters: dict[str, Any],
        tokenizer: Any,
        on_begin: Callable[[], None],
    ) -> None:
        super().__init__(model=model, args=args)
        self.job = job
        self.feed = feed
        self.store = store
        self.logbook = logbook
        self.meter = meter
        self.channel = channel
        self.stop = stop
        self.counters = counters
        self.decoder = tokenizer
        self.on_begin = on_begin
        self.save_steps = job.training.save_steps
        self.checkpoint: Checkpoint | None = None
        self.current: Step | None = None
        self.step_loss = math.nan
        self.step_grad_norm = math.nan
        self.skipped_in_a_row = 0
        self.remove_callback(PrinterCallback)
        self.add_callback(_Recorder(self))

    # -- order: the plan, and nothing else

    def get_train_dataloader(self) -> Any:
        """The feed itself: one item per optimizer step. No sampler, no shuffling, no random number drawn."""
        return self.feed

    def get_batch_samples(self, epoch_iterator: Iterator[Step], num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """The next planned step, and its learnt tokens as the divisor of its loss."""
        step = next(epoch_iterator, None)
        if step is None:
            raise TrainingError("the batch plan ended before the planned steps were done", "report this")
        self.current = step
        return [step], step.learnt_tokens

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Forward and backward of every micro batch of one step, weighted by learnt tokens: 1 x 8 equals 8 x 1."""
        step: Step = inputs
        total: Any = None
        for micro_batch in step.micro_batches:
            last = micro_batch is step.micro_batches[-1]
            self._log_fed(step, micro_batch)
            context = contextlib.nullcontext if last else functools.partial(self.accelerator.no_sync, model=model)
            with context():
                loss = self._micro_step(model, micro_batch, num_items_in_batch)
            total = loss if total is None else total + loss
            if not last:
                self.control = self.callback_handler.on_substep_end(self.args, self.state, self.control)
        self.step_loss = float(total)
        return total

    def _micro_step(self, model: Any, batch: MicroBatch, learnt: int) -> Any:
        model.train()
        tensors = self._prepare_inputs(batch.tensors)
        with self.compute_loss_context_manager():
            loss: Any = self.compute_loss(model, tensors, num_items_in_batch=learnt)
        if not self.model_accepts_loss_kwargs:  # such a model returns the mean of this micro batch
            loss = loss * (batch.learnt_tokens / learnt)
        self.accelerator.backward(loss)
        return loss.detach()

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: `Trainer`'s estimate reads tensors that a planned step does not have."""
        return 0

    # -- finite: checked before the optimizer moves

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[no-untyped-call]
        self.step_grad_norm = float(norm)
        return norm

    def check_finite(self) -> None:
        """Raise `TrainingError` for a loss that is not finite or exactly zero, or a gradient that is not finite."""
        assert self.current is not None
        loss, norm = self.step_loss, self.step_grad_norm
        scaled = getattr(self.accelerator, "scaler", None) is not None
        fault = ""
        if not math.isfinite(loss):
            fault = f"the loss is {loss}"
        elif loss == 0.0:
            fault = "the loss is exactly zero: nothing is left to learn, or the labels are masked"
        elif not math.isfinite(norm):
            self.skipped_in_a_row += 1
            if not scaled or self.skipped_in_a_row > SCALER_PATIENCE:
                fault = f"the gradient norm is {norm}"
        else:
            self.skipped_in_a_row = 0
        if fault:
            raise TrainingError(self._fault_text(fault), "lower lr, look at these samples, or compute in fp32 or bf16")

    def _fault_text(self, fault: str) -> str:
        assert self.current is not None
        planned = self.current.planned
        ids = [i for batch in planned.micro_batches for i in batch.sample_ids]
        shown = ", ".join(ids[:16]) + (f" and {len(ids) - 16} more" if len(ids) > 16 else "")
        last = self.checkpoint.folder.name if self.checkpoint else "none"
        return f"step {planned.step}: {fault}; its samples are {shown}; the last good checkpoint is {last}"

    # -- state: complete or not there

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        assert self.current is not None
        step = self.state.global_step
        self.meter.reset()
        self.counters |= {
            "step": step,
            "epoch": self.current.planned.epoch,
            "next_row": self.current.planned.end_row,
            "skipped_in_a_row": self.skipped_in_a_row,
            "offsets": self.logbook.offsets(),
        }
        self.checkpoint = self.store.publish(
            step,
            lambda folder: write_state(folder, self, self.counters),
            expected_checkpoint_bytes(self.model, self.job.training.optimizer),
        )
        record_memory(self.logbook, self.meter, "save", step, session=self.store.session)
        self.channel.event(saved=self.checkpoint.folder.name, step=step)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Done before, by the worker, from a verified folder."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            restore_optimizer(Path(checkpoint), self)

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Done with the optimizer."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            restore_random(Path(checkpoint))

    # -- what was fed

    def _log_fed(self, step: Step, batch: MicroBatch) -> None:
        number = step.planned.step
        ids = list(batch.planned.sample_ids)
        self.logbook.write(
            "micro_batches.jsonl", {"step": number, "micro_batch": batch.planned.number, "sample_ids": ids}
        )
        fed = self.counters["fed"]
        for row, sample_id in enumerate(ids[: max(0, self.job.fed_samples - fed)]):
            self.logbook.write("fed.jsonl", {"step": number, **describe_fed(batch, row, sample_id, self.decoder)})
            self.counters["fed"] += 1


def describe_fed(batch: MicroBatch, row: int, sample_id: str, tokenizer: Any) -> dict[str, Any]:
    """One sample decoded from the tensors that the model is given. `last_label` is the label of its last token."""
    decode: Callable[..., str] = tokenizer.decode
    mask = batch.tensors["attention_mask"][row].bool()
    ids = batch.tensors["input_ids"][row][mask]
    labels = batch.tensors["labels"][row]
    learnt = labels[labels != IGNORED]
    return {
        "sample_id": sample_id,
        "text": decode(ids.tolist()),
        "learnt": decode(learnt.tolist()),
        "tokens": len(ids),
        "padded_tokens": len(labels),
        "learnt_tokens": len(learnt),
        "learnt_padding": int((labels[~mask] != IGNORED).sum()),
        "last_token": int(ids[-1]),
        "last_label": int(labels[mask][-1]),
        "end_token": tokenizer.eos_token_id,
    }


def record_memory(logbook: Logbook, meter: PeakMeter, phase: str, step: int, **more: Any) -> None:
    """One line of `memory.jsonl`: the peak of a phase since the meter's last reset."""
    logbook.write(
        "memory.jsonl",
        {
            "phase": phase,
            "step": step,
            "peak_bytes": meter.peak_bytes(),
            "reserved_bytes": meter.reserved_bytes(),
            "baseline_bytes": meter.baseline_bytes,
            "method": meter.method,
            **more,
        },
    )


class _Recorder(TrainerCallback):
    """Writes one line per optimizer step, and decides when to save and when to end. Its clock decides nothing."""

    def __init__(self, trainer: PlannedTrainer) -> None:
        self.trainer = trainer
        self.began = 0.0
        self.lr = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.on_begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.job.kill_after_step == state.global_step > 0:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        self.trainer.meter.reset()
        self.began = time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.check_finite()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.lr = float(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, step, job = self.trainer, state.global_step, self.trainer.job
        assert trainer.current is not None
        batches = trainer.current.micro_batches
        record = {
            "step": step,
            "epoch": trainer.current.planned.epoch,
            "loss": trainer.step_loss,
            "grad_norm": trainer.step_grad_norm,
            "lr": self.lr,
            "tokens": sum(b.tokens for b in batches),
            "padded_tokens": sum(b.padded_tokens for b in batches),
            "learnt_tokens": trainer.current.learnt_tokens,
            "samples": sum(len(b.planned.sample_ids) for b in batches),
            "seconds": time.perf_counter() - self.began,
            "memory_bytes": trainer.meter.peak_bytes(),
            "held_bytes": trainer.meter.current_bytes(),
            "reserved_bytes": trainer.meter.reserved_bytes(),
        }
        if trainer.skipped_in_a_row:
            record["skipped"] = True
        trainer.logbook.write("metrics.jsonl", record)
        trainer.counters["tokens"] += record["tokens"]
        trainer.channel.advance(1, f"loss {trainer.step_loss:.4f}")
        state.epoch = float(trainer.current.planned.epoch)
        end = step >= state.max_steps or step == job.stop_after_step or trainer.stop.requested()
        control.should_training_stop = end
        control.should_save = end or step % trainer.save_steps == 0 or step in job.save_at
