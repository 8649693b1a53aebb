"""The losses that a session measures beside its steps, each with the peak of memory that it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.training.evaluation import mean_loss, sample_losses
from tasks.training.logbook import PROBES
from tasks.training.recorder import record_memory

if TYPE_CHECKING:
    from tasks.training.feed import Feed
    from tasks.training.session import Session


class Losses:
    """Measures under a session's settings; ranks share the batches, and all of them know the result."""

    def __init__(self, session: Session, feed: Feed) -> None:
        self.session = session
        self.feed = feed

    def held_out(self, model: Any, step: int) -> dict[str, float]:
        """Mean loss of each judged sample, with at most half a training micro batch and no more tokens than one."""
        session, feed = self.session, self.feed
        session.meter.reset()
        ids, training = session.job.judge_sample_ids, session.job.training
        session.channel.say(f"measuring the loss of {len(ids)} held-out samples")
        batches = feed.batches(ids, max(1, training.micro_batch // 2), feed.most_padded_tokens)
        device, stop = session.device, session.stop
        found = sample_losses(model, batches, feed.samples, device, training.compute, stop, session.ranks)
        self.record_memory("judge", step)
        return found

    def probe(self, model: Any, step: int) -> float | None:
        """Mean loss of the probe; null without one."""
        ids = self.session.job.probe_sample_ids
        return self.mean(model, ids, "probe", step)["loss"] if ids else None

    def note(self, step: int, loss: float | None) -> None:
        """A point of the probe's curve, where one is asked for. A resume may add a step again; the last one counts."""
        if self.session.job.probe_every is not None:
            self.session.logbook.write(PROBES, {"step": step, "loss": loss})

    def probe_if_due(self, model: Any, step: int) -> None:
        """The loss of the probe after every so many steps, and after the last one."""
        every = self.session.job.probe_every
        if every is not None and (step % every == 0 or step == len(self.session.steps)):
            self.note(step, self.probe(model, step))

    def mean(self, model: Any, ids: Sequence[str], phase: str, step: int) -> dict[str, Any]:
        """Mean loss of named samples, with their tokens and number."""
        session = self.session
        session.meter.reset()
        size, compute = session.job.evaluation_batch, session.job.training.compute
        session.channel.start("measuring the loss", -(-len(ids) // size))
        batches = self.feed.batches(ids, size)
        found = mean_loss(model, batches, session.device, compute, session.stop, session.channel, session.ranks)
        self.record_memory(phase, step)
        return found

    def record_memory(self, phase: str, step: int) -> None:
        """The peak since the meter was last reset, of every rank."""
        session = self.session
        record_memory(session.logbook, session.meter, phase, step, session.ranks, session=session.store.session)
