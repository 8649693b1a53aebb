"""What a stress test records: allocated, reserved and driver bytes apart, each of its own source; growth and resume."""

from __future__ import annotations

from typing import Any

import pytest

from specs.errors import WorkerError
from tasks.memory.devices import Device
from tasks.memory.measurement import measurement
from tasks.memory.worst import WorstStep

WORST = [
    WorstStep(7, ("most_padded_tokens", "longest_sample"), 4000, 900),
    WorstStep(3, ("heaviest_micro_batch",), 9, 9),
]
PLANNED = {1: 7, 2: 7, 3: 7, 4: 3}


def device(kind: Any) -> Device:
    return Device(kind=kind, name="d", count=1, usable_bytes=10_000, usable_source="given", physical_cores=1, bf16=True)


def logs(cuda: bool, drop: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Three runs of the heaviest step and one of another, then a save, an evaluation; losses fall by `drop`."""

    def line(peak: int, **more: Any) -> dict[str, Any]:
        beside = {"reserved_bytes": peak + 200, "driver_bytes": peak + 700} if cuda else {"driver_bytes": peak + 5}
        return beside | more

    steps = [
        line(1000 + 10 * n, step=n, memory_bytes=1000 + 10 * n, held_bytes=500 + n, seconds=0.5, loss=4.0 - n - drop)
        for n in (1, 2, 3, 4)
    ]
    memory = [
        line(peak, phase=phase, peak_bytes=peak, baseline_bytes=100, method="m", session=2)
        for phase, peak in (("load", 800), ("save", 900), ("evaluate", 1300))
    ]
    return {"metrics": steps, "memory": memory, "sessions": [{"session": 2, "from_step": 3}]}


def measured(kind: str, drop: int = 0) -> dict[str, Any]:
    cuda = kind == "cuda"
    return measurement(straight=logs(cuda), resumed=logs(cuda, drop), worst=WORST, planned=PLANNED, device=device(kind))


def test_on_a_gpu_allocated_reserved_and_driver_bytes_are_kept_apart():
    found = measured("cuda")
    assert (found["peak_allocated_bytes"], found["peak_reserved_bytes"], found["peak_driver_bytes"]) == (
        1300,
        1500,
        2000,
    )
    assert found["peak_process_bytes"] is None
    assert "NVML" in found["driver_source"]


def test_on_a_cpu_allocated_is_what_lies_above_the_baseline_and_nothing_is_called_reserved():
    found = measured("cpu")
    assert (found["peak_allocated_bytes"], found["peak_reserved_bytes"], found["peak_process_bytes"]) == (
        1200,
        None,
        1300,
    )
    assert found["peak_driver_bytes"] == 1305


def test_every_phase_has_its_own_peak_and_growth_is_of_the_heaviest_step_alone():
    found = measured("cuda")
    assert found["phases"] == {"evaluate": 1300, "load": 800, "resume": 1040, "save": 900, "train": 1040}
    assert found["growth_bytes"] == [1010, 1020, 1030]
    assert found["growth_held_bytes"] == [501, 502, 503]
    assert [w["measured_steps"] for w in found["worst"]] == [[1, 2, 3], [4]]


def test_a_resume_is_compared_step_by_step_with_what_went_straight_through():
    assert measured("cuda")["resume"] == {"from_step": 3, "steps": [4], "loss_difference": 0.0}
    assert measured("cuda", 1)["resume"]["loss_difference"] == 1.0


def test_a_worker_that_left_nothing_is_an_error_with_a_place_to_look():
    nothing: dict[str, list[dict[str, Any]]] = {"metrics": [], "memory": [], "sessions": []}
    with pytest.raises(WorkerError) as raised:
        measurement(straight=nothing, resumed=nothing, worst=WORST, planned=PLANNED, device=device("cpu"))
    assert "worker.log" in raised.value.hint
