"""Cut a training off at drawn moments, resume it, and compare it with the one that was never cut off."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.errors import EXIT_INTERNAL
from specs.parameters import TrainingConfiguration
from tests.support.forked import train
from tests.support.samples import make_job, small_training, training_samples

WATCHED = "tests.training.moments"

COMPARED = ("metrics.jsonl", "micro_batches.jsonl", "fed.jsonl", "census.jsonl", "probe.json", "judgement.json")
"""Equal byte by byte; of `metrics.jsonl` all but times and memory."""

MEASURED = {
    "seconds",
    "cpu_seconds",
    "memory_bytes",
    "memory_bytes_by_rank",
    "held_bytes",
    "reserved_bytes",
    "driver_bytes",
}

TARGETS = ("rank", "family", "parent")
"""Who is hit: the rank itself, all of them with their parent, or the parent alone."""


@dataclass(frozen=True)
class Moment:
    """Where a training is cut off. `resumed`: in its second session, so that loading means loading a checkpoint.

    Of several ranks, `rank` is the one at which the moment is counted, and `target` who is hit then.
    """

    region: str
    number: int
    signal: str
    resumed: bool
    rank: int = 0
    target: str = "rank"

    def __str__(self) -> str:
        what = f"{self.signal}-{self.region.replace(' ', '-')}-{self.number}{'-resumed' if self.resumed else ''}"
        return what if self.target == "rank" and self.rank == 0 else f"{what}-{self.target}-at-rank{self.rank}"


def matrix_training(**changes: Any) -> TrainingConfiguration:
    """Dropout, length buckets, accumulation, a schedule, two epochs of seven steps cut to ten, saves every third."""
    return small_training(**{"max_steps": 10, "save_steps": 3, "early_judgement": "note", **changes})


def matrix_job(folder: Path, model: Path, samples: Path, training: TrainingConfiguration, **changes: Any) -> Path:
    """A job with a probe and an early judgement after the first epoch (of six samples a step: seven steps)."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(samples, folder / "samples.parquet")
    held_out = [i for i, _ in training_samples(samples, "eval")]
    steps = -(-len(training_samples(samples)) // training.effective_batch)
    judging = {"judge_after_step": steps, "judge_sample_ids": held_out}
    return make_job(folder, model, training, probe_sample_ids=held_out[:4], **{**judging, **changes})


class Matrix:
    """The reference, what a killed training left, and the number of moments by region of a first and second session."""

    def __init__(self, folder: Path, model: Path, samples: Path, training: TrainingConfiguration) -> None:
        self.folder, self.model, self.samples, self.training = folder, model, samples, training
        straight = self._job("straight")
        assert train(straight, WATCHED).code == 0
        self.reference = straight.parent / "out"
        killed = self._job("killed", kill_after_step=5)
        assert train(killed).code in (-signal.SIGKILL, EXIT_INTERNAL)  # that of a parent whose rank was killed
        self.killed = killed.parent
        again = self._resumed_job("again")
        assert train(again, WATCHED).code == 0
        self.counts = {False: counts(straight), True: counts(again)}
        self.by_rank = {
            resumed: [counts(job, rank) for rank in range(training.ranks)]
            for resumed, job in ((False, straight), (True, again))
        }

    def _job(self, name: str, **changes: Any) -> Path:
        return matrix_job(self.folder / name, self.model, self.samples, self.training, **changes)

    def other_job(self, name: str, training: TrainingConfiguration) -> Path:
        """What the killed training left, with another configuration."""
        return self._resumed_job(name, training)

    def _resumed_job(self, name: str, training: TrainingConfiguration | None = None) -> Path:
        job = matrix_job(self.folder / name, self.model, self.samples, training or self.training)
        for part in ("out", "checkpoints"):
            shutil.copytree(self.killed / part, job.parent / part)
        return job

    def draw(self, signal_name: str, per_region: Mapping[str, int], seed: int) -> Iterator[Moment]:
        """Moments of each region, every second one in a session that resumes, spread evenly at random."""
        rng = random.Random(f"moments {seed} {signal_name}")
        for region, wanted in per_region.items():
            for k in range(wanted):
                resumed = k % 2 == 1
                total = int(0.98 * self.counts[resumed][region])
                yield Moment(region, 1 + int((k + rng.random()) / wanted * total), signal_name, resumed)

    def draw_ranks(self, signal_name: str, wanted: int, seed: int) -> Iterator[Moment]:
        """Moments over all regions and ranks in turn, of a first and of a second session, whoever is hit in turn."""
        rng = random.Random(f"moments of ranks {seed} {signal_name}")
        places = [(region, rank) for region in self.counts[False] for rank in range(self.training.ranks)]
        for k in range(wanted):
            region, rank = places[k % len(places)]
            resumed = (k // len(places) + k) % 2 == 1
            total = self.by_rank[resumed][rank].get(region, 0)
            if total:
                number = 1 + int(rng.random() * 0.98 * total)
                yield Moment(region, number, signal_name, resumed, rank, TARGETS[k % len(TARGETS)])

    def run(self, moment: Moment) -> str:
        """Cut off there, resume, compare; what differs, empty when nothing does. The folder is deleted if so."""
        name = str(moment)
        job = self._resumed_job(name) if moment.resumed else self._job(name)
        asked = {name: getattr(moment, name) for name in ("region", "number", "signal", "rank", "target")}
        (job.parent / "moment.json").write_text(json.dumps(asked))
        first = train(job, WATCHED)
        if not (job.parent / "reached.txt").exists():
            return f"the moment was not reached; the worker ended with {first.code}"
        killed = (-signal.SIGKILL, EXIT_INTERNAL) if self.training.ranks > 1 else (-signal.SIGKILL,)
        if moment.signal == "SIGKILL" and first.code not in killed:
            return f"the killed worker ended with {first.code}"
        if moment.signal != "SIGKILL":
            if first.code not in (0, 130):
                return f"the stopped worker ended with {first.code}: {first.said[-1:]}"
            if first.code == 130 and first.error()["class"] != "Stopped":
                return f"the stopped worker said {first.error()}"
        second = train(job)
        if second.code != 0:
            return f"the resumed worker ended with {second.code}: {second.said[-1:]}"
        found = differences(self.reference, job.parent / "out")
        if not found:
            shutil.rmtree(job.parent)
        return found


def counts(job: Path, rank: int = 0) -> dict[str, int]:
    """Moments by region of a watched run."""
    name = f"counts-rank{rank}.json" if rank else "counts.json"
    found: dict[str, int] = json.loads((job.parent / name).read_text())
    return found


def differences(one: Path, other: Path) -> str:
    """What differs between the outputs of two trainings; empty when losses, order, counts and weights are equal."""
    wrong = [name for name in COMPARED if content(one / name) != content(other / name)]
    kind = "model" if (one / "model").is_dir() else "adapter"
    weights = sorted(p.name for p in (one / kind).iterdir())
    wrong += [n for n in weights if content(one / kind / n) != content(other / kind / n)]
    return ", ".join(wrong)


def content(path: Path) -> Any:
    """The bytes of a file, without what a clock or the memory of the process brings."""
    if path.name != "metrics.jsonl" or not path.exists():
        return path.read_bytes() if path.exists() else None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v.hex() if isinstance(v, float) else v for k, v in r.items() if k not in MEASURED} for r in lines]
