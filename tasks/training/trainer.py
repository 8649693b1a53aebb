"""transformers' `Trainer`, made to take exactly the planned batches, to check before it moves, and to resume exactly.

One item of the data is one optimizer step with all its micro batches, so that steps may have any number of them.
`Trainer`'s own samplers, accumulation, checkpoint writing and resuming are not used: order comes from the plan,
state from `checkpoints.py`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, Trainer, TrainingArguments

from specs.errors import TrainingError
from specs.parameters import TrainingConfiguration
from tasks.interrupts import StopRequest
from tasks.training.census import ends_epoch, take_census
from tasks.training.checkpoints import Checkpoint, CheckpointStore
from tasks.training.continuity import Retrace
from tasks.training.evaluation import pinned_loss
from tasks.training.feed import Feed, MicroBatch, Step
from tasks.training.job import Job
from tasks.training.logbook import CENSUS, CONTINUITY, METRICS, MICRO_BATCHES, SPIKES, Logbook
from tasks.training.measure import PeakMeter
from tasks.training.recorder import Recorder, describe_fed, record_memory
from tasks.training.spikes import MOST_ROLL_BACKS, SpikeWindow, accepted_losses, passed_over_steps
from tasks.training.state import (
    RandomStates,
    expected_checkpoint_bytes,
    put_random,
    restore_optimizer,
    restore_random,
    take_random,
    write_state,
)
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


class StepGivenUp(Exception):
    """A stop was asked for between two micro batches: what the step has done so far is taken back."""


class RolledBack(Exception):
    """A spike sends the training back to its newest checkpoint."""

    def __init__(self, step: int, to_step: int) -> None:
        super().__init__(f"a spike at step {step}: back to step {to_step}")
        self.step = step
        self.to_step = to_step


@dataclass(frozen=True)
class StepMark:
    """Where a step began: the only things that it changes before the optimizer moves."""

    random: RandomStates
    sizes: dict[str, int]
    fed: int


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
        retrace: Retrace,
        on_begin: Callable[[], None],
        after_save: Callable[[], None],
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
        self.after_save = after_save
        self.retrace = retrace
        self.save_steps = job.training.save_steps
        self.save_minutes = job.training.save_minutes
        self.spike_action = job.training.spikes
        self.judge_after_step = job.judge_after_step
        self.window = SpikeWindow(accepted_losses(logbook.read(METRICS)))
        self.passed_over = passed_over_steps(logbook.read(SPIKES))
        self.spike: dict[str, Any] = {}
        self.mark: StepMark | None = None
        self.checkpoint: Checkpoint | None = None
        self.current: Step | None = None
        self.step_loss = math.nan
        self.step_grad_norm = math.nan
        self.skipped_in_a_row = 0
        self.remove_callback(PrinterCallback)
        self.add_callback(Recorder(self))

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
            if self.stop.requested():
                raise StepGivenUp
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

    def check_spike(self) -> None:
        """Record a loss far above those before it, and do what the configuration says.

        A step that is not used keeps its place: it is fed, counted and logged, and the optimizer does not move.
        Raises `RolledBack`, or `TrainingError` for a spike that ends the training.
        """
        step, loss, limit = self.state.global_step + 1, self.step_loss, self.window.threshold()
        self.spike = {}
        if step in self.passed_over:
            self.spike = {"spike": "passed over"}
            self._drop_gradients()
            return
        if self.skipped_in_a_row or not self.window.is_spike(loss):
            return
        assert limit is not None
        fault = f"the loss is {loss:.4f}, a spike above {limit:.4f}"
        self.channel.say(f"step {step}: {fault}")
        if self.spike_action == "stop":
            raise TrainingError(self._fault_text(fault), "look at these samples, or lower lr; spikes: note goes on")
        if self.spike_action == "roll_back":
            self._roll_back(step, loss, limit, fault)
        self.spike = {"spike": "noted", "spike_above": limit}
        if self.spike_action == "skip":
            self.spike["spike"] = "skipped"
            self._drop_gradients()

    def _roll_back(self, step: int, loss: float, limit: float, fault: str) -> None:
        if len(self.logbook.read(SPIKES)) >= MOST_ROLL_BACKS:
            raise TrainingError(
                self._fault_text(f"{fault}, after {MOST_ROLL_BACKS} roll backs"), "going back does not help: lower lr"
            )
        to_step = self.checkpoint.step if self.checkpoint else 0
        line = {"session": self.store.session, "step": step, "to_step": to_step, "loss": loss, "above": limit}
        self.logbook.write(SPIKES, line)
        raise RolledBack(step, to_step)

    def _drop_gradients(self) -> None:
        """Optimizers leave a parameter without a gradient where it is, decay included."""
        model: Any = self.model
        for parameter in model.parameters():
            parameter.grad = None

    def _fault_text(self, fault: str) -> str:
        assert self.current is not None
        planned = self.current.planned
        ids = [i for batch in planned.micro_batches for i in batch.sample_ids]
        shown = ", ".join(ids[:16]) + (f" and {len(ids) - 16} more" if len(ids) > 16 else "")
        last = self.checkpoint.folder.name if self.checkpoint else "none"
        return f"step {planned.step}: {fault}; its samples are {shown}; the last good checkpoint is {last}"

    # -- a stop in the middle of a step

    def mark_step(self) -> None:
        """Remember what the step that begins will change before the optimizer moves."""
        self.mark = StepMark(take_random(), self.logbook.sizes(), self.counters["fed"])

    def give_up_step(self) -> None:
        """Take back what a step has done before its optimizer moved, and save: resume trains it again, bit for bit."""
        assert self.mark is not None
        model: Any = self.model
        model.zero_grad()
        put_random(self.mark.random)
        self.logbook.cut(self.mark.sizes)
        self.counters["fed"] = self.mark.fed
        step = int(self.state.global_step)
        if step > 0 and (self.checkpoint is None or self.checkpoint.step != step):
            self._save_checkpoint(model, None)

    # -- proofs on the way

    def compare_with_before(self) -> None:
        """A step that was trained before the interruption must bring the same loss. Raises `ResumeRefused`."""
        if self.retrace.compare(int(self.state.global_step), self.step_loss):
            self.logbook.write(
                CONTINUITY,
                {
                    "session": self.store.session,
                    "proof": "steps trained again",
                    "steps": self.retrace.compared,
                    "largest_difference": self.retrace.largest,
                },
            )

    def end_epoch(self) -> None:
        """At the last step of an epoch, its census. Raises `TrainingError` unless each sample was fed exactly once."""
        step = int(self.state.global_step)
        if not ends_epoch(self.feed.steps, step):
            return
        epoch, fed = self.feed.steps[step - 1].epoch, self.logbook.read(MICRO_BATCHES)
        census = take_census(epoch, self.feed.steps, fed, whole_plan=self.job.whole_plan)
        self.logbook.write(CENSUS, census.model_dump(mode="json"))
        if census.fault:
            raise TrainingError(census.fault, "report this: the plan is the only source of order")

    # -- state: complete or not there

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        step = int(self.state.global_step)
        done = self.feed.steps[step - 1]
        pinned = self.feed.batch(done.micro_batches[-1])
        loss = pinned_loss(self.model, pinned, self.job_device, self.job.training.compute)
        self.meter.reset()
        self.counters |= {
            "step": step,
            "epoch": done.epoch,
            "next_row": done.end_row,
            "pinned": {"micro_batch": len(done.micro_batches) - 1, "loss": loss},
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

    @property
    def job_device(self) -> str:
        """`cuda` or `cpu`: where the model computes."""
        return str(self.args.device.type)

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
        self.logbook.write(MICRO_BATCHES, {"step": number, "micro_batch": batch.planned.number, "sample_ids": ids})
        fed = self.counters["fed"]
        for position, sample_id in enumerate(ids[: max(0, self.job.fed_samples - fed)]):
            self.logbook.write("fed.jsonl", {"step": number, **describe_fed(batch, position, sample_id, self.decoder)})
            self.counters["fed"] += 1
