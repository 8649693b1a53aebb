"""What work took on this machine, for the times that later sheets expect: measured at each stage, kept in the home.

The file is `costs.jsonl` in `GATEWRIGHT_HOME`, one line for each piece of work of any project. It names no project and
holds no data; without it the next times are expected by rules of thumb and by the project's own runs.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ValidationError
from pydantic_core import from_json

from agents.operations import products_of
from agents.times import setting_of
from agents.work import training_work
from specs.base import Language
from specs.bilingual import Texts
from specs.canonical import canonical_bytes
from specs.costs import COUNTING, STAGE_SECONDS, Took
from specs.files import read_lines, write_bytes
from specs.parameters import TrainingConfiguration
from specs.places import home
from specs.proposals import Proposal
from tasks.models.resolve import ResolvedModel
from tasks.processor import Meter
from tasks.training.logbook import METRICS, MICRO_BATCHES, SESSIONS

_TEXTS = Texts(
    {
        "unknown": (
            "what this stage took cannot be read from its files ({error}): it teaches the next sheets nothing",
            "无法从文件中得出本阶段的用时（{error}）：后续任务单不以此为依据",
        ),
    }
)

VERSION = 1
KEPT, MOST = 500, 1000
"""Lines that stay when the file is shortened, and how many it may have before."""
READ = 24
"""Pieces of work of a kind that a prediction takes, the newest ones."""
SHORTEST_STEPS = 4
"""Steps that a piece of training needs: fewer say little, as the first of a session warms up."""


def costs_file() -> Path:
    """Where the costs of this machine are kept."""
    return home() / "costs.jsonl"


@cache
def machine() -> str:
    """The name under which rates of this machine hold: its device and processor."""
    from tasks.memory import this_device

    device = this_device()
    return f"{device.kind}: {device.name}, {_processor()}, {device.physical_cores} cores"


def _processor() -> str:
    """The model of the processor as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


# -- what a stage took


def took_and_why_not(
    proposal: Proposal, folder: Path, meter: Meter, model: ResolvedModel | None, language: Language, *, whole: bool
) -> tuple[list[Took], list[str]]:
    """What an attempt took, or in words why that is not known: a stage that ran is not lost with its times."""
    try:
        return took_of(proposal, folder, meter, model, whole=whole), []
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        return [], [_TEXTS(language, "unknown", error=f"{type(error).__name__}: {error}".splitlines()[0][:200])]


def took_of(proposal: Proposal, folder: Path, meter: Meter, model: ResolvedModel | None, *, whole: bool) -> list[Took]:
    """What an attempt took: the whole stage where it ran from its beginning to its end in one go (`whole`), and its
    training steps where they are of the base model. `folder` is that of the attempt."""
    stage, found = proposal.stage, []
    work = next((e.work for e in proposal.expected if e.metric == STAGE_SECONDS), None)
    if whole and work and meter.wall_s > 0:
        cpu_s = meter.cpu_s if meter.alone else None
        own = "" if stage == "data" or model is None else model.sha256
        found.append({"kind": "stage", "work": work, "wall_s": meter.wall_s, "cpu_s": cpu_s, "model": own})
    asked, trained = proposal.parameters.get("training"), proposal.parameters.get("model")
    if asked and model is not None and trained in (None, model.source):
        training = TrainingConfiguration.model_validate(asked)
        about = {"kind": "steps", "model": model.sha256, "setting": setting_of(training)}
        found += [{**piece, **about} for piece in steps_of(folder / "artifacts", model.folder, training)]
    if not found:
        return []
    common = {"stage": stage, "device": machine(), "others_cpu_share": meter.others, "counting": COUNTING}
    return [Took.model_validate({**piece, **common}) for piece in found]


def steps_of(artifacts: Path, model: Path, training: TrainingConfiguration) -> Iterator[dict[str, Any]]:
    """The training steps of an attempt in two pieces, those with light and those with heavy micro batches: together
    they tell what a micro batch costs beside its tokens. Nothing where there are too few."""
    products = products_of(model)
    lines = read_lines(artifacts / METRICS, missing_ok=True)
    passes: dict[int, int] = {}
    for line in read_lines(artifacts / MICRO_BATCHES, missing_ok=True):
        passes[line["step"]] = passes.get(line["step"], 0) + (line.get("rank", 0) == 0)
    sessions = read_lines(artifacts / SESSIONS, missing_ok=True)
    first = {line["from_step"] + 1 for line in sessions if "from_step" in line}
    steps = [s for s in lines if s["step"] not in first and passes.get(s["step"]) and s.get("seconds")]
    if products is None or len(steps) < SHORTEST_STEPS:
        return
    steps.sort(key=lambda s: s["padded_tokens"] / passes[s["step"]])
    half = len(steps) // 2
    for piece in (steps[:half], steps[half:]):
        tokens = sum(s["padded_tokens"] for s in piece)
        squares = sum(s["padded_tokens"] ** 2 / s["samples"] for s in piece)
        passed = sum(passes[s["step"]] for s in piece)
        work = training_work(products, training, tokens, squares / tokens, passed)
        yield {"work": work, "wall_s": sum(float(s["seconds"]) for s in piece), **_computed(piece)}


def _computed(steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Processor seconds of some steps, and the most processors that they kept busy; nothing where none were counted."""
    if any(s.get("cpu_seconds") is None for s in steps):
        return {}
    busy = sorted(float(s["cpu_seconds"]) / float(s["seconds"]) for s in steps)
    return {"cpu_s": sum(float(s["cpu_seconds"]) for s in steps), "cores": busy[int(0.9 * (len(busy) - 1))]}


# -- the home's record


def remember(pieces: Sequence[Took]) -> str:
    """Append to the home's record; returns what went wrong, in words, where it could not be written.

    A stage that ran is not lost because its times cannot be kept.
    """
    if not pieces:
        return ""
    data = b"".join(canonical_bytes({"version": VERSION, **p.model_dump(mode="json")}) + b"\n" for p in pieces)
    file = costs_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", timeout=10):
            torn = file.is_file() and not file.read_bytes().endswith(b"\n")  # by a loss of power: a line of its own
            with file.open("ab") as target:
                target.write(b"\n" * torn + data)
                target.flush()
                os.fsync(target.fileno())
            lines = file.read_bytes().splitlines(keepends=True)
            if len(lines) > MOST:
                write_bytes(file, b"".join(lines[-KEPT:]))
    except (OSError, TimeoutError, NotImplementedError) as error:  # the last: a file system without locks
        return f"{file} cannot be written ({error}): what this stage took teaches the next sheets nothing"
    return ""


def remembered(device: str | None = None) -> tuple[list[Took], int]:
    """(what work took on this machine, newest first; lines that cannot be read and teach nothing)."""
    try:
        lines = [line for line in costs_file().read_bytes().split(b"\n") if line.strip()]
    except OSError:
        return [], 0
    device = machine() if device is None else device
    found: list[Took] = []
    counts: dict[tuple[str, str], int] = {}
    unread = 0
    for line in reversed(lines):
        try:
            fields = from_json(line)
            newer = fields.pop("version") > VERSION
            took = Took.model_validate(fields) if not newer else None
        except (ValueError, ValidationError, KeyError, TypeError, AttributeError):
            unread += 1
            continue
        kind = (took.kind, took.stage if took.kind == "stage" else "") if took else None
        if took is None or kind is None or counts.get(kind, 0) >= READ:
            continue
        if (took.device, took.counting) != (device, COUNTING):
            continue
        counts[kind] = counts.get(kind, 0) + 1
        found.append(took)
    return found, unread
