"""Climbing the ladder with real workers. Every rung is written down at once, so that a killed climb goes on with it."""

from __future__ import annotations

from pathlib import Path

from specs.errors import InputError, OutOfMemory, TrainingError, WorkerError
from specs.files import read_lines, write_bytes
from specs.parameters import TrainingConfiguration
from tasks.stress.ladder import Result, Rung, changes
from tasks.stress.neighbours import others, told
from tasks.stress.trial import Bench, Trial, prepare, process_peak, run
from tasks.worker_ends import WorkerDied

RECORD = "ladder.jsonl"


class Climber:
    """The hands of a ladder. `limit` is the share of usable memory above which a way up has gone too far."""

    def __init__(self, bench: Bench, approved: TrainingConfiguration, limit: float) -> None:
        self.bench = bench
        self.approved = approved
        self.limit = limit
        self.folder = bench.context.checkpoints_dir
        self.rungs: list[Rung] = []
        self.trials: dict[int, Trial] = {}
        self.before = read_rungs(self.folder / RECORD)

    def attempt(self, rung: str, training: TrainingConfiguration, longest: int | None = None) -> Result:
        """Run a configuration, or take what a climb that was cut off has found about it."""
        number = len(self.rungs) + 1
        trial = self.trials[number] = prepare(self.bench, self.folder / f"{number:03d}", training, longest)
        known = self._known(rung, training, longest)
        if known is not None:
            self.rungs.append(known)
            return known.outcome
        if rung != "approved":
            self.bench.progress.say(f"ladder: {rung}, {_said(changes(self.approved, training), longest)}")
        outcome, why = self._run(trial)
        peak, usable = process_peak(trial, self.bench.device), self.bench.device.usable_bytes
        if outcome == "runs" and peak is not None and peak > self.limit * usable:
            outcome, why = "above_limit", f"it took {peak / usable:.0%} of usable memory, the limit is {self.limit:.0%}"
        self._write(rung, training, outcome, why, longest=longest, peak_bytes=peak, usable_bytes=usable)
        return outcome

    def _run(self, trial: Trial) -> tuple[Result, str]:
        try:
            run(trial, self.bench)
        except OutOfMemory as error:
            done = len(trial.logs(trial.straight)["metrics"])
            trial.forget_steps()
            self.bench.progress.say(error.message)
            return "out_of_memory", f"{error.message} (after {done} of {len(trial.plan.planned)} steps)"
        except (InputError, WorkerError, TrainingError) as error:
            killed = isinstance(error, WorkerDied) and error.signal_number is not None
            if trial.training == self.approved or killed:  # not the ladder's to judge
                raise
            trial.forget_steps()
            return "failed", error.message
        return "runs", ""

    def note(self, rung: str, outcome: Result, why: str, training: TrainingConfiguration) -> None:
        """Write down a rung at which nothing is run."""
        known = self._known(rung, training, None)
        if known is not None:
            self.rungs.append(known)
        else:
            self._write(rung, training, outcome, why)

    def name_processes(self) -> None:
        """Write down who else holds memory of the device; nobody is touched."""
        known = self._known("processes", self.approved, None)
        if known is not None:
            self.rungs.append(known)
            return
        found = others(self.bench.device)
        self.bench.progress.say(told(found))
        self._write("processes", self.approved, "named", told(found), processes=found)

    def taken(self, training: TrainingConfiguration) -> tuple[Trial, list[Rung]]:
        """The trial of the configuration that is taken, and all rungs with that one marked."""
        number = max(
            rung.number
            for rung in self.rungs
            if rung.number in self.trials and rung.longest is None and self.trials[rung.number].training == training
        )
        marked = [rung.model_copy(update={"taken": rung.number == number}) for rung in self.rungs]
        self._store(marked)
        for other, trial in self.trials.items():
            if other != number:
                trial.forget_steps()
        return self.trials[number], marked

    def _known(self, rung: str, training: TrainingConfiguration, longest: int | None) -> Rung | None:
        """What an earlier climb wrote at this place, when it was the same; after something else its rest is void."""
        if len(self.rungs) >= len(self.before):
            return None
        known = self.before[len(self.rungs)]
        if (known.rung, known.changes, known.longest) == (rung, changes(self.approved, training), longest):
            return known
        self.before = self.before[: len(self.rungs)]
        return None

    def _write(self, rung: str, training: TrainingConfiguration, outcome: Result, why: str, **more: object) -> None:
        found = {"number": len(self.rungs) + 1, "rung": rung, "changes": changes(self.approved, training), **more}
        self.rungs.append(Rung.model_validate({**found, "outcome": outcome, "why": why}))
        self._store(self.rungs)

    def _store(self, rungs: list[Rung]) -> None:
        write_rungs(self.folder / RECORD, rungs)


def write_rungs(path: Path, rungs: list[Rung]) -> None:
    """`ladder.jsonl`, whole or not at all."""
    write_bytes(path, "".join(rung.model_dump_json() + "\n" for rung in rungs).encode())


def read_rungs(path: Path) -> list[Rung]:
    """The rungs that were written down; none where there is no file."""
    if not path.is_file():
        return []
    return [Rung.model_validate(line) for line in read_lines(path)]


def _said(changed: dict[str, object], longest: int | None) -> str:
    parts = [f"{path} {value}" for path, value in changed.items()]
    return ", ".join([*parts, *([f"samples of at most {longest} tokens"] if longest else [])]) or "as approved"
