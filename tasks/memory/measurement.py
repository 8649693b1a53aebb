"""What the stress test measured, from the worker's logs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs.errors import WorkerError
from tasks.memory.devices import Device
from tasks.memory.worst import WorstStep

Logs = Mapping[str, Sequence[Mapping[str, Any]]]

DRIVER_SOURCE = {
    "cuda": "the driver's figure for the process (NVML), at the end of each step and phase",
    "cpu": "resident and swapped bytes of the process by the kernel, at the end of each step and phase",
}


def measurement(
    *, straight: Logs, resumed: Logs, worst: Sequence[WorstStep], planned: Mapping[int, int], device: Device
) -> dict[str, Any]:
    """Peaks by phase, worst batches that were run, growth, step times, and losses of the resumed steps.

    `planned` gives the planned step behind each run step. On a GPU peaks are allocated bytes and reserved ones stand
    beside; on a CPU they are the resident set, and allocated is what lies above the baseline before loading.
    """
    steps, memory = straight["metrics"], straight["memory"]
    if not steps or not memory:
        raise WorkerError("the training worker left no measurement", "its log is in logs/worker.log")
    baseline = int(memory[0]["baseline_bytes"])
    phases = {"train": max(int(line["memory_bytes"]) for line in steps)}
    for line in memory:
        phases[line["phase"]] = max(phases.get(line["phase"], 0), int(line["peak_bytes"]))
    session = max(int(line.get("session") or 0) for line in resumed["sessions"])
    start = int(resumed["sessions"][-1]["from_step"])
    after = [line for line in resumed["metrics"] if line["step"] > start]
    loads = [int(m["peak_bytes"]) for m in resumed["memory"] if m["phase"] == "load" and m.get("session") == session]
    phases["resume"] = max([*loads, *(int(line["memory_bytes"]) for line in after)])
    peak = max(phases.values())
    every = (*steps, *memory, *resumed["metrics"], *resumed["memory"])
    reserved = [r for line in every if (r := line.get("reserved_bytes")) is not None]
    driver = [d for line in every if (d := line.get("driver_bytes")) is not None]
    heaviest = [line for line in steps if planned.get(line["step"]) == worst[0].step]
    cuda = device.kind == "cuda"
    return {
        "device": device.kind,
        "method": memory[0]["method"],
        "baseline_bytes": baseline,
        "usable_bytes": device.usable_bytes,
        "usable_source": device.usable_source,
        "peak_bytes": peak,
        "peak_allocated_bytes": peak if cuda else peak - baseline,
        "peak_reserved_bytes": max(reserved) if reserved else None,
        "peak_process_bytes": None if cuda else peak,
        "peak_driver_bytes": max(driver) if driver else None,
        "driver_source": DRIVER_SOURCE[device.kind] if driver else "the driver does not tell this process apart",
        "phases": dict(sorted(phases.items())),
        "worst": [
            {
                "why": list(w.why),
                "planned_step": w.step,
                "padded_tokens": w.padded_tokens,
                "longest": w.longest,
                "run_steps": sorted(number for number, step in planned.items() if step == w.step),
                "measured_steps": sorted(line["step"] for line in steps if planned.get(line["step"]) == w.step),
            }
            for w in worst
        ],
        "growth_bytes": [int(line["memory_bytes"]) for line in heaviest],
        "growth_held_bytes": [int(line["held_bytes"]) for line in heaviest if line.get("held_bytes") is not None],
        "seconds_by_step": {str(line["step"]): float(line["seconds"]) for line in steps},
        "resume": _resume(steps, after, start),
    }


def _resume(straight: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], start: int) -> dict[str, Any]:
    wanted = {line["step"]: line["loss"] for line in straight if line["step"] > start}
    found = {line["step"]: line["loss"] for line in after}
    same = wanted.keys() == found.keys() and bool(wanted)
    difference = max(abs(found[step] - wanted[step]) for step in wanted) if same else None
    return {"from_step": start, "steps": sorted(found), "loss_difference": difference}
