"""The recording process: `python -m tasks.planning.families_program job.json [RANK ...]`. Torch is read only here."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.canonical import digest
from specs.errors import InputError, OutOfMemory, WorkerError
from specs.files import write_bytes
from tasks.memory.estimate_program import quiet_libraries, told
from tasks.planning.families import UNRECORDED
from tasks.worker_side import Channel, work

if TYPE_CHECKING:
    from tasks.interrupts import StopRequest
    from tasks.memory.family import Family
    from tasks.memory.recording import Steps


def body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
    """Record this rank's part of the job into `out`.RANK: families by their numbers in it, or why there is none."""
    job = json.loads(job_file.read_bytes())
    rank = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = {}
    for numbers in shares(job["settings"], int(job["ranks"]))[rank]:
        steps = None
        for number in numbers:
            stop.raise_if_requested("recording families")
            try:
                family = recorded(job["settings"][number], job["optimizers"], int(job["longest"]), steps)
            except (InputError, WorkerError) as error:
                found[number] = {UNRECORDED: _told(error)}
            else:
                steps, found[number] = family.steps, family.model_dump(mode="json")
            channel.advance()
    write_bytes(Path(f"{job['out']}.{rank}"), json.dumps(found).encode())
    channel.result(families=len(found))


def _told(error: InputError | WorkerError) -> dict[str, str]:
    """What to say of a family that cannot be recorded. Too little memory is no fault of the family: raised again."""
    if isinstance(error, OutOfMemory):
        raise error
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def shares(settings: Sequence[dict[str, Any]], ranks: int) -> list[list[list[int]]]:
    """Which families each rank records, those that differ in checkpointing only together: they share their steps.

    The costliest first, each group to the rank with the least to do.
    """
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(settings):
        groups.setdefault(digest({**one, "activation_checkpointing": None}), []).append(number)

    def cost(numbers: Sequence[int]) -> float:
        return sum((1.0 if settings[n]["method"] == "full" else 1.5) for n in numbers)

    parts: list[list[list[int]]] = [[] for _ in range(ranks)]
    for group in sorted(groups.values(), key=lambda numbers: (-cost(numbers), numbers)):
        min(parts, key=lambda part: sum(map(cost, part))).append(group)
    return parts


def recorded(settings: dict[str, Any], optimizers: Sequence[Any], longest: int, steps: Steps | None) -> Family:
    """One family."""
    quiet_libraries()
    from tasks.memory.recording import family
    from tasks.memory.settings import TraceSettings

    wanted = TraceSettings.model_validate(settings)
    with told(wanted, "recorded"):
        return family(wanted, optimizers, longest, steps)


if __name__ == "__main__":
    sys.exit(work(body))
