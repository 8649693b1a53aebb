"""The recording process: `python -m tasks.planning.families_program job.json`. Torch is read only here.

Torch is imported once; then the process divides itself, one part for each core, where the system can do that. Every
family becomes a file as soon as it is recorded, and has a mark from when it was begun: whoever started the process
knows what is left, and what was at work, however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.canonical import digest
from specs.errors import InputError, OutOfMemory, WorkerError
from specs.files import write_bytes
from tasks.memory.estimate_program import quiet_libraries, told, without_bitsandbytes
from tasks.planning.families import UNRECORDED, begun_of, file_of
from tasks.worker_side import STOP_POLL_S, Channel, work

if TYPE_CHECKING:
    from tasks.interrupts import StopRequest
    from tasks.memory.family import Family
    from tasks.memory.recording import Steps


def body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
    """Record the families of a job into its folder, each under its number, or why there is none."""
    job = json.loads(job_file.read_bytes())
    parts = shares(job["settings"], job["numbers"], int(job["parts"]) if hasattr(os, "fork") else 1)
    quiet_libraries()
    import tasks.memory.recording

    assert tasks.memory.recording  # read before the parts go their own ways
    with _beside(parts[1:], job, channel, stop):
        _record(parts[0], job, channel, stop)
    left = [number for number in job["numbers"] if not file_of(job["folder"], number).exists()]
    if left:
        channel.say(f"a part of the recording process ended early: {len(left)} families are recorded again")
    for number in left:
        _record([[number]], job, channel, stop)
    channel.result(families=len(job["numbers"]), repeated=len(left))


@contextmanager
def _beside(
    parts: Sequence[list[list[int]]], job: dict[str, Any], channel: Channel, stop: StopRequest
) -> Iterator[None]:
    """The other parts, in copies of this process, while the block runs; waits for them. How they end is told by what
    they leave behind."""
    original, copies = os.getpid(), list[int]()
    try:
        for part in parts:
            copy = os.fork()
            if not copy:
                _only_record(original, part, job, channel, stop)
            copies.append(copy)
        yield
    finally:
        _wait(copies, stop)


def _wait(copies: list[int], stop: StopRequest) -> None:
    """Until all have ended. Nobody else tells a copy of a request to stop: they are ended by it."""
    while copies and not stop.wait(STOP_POLL_S):
        copies = [copy for copy in copies if os.waitpid(copy, os.WNOHANG) == (0, 0)]
    for copy in copies:
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


def _only_record(
    original: int, part: list[list[int]], job: dict[str, Any], channel: Channel, stop: StopRequest
) -> None:
    """The life of a copy: it records and ends, without what the original does at its end."""
    code = 1
    try:
        _end_with(original)
        _record(part, job, channel, stop)
        code = 0
    finally:
        os._exit(code)


def _end_with(original: int) -> None:
    """A copy does not listen for the end of whoever asked: it looks whether its original is still there."""
    import threading
    import time

    def watch() -> None:
        while os.getppid() == original:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="original", daemon=True).start()


def _record(part: Sequence[Sequence[int]], job: dict[str, Any], channel: Channel, stop: StopRequest) -> None:
    for numbers in part:
        steps = None
        for number in numbers:
            stop.raise_if_requested("recording families")
            begun_of(job["folder"], number).touch()
            try:
                family = recorded(job["settings"][number], job["optimizers"], int(job["longest"]), steps)
            except (InputError, WorkerError) as error:
                document: dict[str, Any] = {UNRECORDED: _told(error)}
            else:
                steps, document = family.steps, family.model_dump(mode="json")
            write_bytes(file_of(job["folder"], number), json.dumps(document).encode())
            channel.advance()


def _told(error: InputError | WorkerError) -> dict[str, str]:
    """What to say of a family that cannot be recorded. Too little memory is no fault of the family: raised again."""
    if isinstance(error, OutOfMemory):
        raise error
    return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}


def shares(settings: Sequence[dict[str, Any]], numbers: Sequence[int], parts: int) -> list[list[list[int]]]:
    """Which of the numbered families each part records, those that differ in checkpointing only together: they share
    their optimizers' steps. The costliest first, each group to the part with the least to do."""
    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(digest({**settings[number], "activation_checkpointing": None}), []).append(number)

    def cost(members: Sequence[int]) -> float:
        return sum((1.0 if settings[n]["method"] == "full" else 1.5) for n in members)

    found: list[list[list[int]]] = [[] for _ in range(max(1, parts))]
    for group in sorted(groups.values(), key=lambda members: (-cost(members), members)):
        min(found, key=lambda part: sum(map(cost, part))).append(group)
    return found


def recorded(settings: dict[str, Any], optimizers: Sequence[Any], longest: int, steps: Steps | None) -> Family:
    """One family."""
    quiet_libraries()
    from tasks.memory.recording import family
    from tasks.memory.settings import TraceSettings

    wanted = TraceSettings.model_validate(settings)
    with told(wanted, "recorded"):
        return family(wanted, optimizers, longest, steps)


if __name__ == "__main__":
    without_bitsandbytes()
    sys.exit(work(body))
