"""transformers' `Trainer`, made to take exactly the planned batches, to check before it moves, and to resume exactly.

One item of the data is one optimizer step with all its micro batches, so that steps may have any number of them.
`Trainer`'s own samplers, accumulation, checkpoint writing and resuming are not used: order comes from the plan,
state from `checkpoints.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, Trainer, TrainingArguments

from specs.errors import NotFinite, TrainingError
from tasks.interrupts import StopRequest
from tasks.training.census import ends_epoch, take_census
from tasks.training.checkpoints import Checkpoint, CheckpointStore
from tasks.training.continuity import Retrace
from tasks.training.evaluation import pinned_loss
from tasks.training.feed import Feed, MicroBatch, PlannedMicroBatch, Step
from tasks.training.job import Job
from tasks.training.logbook import CENSUS, CONTINUITY, METRICS, MICRO_BATCHES, SPIKES, Logbook
from tasks.training.measure import PeakMeter
from tasks.training.models import gradient_nodes
from tasks.training.ranks import Ranks
from tasks.training.recorder import Recorder, describe_fed, record_memory
from tasks.training.spikes import MOST_ROLL_BACKS, SpikeWindow, accepted_losses, passed_over_steps
from tasks.training.state import (
    RandomStates,
    expected_checkpoint_bytes,
    pack_random,
    put_random,
    restore_optimizer,
    restore_random,
    take_random,
    weights_checksum,
    write_state,
)
from tasks.worker_side import Channel

SCALER_PATIENCE = 20
"""Steps in a row that fp16 loss scaling may skip before it counts as not finite."""


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
        ends: Sequence[int],
        retrace: Retrace,
        ranks: Ranks,
        on_begin: Callable[[], None],
        after_step: Callable[[int], None],
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
        self.ends = ends
        self.on_begin = on_begin
        self.after_step = after_step
        self.after_save = after_save
        self.retrace = retrace
        self.ranks = ranks
        self.fed: list[dict[str, Any]] = []
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
        self.own_loss = math.nan
        self.rank_losses = [math.nan]
        self.step_loss = math.nan
        self.step_grad_norm = math.nan
        self.skipped_in_a_row = 0
        self.gradient_nodes = gradient_nodes(model)
        self.remove_callback(PrinterCallback)
        self.add_callback(Recorder(self))

    # -- order: the plan, and nothing else

    def get_train_dataloader(self) -> Any:
        """The feed itself: one item per optimizer step. No sampler, no shuffling, no random number drawn."""
        return self.feed

    def get_batch_samples(self, epoch_iterator: Iterator[Step], num_batches: int, device: Any) -> tuple[list[Any], Any]:
        """The next planned step, and the learnt tokens of all ranks as the divisor of its loss."""
        step = next(epoch_iterator, None)
        if step is None:
            raise TrainingError("the batch plan ended before the planned steps were done", "report this")
        self.current = step
        return [step], self.ranks.total(step.learnt_tokens)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Forward and backward of every micro batch of one step, weighted by learnt tokens: 1 x 8 equals 8 x 1.

        Ranks go through the step in rounds of one micro batch each, so that a stop is noticed by all in the same one.
        """
        step: Step = inputs
        self.fed = []
        total = torch.zeros((), device=self.args.device)
        for number in range(step.planned.rounds):
            if self.ranks.agree_to_stop(self.stop):
                raise StepGivenUp
            if number >= len(step.micro_batches):
                continue
            self._log_fed(step, step.micro_batches[number])
            total = total + self._micro_step(model, step.micro_batches[number], num_items_in_batch)
            if number + 1 < len(step.micro_batches):
                self.control = self.callback_handler.on_substep_end(self.args, self.state, self.control)
        self.ranks.sum_gradients(model.parameters())
        self.own_loss = float(total)
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
        """Raise `NotFinite` for a loss that is not finite or exactly zero, or a gradient that is not finite.

        Ranks look at the same sums; that they do is asked before any optimizer moves.
        """
        said = self.ranks.gather([self.own_loss, self.step_grad_norm])
        self.rank_losses = [one[0] for one in said]
        self.step_loss = math.fsum(self.rank_losses) if len(said) > 1 else self.own_loss
        loss, norm = self.step_loss, self.step_grad_norm
        if len({str(one[1]) for one in said}) > 1:
            raise TrainingError(self._fault_text("the ranks do not have the same gradient"), "report this")
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
            raise NotFinite(self._fault_text(fault), "lower lr, look at these samples, or compute in fp32 or bf16")

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
        if self.ranks.from_first(len(self.logbook.read(SPIKES))) >= MOST_ROLL_BACKS:
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
        bad = [rank for rank, loss in enumerate(self.rank_losses) if not math.isfinite(loss)]
        batches = [batch for batch in planned.micro_batches if not bad or batch.rank in bad]
        ids = [i for batch in batches for i in batch.sample_ids]
        where = f" on rank {', '.join(map(str, bad))}" if bad and self.ranks.count > 1 else ""
        shown = ", ".join(ids[:16]) + (f" and {len(ids) - 16} more" if len(ids) > 16 else "")
        last = self.checkpoint.folder.name if self.checkpoint else "none"
        return f"step {planned.step}: {fault}{where}; its samples are {shown}; the last good checkpoint is {last}"

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
        if not ends_epoch(self.feed.steps, step) or not self.ranks.first:
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
        self._require_same_weights(step)
        self.counters |= {
            "step": step,
            "epoch": done.epoch,
            "next_row": done.end_row,
            "pinned": self._pin(done.of(0)),
            "skipped_in_a_row": self.skipped_in_a_row,
            "offsets": self.logbook.offsets(),
        }
        states = self.ranks.gather(pack_random(take_random()))
        if self.ranks.first:
            self.checkpoint = self.store.publish(
                step,
                lambda folder: write_state(folder, self, self.counters, states),
                expected_checkpoint_bytes(self.model, self.job.training.optimizer),
            )
        else:
            self.checkpoint = self.store.at(step)
        record_memory(self.logbook, self.meter, "save", step, self.ranks, session=self.store.session)
        self.channel.event(saved=self.checkpoint.folder.name, step=step)

    def _pin(self, batches: tuple[PlannedMicroBatch, ...]) -> dict[str, Any] | None:
        """The loss of rank 0's last micro batch under the weights that are saved, and a meter that begins anew."""
        if not self.ranks.first:
            self.meter.reset()
            return None
        batch = self.feed.batch(batches[-1])
        loss = pinned_loss(self.model, batch, self.job_device, self.job.training.compute)
        self.meter.reset()
        return {"micro_batch": len(batches) - 1, "loss": loss}

    def _require_same_weights(self, step: int) -> None:
        """Raise `TrainingError` when the ranks have drifted apart: only one of them is saved."""
        if self.ranks.count > 1 and len(set(self.ranks.gather(weights_checksum(self.model)))) > 1:
            raise TrainingError(
                f"after step {step} the ranks do not hold the same weights",
                "nothing of it is saved: a device or a library computes wrongly; look at `gatewright doctor`",
            )

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
            restore_random(Path(checkpoint), self.ranks.rank)

    # -- what was fed

    def _log_fed(self, step: Step, batch: MicroBatch) -> None:
        """Note what is fed now: one rank writes it at once, several when the step is done, in the order of the plan."""
        number, ids = step.planned.step, list(batch.planned.sample_ids)
        line = {"step": number, "micro_batch": batch.planned.number, "rank": self.ranks.rank, "sample_ids": ids}
        described = [
            {"step": number, **describe_fed(batch, position, sample_id, self.decoder, self.ends)}
            for position, sample_id in enumerate(ids[: max(0, self.job.fed_samples - self.counters["fed"])])
        ]
        self.fed.append({"line": line, "described": described})
        if self.ranks.count == 1:
            self.write_fed([self.fed])
            self.fed = []

    def write_fed(self, by_rank: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Write what the ranks fed, merged."""
        all_fed = [fed for one in by_rank for fed in one]
        for fed in sorted(all_fed, key=lambda f: (f["line"]["micro_batch"], f["line"]["rank"])):
            self.logbook.write(MICRO_BATCHES, fed["line"])
            for described in fed["described"][: max(0, self.job.fed_samples - self.counters["fed"])]:
                self.logbook.write("fed.jsonl", described)
                self.counters["fed"] += 1
