"""A family that the model code cannot run is refused with the reason, and the rest of the search goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from flows.plan_words import Answer, notes
from specs.errors import ModelError, OutOfMemory
from tasks.interrupts import STOP
from tasks.memory.family import Family
from tasks.memory.settings import TraceSettings
from tasks.planning import families_program
from tasks.planning.families import UNRECORDED, Families, Unrecorded, families_for, key_of
from tasks.planning.plans import Limits
from tasks.planning.search import search, wanted_families
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


def job(folder: Path, settings: list[TraceSettings]) -> Path:
    """As `families_for` writes it, for one process."""
    file = folder / "job.json"
    document = {"settings": [s.model_dump() for s in settings], "optimizers": ["adamw_fused"], "longest": 512}
    file.write_text(json.dumps({**document, "out": str(folder / "out"), "ranks": 1}), encoding="utf-8")
    return file


def test_what_the_model_code_says_of_a_family_is_kept_and_the_others_are_recorded(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr("sys.argv", ["families_program", "job"])
    full = TraceSettings(architecture=SMALL, method="full", weights="bf16", compute="bf16")
    nameless = full.model_copy(update={"method": "lora", "targets": ["no_such_layer"]})
    families_program.body(job(tmp_path, [nameless, full]), Channel(io.StringIO()), STOP)
    found = json.loads((tmp_path / "out.0").read_bytes())
    assert Family.model_validate(found["1"]).settings.method == "full"
    error = Unrecorded.model_validate(found["0"][UNRECORDED]).error
    assert isinstance(error, ModelError)
    assert "no_such_layer" in error.message
    assert "Traceback" not in error.message


def test_too_little_memory_is_no_fault_of_a_family(tmp_path: Path, monkeypatch: Any):
    def killed(*_: Any) -> None:
        raise OutOfMemory("out of memory: the kernel killed it")

    monkeypatch.setattr("sys.argv", ["families_program", "job"])
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
