"""A family that the model code cannot run is refused with the reason, and the rest of the search goes on."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flows.plan_words import Answer, notes
from specs.errors import ModelError, OutOfMemory, Stopped
from specs.stages import Quiet
from tasks import workers
from tasks.interrupts import STOP, StopRequest
from tasks.memory.family import Family
from tasks.memory.settings import TraceSettings
from tasks.planning import families, families_program
from tasks.planning.families import UNRECORDED, Families, Unrecorded, begun_of, families_for, file_of, key_of
from tasks.planning.plans import Limits
from tasks.planning.search import search, wanted_families
from tasks.worker_ends import WorkerDied
from tasks.worker_side import Channel
from tests.planning.conftest import SMALL, WORKLOAD, machine_of

MIB = 2**20
LIMITS = Limits(optimizers=("adamw_fused",))
WHY = Unrecorded(kind="WorkerError", message="the memory of a llama model cannot be recorded: no such layer", hint="h")


def without(families: Families, method: str) -> Families:
    """The same where one method cannot be recorded."""
    return {k: f if isinstance(f, Family) and f.settings.method != method else WHY for k, f in families.items()}


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("usable", [2**33, 512 * MIB + 60 * MIB, 512 * MIB + 1])
def test_the_rest_is_searched_as_if_it_were_not_there(families: Families, usable: int, cards: int):
    """Feasible plans of other methods are the same, and no way out leads to what cannot be run."""
    whole = search("small", SMALL, machine_of(usable, cards), WORKLOAD, LIMITS, families)
    found = search("small", SMALL, machine_of(usable, cards), WORKLOAD, LIMITS, without(families, "qlora"))
    assert found.plans == [p for p in whole.plans if p.configuration.method != "qlora"]
    nameless = [p for p in found.refused if p.account is None]
    assert {p.configuration.method for p in nameless} == {"qlora"}
    assert all(p.refused and p.refused.unrecorded == WHY.message and not p.refused.way_out for p in nameless)
    assert found.refused[-len(nameless) :] == nameless, "those that could fit come first"
    steps = [s for p in found.refused if p.refused for s in p.refused.way_out]
    assert "qlora" not in {s.lever for s in steps}


@pytest.mark.parametrize(("language", "word"), [("en", "not searched"), ("zh", "未搜索")])
def test_each_kind_is_counted_and_its_reason_said_once(families: Families, language: Any, word: str):
    machine = machine_of(2**33)
    found = search("small", SMALL, machine, WORKLOAD, LIMITS, without(families, "qlora"))
    told = [line for line in notes(Answer(found, machine, WORKLOAD, LIMITS), language) if word in line]
    assert len(told) == 1
    assert WHY.message in told[0]
    assert told[0].count("qlora") == 2, "with and without checkpointing"
    assert str(sum(p.account is None for p in found.refused)) in told[0]


def job(folder: Path, settings: list[TraceSettings], parts: int = 1) -> Path:
    """As `families_for` writes it."""
    file = folder / "job.json"
    document = {"settings": [s.model_dump() for s in settings], "optimizers": ["adamw_fused"], "longest": 512}
    asked = {"numbers": list(range(len(settings))), "folder": str(folder), "parts": parts}
    file.write_text(json.dumps({**document, **asked}), encoding="utf-8")
    return file


FULL = TraceSettings(architecture=SMALL, method="full", weights="bf16", compute="bf16")


def test_where_nothing_can_be_kept_it_is_said_once_and_the_search_goes_on(
    families: Families, tmp_path: Path, monkeypatch: Any
):
    from tasks.planning import families as module

    recorded = {k: f for k, f in families.items() if isinstance(f, Family)}
    documents = {k: json.loads(f.model_dump_json()) for k, f in recorded.items()}
    said: list[str] = []
    progress = Quiet()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path / "file" / "home"))
    monkeypatch.setattr(module, "_record", lambda *_: documents)
    monkeypatch.setattr(progress, "say", said.append)
    found = families_for([f.settings for f in recorded.values()], LIMITS.optimizers, 1024, progress)
    assert found == recorded
    assert len(said) == 1
    assert "not kept for the next time" in said[0]
    assert str(tmp_path) in said[0]


def test_what_the_model_code_says_of_a_family_is_kept_and_the_others_are_recorded(tmp_path: Path):
    nameless = FULL.model_copy(update={"method": "lora", "targets": ["no_such_layer"]})
    families_program.body(job(tmp_path, [nameless, FULL]), Channel(io.StringIO()), STOP)
    found = [json.loads(file_of(tmp_path, number).read_bytes()) for number in (0, 1)]
    assert Family.model_validate(found[1]).settings.method == "full"
    error = Unrecorded.model_validate(found[0][UNRECORDED]).error
    assert isinstance(error, ModelError)
    assert "no_such_layer" in error.message
    assert "Traceback" not in error.message


def test_what_a_part_that_is_killed_leaves_is_recorded_by_the_process_itself(tmp_path: Path, monkeypatch: Any):
    original = os.getpid()

    def recorded(settings: dict[str, Any], *_: Any) -> None:
        if os.getpid() != original:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ModelError(f"asked for {settings['method']}", "h")

    monkeypatch.setattr(families_program, "recorded", recorded)
    said = io.StringIO()
    asked = job(tmp_path, [FULL, FULL.model_copy(update={"method": "lora"})], parts=2)
    families_program.body(asked, Channel(said), STOP)
    found = [json.loads(file_of(tmp_path, number).read_bytes())[UNRECORDED] for number in (0, 1)]
    assert [one["message"] for one in found] == ["asked for full", "asked for lora"]
    assert json.loads(said.getvalue().splitlines()[-1])["repeated"] == 1


def test_a_stop_ends_the_other_parts_too(tmp_path: Path, monkeypatch: Any):
    original, stop = os.getpid(), StopRequest()

    def recorded(settings: dict[str, Any], *_: Any) -> None:
        if os.getpid() != original:
            time.sleep(600)
        stop.request("a test")
        raise ModelError("asked for", "h")

    monkeypatch.setattr(families_program, "recorded", recorded)
    asked = job(tmp_path, [FULL, FULL.model_copy(update={"method": "lora"})], parts=2)
    began = time.monotonic()
    with pytest.raises(Stopped):
        families_program.body(asked, Channel(io.StringIO()), stop)
    assert time.monotonic() - began < 300, "the other part was not waited for"


class Dying:
    """Runs a job as the recording process does, and is killed at some of the families, every time or once."""

    def __init__(self, at: dict[int, int]) -> None:
        self.at = at
        self.runs = 0

    def __call__(self, program: str, job: Path, *_: Any, **__: Any) -> dict[str, Any]:
        self.runs += 1
        asked = json.loads(job.read_bytes())
        for number in asked["numbers"]:
            begun_of(asked["folder"], number).touch()
            if self.at.get(number, 0) > 0:
                self.at[number] -= 1
                raise WorkerDied("the worker was killed", "its log", 9)
            file_of(asked["folder"], number).write_text(json.dumps({UNRECORDED: WHY.model_dump()}), encoding="utf-8")
        return {}


def recorded_by(process: Any, monkeypatch: Any, count: int = 3) -> tuple[list[str], list[str]]:
    """The messages of so many families, and what was said meanwhile."""
    monkeypatch.setattr(workers, "run_worker", process)
    told = Told()
    wanted = [FULL.model_copy(update={"rank": n + 1}) for n in range(count)]
    found = families._record(wanted, ["adamw_fused"], 512, told, [str(n) for n in range(count)])
    return [found[str(n)][UNRECORDED]["message"] for n in range(count)], told.lines


class Told(Quiet):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_process_that_dies_is_started_again_with_what_is_left(monkeypatch: Any):
    process = Dying({1: 1})
    found, told = recorded_by(process, monkeypatch)
    assert found == [WHY.message] * 3
    assert process.runs == 2
    assert [line for line in told if "2 of 3 families are recorded again" in line]


def test_what_ends_a_process_twice_is_left_out_with_the_reason_and_the_rest_is_recorded(monkeypatch: Any):
    found, _ = recorded_by(Dying({0: 5, 2: 5}), monkeypatch)
    assert found[1] == WHY.message
    assert all("two processes ended" in found[n] and "the worker was killed" in found[n] for n in (0, 2))


def test_a_process_that_dies_before_it_began_anything_ends_the_search(monkeypatch: Any):
    def dies(*_: Any, **__: Any) -> None:
        raise WorkerDied("the worker was killed", "its log", 9)

    with pytest.raises(WorkerDied):
        recorded_by(dies, monkeypatch)


def test_too_little_memory_is_no_fault_of_a_family(tmp_path: Path, monkeypatch: Any):
    def killed(*_: Any) -> None:
        raise OutOfMemory("out of memory: the kernel killed it")

    monkeypatch.setattr(families_program, "recorded", killed)
    with pytest.raises(OutOfMemory):
        families_program.body(job(tmp_path, [TraceSettings(architecture=SMALL)]), Channel(io.StringIO()), STOP)


@pytest.mark.slow
def test_where_nothing_can_be_recorded_the_model_is_at_fault(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path))
    machine = machine_of(2**33)
    limits = LIMITS.model_copy(update={"targets": ("no_such_layer",)})
    wanted = wanted_families(SMALL, machine, WORKLOAD, limits)
    found = families_for(wanted, LIMITS.optimizers, 512)
    assert {isinstance(found[key_of(s)], Unrecorded) for s in wanted if s.method == "lora"} == {True}
    assert {isinstance(found[key_of(s)], Family) for s in wanted if s.method == "full"} == {True}
    with pytest.raises(ModelError, match="no_such_layer"):
        families_for([s for s in wanted if s.method == "lora"], LIMITS.optimizers, 512)
    unknown = [s.model_copy(update={"architecture": {"model_type": "no_such_model"}}) for s in wanted[:1]]
    with pytest.raises(ModelError):
        families_for(unknown, LIMITS.optimizers, 512)
