"""What a training writes down: each optimizer step, what was fed, peaks of memory; and when it saves and ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from tasks.training.collate import IGNORED
from tasks.training.feed import MicroBatch
from tasks.training.logbook import MEMORY, METRICS, Logbook
from tasks.training.measure import PeakMeter
from tasks.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from tasks.training.trainer import PlannedTrainer


def describe_fed(
    batch: MicroBatch, position: int, sample_id: str, tokenizer: Any, ends: Sequence[int] = ()
) -> dict[str, Any]:
    """One sample decoded from the tensors that the model is given. `last_label` is the label of its last token.

    `parts` are its text, cut where what is learnt begins and ends; `ends_masked` counts answers whose last learnt
    token is none of `ends` (`PromptTemplate.ends`; by default the end token of the tokenizer).

    The tokens that are its own are those of the mask; in a row that it shares, those from its place to where the
    positions begin again. Padding counts with the last sample of a row.
    """
    decode: Callable[..., str] = tokenizer.decode
    stops = list(ends) or [tokenizer.eos_token_id]
    row, start = batch.planned.place(position)
    ids, labels = batch.tensors["input_ids"][row], batch.tensors["labels"][row]
    if "attention_mask" in batch.tensors:
        mask = batch.tensors["attention_mask"][row].bool()
    else:
        mask, end = _own(batch, row, start)
        ids, labels, mask = ids[start:end], labels[start:end], mask[start:end]
    ids = ids[mask]
    learnt = labels[labels != IGNORED]
    runs = _runs(ids, labels[mask] != IGNORED)
    return {
        "sample_id": sample_id,
        "text": decode(ids.tolist()),
        "learnt": decode(learnt.tolist()),
        "parts": [[decode(run.tolist()), learns] for run, learns in runs],
        "tokens": len(ids),
        "padded_tokens": len(labels),
        "learnt_tokens": len(learnt),
        "learnt_padding": int((labels[~mask] != IGNORED).sum()),
        "last_token": int(ids[-1]),
        "last_label": int(labels[mask][-1]),
        "ends_masked": sum(learns and int(run[-1]) not in stops for run, learns in runs),
        "end_token": int(ids[-1]) if int(ids[-1]) in stops else stops[0],
    }


def _runs(ids: Any, learns: Any) -> list[tuple[Any, bool]]:
    """Runs of tokens that are all learnt, or all only read, in order: a question, its answer, the next question."""
    changes = (learns[1:] != learns[:-1]).nonzero().flatten() + 1
    bounds = [0, *changes.tolist(), len(ids)]
    return [(ids[start:end], bool(learns[start])) for start, end in pairwise(bounds) if end > start]


def _own(batch: MicroBatch, row: int, start: int) -> tuple[Any, int]:
    """(which tokens of a row belong to the sample at `start`, where the next sample or the row ends)."""
    import torch

    begins = (batch.tensors["position_ids"][row] == 0).nonzero().flatten().tolist()
    starts = sorted(at for r, at in batch.planned.places if r == row)
    width = batch.planned.padded_tokens
    end = min((b for b in begins if b > start), default=width)
    following = min((s for s in starts if s > start), default=width)
    mask = torch.zeros(width, dtype=torch.bool)
    mask[start:end] = True
    return mask, following


def record_memory(logbook: Logbook, meter: PeakMeter, phase: str, step: int, ranks: Ranks = ALONE, **more: Any) -> None:
    """One line of `memory.jsonl` for each rank: the peak of a phase since its meter's last reset."""
    ours = {
        "phase": phase,
        "step": step,
        "peak_bytes": meter.peak_bytes(),
        "reserved_bytes": meter.reserved_bytes(),
        "driver_bytes": meter.driver_bytes(),
        "baseline_bytes": meter.baseline_bytes,
        "method": meter.method,
        "rank": ranks.rank,
        **more,
    }
    for line in ranks.gather(ours):
        logbook.write(MEMORY, line)


COUNTS_OF_STEP = ("tokens", "padded_tokens", "learnt_tokens", "samples")
MEMORY_OF_STEP = ("memory_bytes", "held_bytes", "reserved_bytes", "driver_bytes")


