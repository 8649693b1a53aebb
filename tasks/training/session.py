"""One start of the training worker: from its newest checkpoint, or from nothing, to its end or to a stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from transformers import set_seed

from specs.canonical import sha256_file
from specs.errors import InputError, ModelError, ResumeRefused, Stopped, TrainingError
from specs.files import write_json
from specs.resuming import Changed
from tasks.data.batch_plan import PlanRow, read_plan
from tasks.interrupts import StopRequest
from tasks.models.folder import digest_model
from tasks.positions import require_within
from tasks.prompts import PromptTemplate
from tasks.training.arguments import training_arguments
from tasks.training.changes import changes, require_confirmed
from tasks.training.checkpoints import Checkpoint, CheckpointStore, Passed
from tasks.training.continuity import Retrace
from tasks.training.feed import Feed, check_lengths, group_steps, read_samples
from tasks.training.job import Job, WorkerResult
from tasks.training.judgement import GO_ON, JUDGEMENT, Judgement, judge
from tasks.training.limit import limit_memory
from tasks.training.logbook import CONTINUITY, METRICS, SESSIONS, SPIKES, Logbook
from tasks.training.losses import Losses
from tasks.training.measure import PeakMeter
from tasks.training.models import build_trainable, check_possible, choose_device, export, load_parent
from tasks.training.packing import chosen_batch
from tasks.training.proofs import check_training, prove_continuity, prove_packing, require_whole_census
from tasks.training.ranks import ALONE, Ranks
from tasks.training.settings import (
    effective_settings,
    library_versions,
    recorded_settings,
    requested_settings,
    settings_document,
    tokenizer_digest,
    without_effect,
)
from tasks.training.spikes import passed_over_steps
from tasks.training.state import expected_checkpoint_bytes, read_counters, restore_weights
from tasks.training.trainer import PlannedTrainer, StepGivenUp
from tasks.worker_side import Channel, ends_at_once

NOTHING_LOST = "nothing was trained since the last start, nothing is lost"


class Session:
    """Everything one worker does with its job. `trainer_type` is a parameter of the class for tests of faults."""

    trainer_type: type[PlannedTrainer] = PlannedTrainer

    def __init__(
        self,
        job: Job,
        store: CheckpointStore,
        logbook: Logbook,
        channel: Channel,
        stop: StopRequest,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.job = job
        self.store = store
        self.logbook = logbook
        self.channel = channel
        self.stop = stop
        self.device = choose_device()
        self.counters: dict[str, Any] = {
            "step": 0,
            "tokens": 0,
            "fed": 0,
            "probe_before": None,
            "judge_before": None,
        }

    def run(self) -> WorkerResult:
        """Train what is left of the plan. Raises `Stopped` when asked to stop, with everything saved."""
        _no_bars()
        check_possible(self.job.training, self.device)
        torch.set_num_threads(self.job.training.threads)
        with ends_at_once(self.stop, self.channel, NOTHING_LOST):
            self.store.session = self.ranks.from_first(self.store.session)
            if self.ranks.first:  # the others read the same files of the same machine, after it
                self._verify_inputs()
            rows = read_plan(self.job.plan)
            self.steps = group_steps(rows, self.ranks.count)
            checkpoint, passed = self._newest()
        self._begin(checkpoint, passed)
        with ends_at_once(self.stop, self.channel, NOTHING_LOST):
            template = PromptTemplate.load(self.job.base_model)
            feed = self._feed(rows, template)
            self.meter = PeakMeter(self.device)
            self.losses = Losses(self, feed)
            if not limit_memory(self.job.memory_limit_bytes, self.device):
                self.channel.say("this system cannot hold a process to a limit of memory: it runs without")
            model = self._model(checkpoint)
        with self.meter:
            trainer = self._trainer(model, feed, template, checkpoint)
            if self.ranks.agree_to_stop(self.stop):
                self.stop.raise_if_requested(NOTHING_LOST)
            done = self._train(trainer, feed, checkpoint)
            newest = trainer.checkpoint.folder.name if trainer.checkpoint else ""
            result = WorkerResult(
                steps=done,
                planned=len(self.steps),
                resumed_from=checkpoint.step if checkpoint else 0,
                checkpoint=newest,
                finished=done == len(self.steps),
            )
            if result.finished:
                self._finish(trainer, feed)
        if self.ranks.first:
            write_json(self.job.out / "result.json", result)
        return result

    # -- before

    def _verify_inputs(self) -> None:
        """Digests before anything is opened: base model and samples are those that the job names."""
        if sha256_file(self.job.samples) != self.job.samples_sha256:
            raise InputError(f"{self.job.samples.name} is not the file of the data stage", "run the data stage again")
        self.channel.start("checking the base model")
        if digest_model(self.job.base_model) != self.job.base_model_sha256:
            raise ModelError(
                f"the base model in {self.job.base_model} has changed since the run began",
                "put the old files back, or start a new run",
            )

    def _newest(self) -> tuple[Checkpoint | None, list[Passed]]:
        """The newest checkpoint that verifies: rank 0 reads every file of it, the others take its word."""
        checkpoint, passed = self.store.newest() if self.ranks.first else (None, [])
        told = {"step": checkpoint and checkpoint.step, "passed": [p.model_dump(mode="json") for p in passed]}
        told = self.ranks.from_first(told)
        if not self.ranks.first and told["step"] is not None:
            checkpoint = self.store.at(told["step"])
        return checkpoint, [Passed.model_validate(p) for p in told["passed"]]

    def _begin(self, checkpoint: Checkpoint | None, passed: Sequence[Passed]) -> None:
        """Go on from a checkpoint: the logbook is cut to it, and this session is written down."""
        damaged = [p for p in passed if p.name.isdecimal()]
        if checkpoint is None and damaged:
            raise ResumeRefused(
                "no checkpoint can be resumed exactly: " + "; ".join(f"{p.name}: {p.reason}" for p in damaged),
                f"restore the files, or delete {self.store.folder} to train from the beginning",
            )
        devices = self.ranks.gather(self._device_facts()["name"])
        device = devices[0] if len(set(devices)) == 1 else ", ".join(devices)
        self.recorded = recorded_settings(self.job, device, tokenizer_digest(self.job.base_model))
        self.confirmed: list[Changed] = []
        if checkpoint:
            found = read_counters(checkpoint.folder)
            self.confirmed = changes(found.pop("settings"), self.recorded)
            require_confirmed(self.confirmed, self.job.out, self.store.folder, writes=self.ranks.first)
            self.counters = found
        self.counters["settings"] = self.recorded
        self.logbook.drop_unfinished()
        self.retrace = self._retrace()
        self.logbook.cut(self.counters.get("offsets", {}))
        if self.ranks.first and self.counters["step"] < (self.job.judge_after_step or 0):
            (self.job.out / JUDGEMENT).unlink(missing_ok=True)  # it is made again when its step is reached again
        self._write_session(checkpoint, passed)
        self.ranks.meet()  # what is cut is cut before another rank reads it

    def _retrace(self) -> Retrace:
        """The steps that were trained after the checkpoint and are trained again; none that a roll back changes.

        Rank 0 compares; what it reads here, the others may find cut already.
        """
        if not self.ranks.first:
            return Retrace([], self.device, self.job.training.compute)
        after = self.logbook.read_after(METRICS, self.counters.get("offsets", {}).get(METRICS, 0))
        changed = passed_over_steps(self.logbook.read(SPIKES))
        same = [line for line in after if line["step"] not in changed or line.get("spike") == "passed over"]
        return Retrace(same, self.device, self.job.training.compute, elsewhere=bool(self.confirmed))

    def _write_session(self, checkpoint: Checkpoint | None, passed: Sequence[Passed]) -> None:
        self.logbook.write(
            SESSIONS,
            {
                "session": self.store.session,
                "from_step": checkpoint.step if checkpoint else 0,
                "checkpoint": checkpoint.folder.name if checkpoint else None,
                "passed_over": [p.model_dump(mode="json") for p in passed],
                "confirmed": [row.model_dump(mode="json") for row in self.confirmed],
                "threads": torch.get_num_threads(),
                "ranks": self.ranks.count,
                "device": self._device_facts(),
                "versions": library_versions(),
            },
        )

    def _device_facts(self) -> dict[str, Any]:
        if self.device == "cpu":
            return {"kind": "cpu", "name": torch.backends.cpu.get_cpu_capability()}
        properties = torch.cuda.get_device_properties(0)
        return {
            "kind": "cuda",
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }

    def _feed(self, rows: Sequence[PlanRow], template: PromptTemplate) -> Feed:
        self.channel.start("encoding the planned samples")
        mine = [row for row in rows if row.rank == self.ranks.rank]
        wanted = {row.sample_id for row in mine}
        proven = chosen_batch(self.steps) if self.ranks.first else None  # rank 0 proves it, whoever trains it
        wanted |= set(proven.sample_ids if proven else ())
        wanted |= {*self.job.probe_sample_ids, *self.job.evaluation_sample_ids, *self.job.judge_sample_ids}
        samples = read_samples(self.job.samples, wanted, template)
        check_lengths(mine, samples)
        lengths = {i: len(sample.input_ids) for i, sample in samples.items()}
        require_within(lengths, self.job.base_model, self.job.base_model_name or self.job.base_model.name)
        pad = template.tokenizer.pad_token_id
        end = int(template.tokenizer.eos_token_id)
        pad_id = end if pad is None else int(pad)
        return Feed(self.steps, samples, pad_id, self.counters["step"], self.ranks.rank)

    def _model(self, checkpoint: Checkpoint | None) -> Any:
        """What is trained, with the weights of the checkpoint, else those of the parent, else new ones."""
        self.channel.start("loading the base model")
        model = build_trainable(self.job.base_model, self.job.training, self.device)
        if checkpoint:
            restore_weights(checkpoint.folder, model)
        elif self.job.parent is not None:
            load_parent(model, self.job.parent, self.job.parent_sha256)
        return model

    def _trainer(
        self, model: Any, feed: Feed, template: PromptTemplate, checkpoint: Checkpoint | None
    ) -> PlannedTrainer:
        self.losses.record_memory("load", self.counters["step"])
        self.store.require_space_for_run(expected_checkpoint_bytes(model, self.job.training.optimizer))
        trainer = self.trainer_type(
            model,
            training_arguments(self.job.training, len(self.steps), self.job.out, self.device),
            job=self.job,
            feed=feed,
            store=self.store,
            logbook=self.logbook,
            meter=self.meter,
            channel=self.channel,
            stop=self.stop,
            counters=self.counters,
            tokenizer=template.tokenizer,
            ends=template.ends,
            retrace=self.retrace,
            ranks=self.ranks,
            on_begin=lambda: self._write_settings(trainer),
            after_step=lambda step: self.losses.probe_if_due(trainer.model, step),
            after_save=lambda: self._judge_if_due(trainer, feed),
        )
        trainer.checkpoint = checkpoint
        if not self.ranks.first:  # other dropout than rank 0; a checkpoint brings back where it stood
            set_seed(self.job.training.seed + self.ranks.rank)
            return trainer
        prove_packing(self.job, trainer.model, feed, self.device)
        if checkpoint and (pinned := self.counters.get("pinned")):  # older checkpoints pin no batch
            elsewhere = bool(self.confirmed)
            proof = prove_continuity(self.job, trainer.model, feed, self.device, checkpoint, pinned, elsewhere)
            self.logbook.write(CONTINUITY, {"session": self.store.session, **proof})
        return trainer

    def _write_settings(self, trainer: PlannedTrainer) -> None:
        """`settings.json`; raises `TrainingError` when a setting that was asked for has no effect."""
        rank = self.ranks.rank
        own = (len(trainer.feed.samples[i].input_ids) for s in self.steps for b in s.of(rank) for i in b.sample_ids)
        longest = max(self.ranks.gather(max(own, default=0)))
        if not self.ranks.first:
            return
        effective = effective_settings(self.job, trainer, self.steps, longest)
        write_json(self.job.out / "settings.json", settings_document(self.job, effective, self._device_facts()))
        faults = without_effect(requested_settings(self.job.training), effective)
        if faults:
            raise TrainingError(
                "settings without effect: " + "; ".join(faults), "change or remove them, or report this"
            )

    # -- training

    def _train(self, trainer: PlannedTrainer, feed: Feed, checkpoint: Checkpoint | None) -> int:
        """Steps done at the end of this session, counted over the whole training."""
        done, planned = int(self.counters["step"]), len(self.steps)
        if done == 0 and self.counters["probe_before"] is None:
            self.counters["probe_before"] = self.losses.probe(trainer.model, 0)
            self.losses.note(0, self.counters["probe_before"])
        if done == 0 and self.job.judge_after_step is not None:
            self.counters["judge_before"] = self.losses.held_out(trainer.model, 0)
        self._judge_if_due(trainer, feed)
        end = min(self.job.stop_after_step or planned, planned)
        if done < end:
            self.channel.start("training", planned)
            self.channel.advance(done)
            given_up = self._run_trainer(trainer, checkpoint)
            done = int(trainer.state.global_step)
        else:
            given_up = ""
            trainer.create_optimizer_and_scheduler(planned)
            trainer.state.max_steps = planned
            self._write_settings(trainer)
        if done < end and self.stop.requested():
            if trainer.checkpoint is None:
                self.stop.raise_if_requested(NOTHING_LOST)
            raise Stopped(
                f"stopped on request ({self.stop.reason}) after step {done} of {planned}{given_up}; checkpoint "
                f"{trainer.checkpoint.folder.name if trainer.checkpoint else ''} holds everything",
                "`gatewright resume` goes on with the next step",
            )
        if done != end:
            raise TrainingError(f"the training ended after {done} of {end} steps", "report this: it must not happen")
        return done

    def _run_trainer(self, trainer: PlannedTrainer, checkpoint: Checkpoint | None) -> str:
        """Train; returns what is to be said about a step that a stop cut off."""
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        except StepGivenUp:
            trainer.give_up_step()
            return f" (step {int(trainer.state.global_step) + 1} had begun; it is trained again from its start)"
        return ""

    # -- the early judgement

    def _judge_if_due(self, trainer: PlannedTrainer, feed: Feed) -> None:
        """Right after the save of its step, by this session or the one that resumes there. Raises `TrainingError` when
        the verdict is stop, or ask and nobody was asked yet."""
        job, path = self.job, self.job.out / JUDGEMENT
        at = trainer.checkpoint.step if trainer.checkpoint else 0
        if at == 0 or at != job.judge_after_step or self.ranks.agree_to_stop(self.stop):
            return
        made = self.ranks.from_first(json.loads(path.read_bytes()) if path.is_file() else None)
        if made is not None:
            found, asked = Judgement.model_validate(made), True
        else:
            now = self.losses.held_out(trainer.model, at)
            before = self.counters["judge_before"] or {}
            epoch = self.steps[at - 1].epoch
            found = judge(before, now, step=at, epoch=epoch, bound=job.judge_bound, too_long=job.judge_too_long)
            asked = False
            if self.ranks.first:
                write_json(path, found)
            if self.ranks.first and found.change is not None and found.change < 0:
                self.store.pin(at, f"held-out loss {found.now:.6f} nats per token, the lowest that was measured")
        self.channel.say(f"early judgement: {found.verdict}; {found.words}")
        if job.training.early_judgement != "act" or not job.judge_acts or found.verdict in ("go on", "not judged"):
            return
        if self.ranks.from_first((job.out / GO_ON).is_file()):
            self.channel.say("a person decided that it goes on")
            return
        if found.verdict == "stop":
            raise TrainingError(
                f"early judgement: stop; {found.words}",
                "`gatewright resume --anew` proposes other settings; `gatewright go-on --as WHO -m WHY` lets it go on. "
                "The checkpoint is kept",
            )
        if not asked:
            raise TrainingError(
                f"early judgement: the rest is for a person to decide; {found.words}",
                "`gatewright resume` goes on with the next step; `gatewright resume --anew` proposes other settings",
            )

    # -- after

    def _finish(self, trainer: PlannedTrainer, feed: Feed) -> None:
        """The last step is saved: what is lost from here on is only made again."""
        step = len(self.steps)
        if self.ranks.first:
            require_whole_census(self.steps, self.logbook)
        after = self.losses.probe(trainer.model, step)
        ids = self.job.evaluation_sample_ids
        evaluated = self.losses.mean(trainer.model, ids, "evaluate", step) if ids else {}
        if not self.ranks.first:
            return
        probe = {"before": self.counters["probe_before"], "after": after, "sample_ids": self.job.probe_sample_ids}
        write_json(self.job.out / "probe.json", probe)
        if ids:
            write_json(self.job.out / "evaluation.json", evaluated | {"batch": self.job.evaluation_batch})
        if self.job.checks:
            check_training(trainer, feed)
        export(trainer.model, self.job.base_model, self.job.base_model_name, self.job.out)


def _no_bars() -> None:
    """The libraries' own progress bars are off: ours is the parent's."""
    from transformers.utils import logging

    disable: Any = logging.disable_progress_bar
    disable()