def _largest(values: Iterable[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


class Recorder(TrainerCallback):
    """Writes one line per optimizer step, and decides when to save and when to end.

    Its clock decides only when to save as well; no number of the training depends on it.
    """

    def __init__(self, trainer: PlannedTrainer, clock: Callable[[], float] = time.monotonic) -> None:
        self.trainer = trainer
        self.clock = clock
        self.began = self.computed = 0.0
        self.saved = clock()
        self.lr = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The first step is prepared: settings are read back now."""
        self.trainer.on_begin()
        self.saved = self.clock()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark where the step begins, so that it can be given up."""
        if self.trainer.job.kill_after_step == state.global_step > 0 and self.trainer.ranks.first:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        self.trainer.mark_step()
        self.trainer.meter.reset()
        self.began, self.computed = time.perf_counter(), time.process_time()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradient is complete and nothing has moved: the last moment to refuse it."""
        self.trainer.check_finite()
        self.trainer.check_spike()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """The learning rate of this step, before the scheduler moves."""
        self.lr = float(optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the step down; save and end where it is time."""
        trainer, step, job = self.trainer, state.global_step, self.trainer.job
        assert trainer.current is not None
        seconds = time.perf_counter() - self.began
        said = trainer.ranks.gather(self._ours() | {"cpu_seconds": time.process_time() - self.computed})
        record = {
            "step": step,
            "epoch": trainer.current.planned.epoch,
            "loss": trainer.step_loss,
            "grad_norm": trainer.step_grad_norm,
            "lr": self.lr,
            **{name: sum(one[name] for one in said) for name in COUNTS_OF_STEP},
            "seconds": seconds,
            "cpu_seconds": sum(one["cpu_seconds"] for one in said),
            **{name: _largest(one[name] for one in said) for name in MEMORY_OF_STEP},
        }
        if len(said) > 1:
            record["memory_bytes_by_rank"] = [one["memory_bytes"] for one in said]
        trainer.write_fed([one["fed"] for one in said])
        if trainer.skipped_in_a_row:
            record["skipped"] = True
        trainer.logbook.write(METRICS, record | trainer.spike)
        trainer.counters["tokens"] += record["tokens"]
        trainer.channel.advance(1, f"loss {trainer.step_loss:.4f}")
        state.epoch = float(trainer.current.planned.epoch)
        trainer.compare_with_before()
        trainer.end_epoch()
        trainer.after_step(step)
        stop = trainer.ranks.heard(trainer.stop, any(one["stop"] for one in said))
        end = step >= state.max_steps or step == job.stop_after_step or stop
        control.should_training_stop = end
        control.should_save = end or any(one["over"] for one in said) or self._save_planned(step)

    def _ours(self) -> dict[str, Any]:
        """What this rank has to say at the end of a step."""
        trainer = self.trainer
        assert trainer.current is not None
        batches, meter = trainer.current.micro_batches, trainer.meter
        return {
            "tokens": sum(b.tokens for b in batches),
            "padded_tokens": sum(b.padded_tokens for b in batches),
            "learnt_tokens": trainer.current.learnt_tokens,
            "samples": sum(len(b.planned.sample_ids) for b in batches),
            "memory_bytes": meter.peak_bytes(),
            "held_bytes": meter.current_bytes(),
            "reserved_bytes": meter.reserved_bytes(),
            "driver_bytes": meter.driver_bytes(),
            "stop": trainer.stop.requested(),
            "over": self._minutes_over(),
            "fed": trainer.fed,
        }

    def _minutes_over(self) -> bool:
        minutes = self.trainer.save_minutes
        return minutes is not None and self.clock() - self.saved >= 60 * minutes

    def _save_planned(self, step: int) -> bool:
        asked = step in self.trainer.job.save_at or step == self.trainer.judge_after_step
        return asked or step % self.trainer.save_steps == 0

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a save nothing is lost: the time for an evaluation."""
        self.saved = self.clock()
        self.trainer.after_save()
