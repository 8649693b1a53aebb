"""The worker of an added stage: `python -m tasks.added.worker order.json` runs its task, or its command.

It is a process of its own without secrets. A task that does not end within `GRACE_S` of a stop request, or of its time
limit, is ended; a command gets SIGTERM first.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs.added import in_package
from specs.errors import EXIT_STOPPED, InputError, Stopped, WorkerError
from specs.words import harmless
from tasks.added.job import Answer, Order
from tasks.interrupts import StopRequest
from tasks.worker_side import Channel, work

GRACE_S = 30.0
POLL_S = 0.1
MOST_OF_A_LINE = 65_536
MOST_SAID = 300
MOST_ANSWERED = 1 << 20


def body(path: Path, channel: Channel, stop: StopRequest) -> None:
    """Run what the order names and send its answer."""
    order = Order.model_validate_json(path.read_bytes())
    os.chdir(order.cwd)
    if order.command is not None:
        answer = _command(order, channel, stop)
    else:
        _watch(order, channel, stop)
        answer = _answer(_function(order)(order.job, channel), order.task or "")
    channel.result(answer=answer.model_dump(mode="json"))


def _function(order: Order) -> Callable[..., Any]:
    task = order.task or ""
    if in_package(task, order.packages) is None:
        raise InputError(f"{task} lies in no allowed package", f"allowed are: {', '.join(order.packages)}")
    module, _, name = task.partition(":")
    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported: {error}", "install what it needs, or correct its name"
        ) from None
    except AttributeError:
        raise InputError(f"{module} has no function {name}", "correct its name in project.yaml") from None
    return function


def _answer(said: Any, who: str) -> Answer:
    """What a task returned, or a command wrote. Raises `WorkerError` for what is no answer."""
    try:
        return said if isinstance(said, Answer) else Answer.model_validate(said or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise WorkerError(
            f"{who} answered what is no answer: {where}: {first['msg']}",
            'an answer is {"metrics": {name: number or null}, "reasons": {...}, "notes": [...]}; docs/stages.md',
        ) from None


def _watch(order: Order, channel: Channel, stop: StopRequest) -> None:
    """End a task that outlives a stop request or its time limit: what it wrote is left and never used."""

    def over() -> None:
        began, asked = time.monotonic(), None
        while True:
            time.sleep(POLL_S)
            now = time.monotonic()
            if order.timeout_s is not None and now - began > order.timeout_s:
                channel.error(_too_long(order))
                os._exit(1)
            asked = asked or (now if stop.requested() else None)
            if asked is not None and now - asked > GRACE_S:
                channel.error(_stopped(order))
                os._exit(EXIT_STOPPED)

    threading.Thread(target=over, name="watch", daemon=True).start()


def _too_long(order: Order) -> WorkerError:
    minutes = (order.timeout_s or 0) / 60
    return WorkerError(
        f"{order.job.stage} was ended after {minutes:g} min, its time limit",
        "raise timeout_minutes in project.yaml for a new run, or make it quicker",
    )


def _stopped(order: Order) -> Stopped:
    return Stopped(f"stopped on request in {order.job.stage}", "`gatewright resume` runs the stage again")


def _command(order: Order, channel: Channel, stop: StopRequest) -> Answer:
    """Run the command to its end; its group is gone afterwards, however it ended."""
    words = [sys.executable if w in ("python", "python3") and i == 0 else w for i, w in enumerate(order.command or ())]
    job = order.job.model_dump_json(indent=1).encode()
    path = order.job.result.with_name("job.json")
    path.write_bytes(job)
    try:
        process = subprocess.Popen(
            words,
            cwd=order.cwd,
            env={**os.environ, "GATEWRIGHT_JOB": str(path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **_group(),
        )
    except OSError as error:
        raise InputError(
            f"{words[0]} cannot be started: {error.strerror}", "write a program that is on PATH, or project:<path>"
        ) from None
    readers = [
        threading.Thread(target=_tell, args=(process, job), daemon=True),
        threading.Thread(target=_listen, args=(process, channel), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        code = _until_end(process, order, stop)
    finally:
        _end_group(process)
    readers[1].join(GRACE_S)
    if stop.requested():
        raise _stopped(order)
    if code != 0:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise WorkerError(f"the command of {order.job.stage} ended with {how}", _log_hint(order))
    return _read_answer(order)


def _log_hint(order: Order) -> str:
    return f"what it wrote to stderr is in the log of the stage, beside {order.job.artifacts.name}/: logs/added.log"


def _until_end(process: subprocess.Popen[bytes], order: Order, stop: StopRequest) -> int:
    began = time.monotonic()
    while True:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            late = order.timeout_s is not None and time.monotonic() - began > order.timeout_s
            if not (late or stop.requested()):
                continue
            _signal_group(process, signal.SIGTERM)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                _end_group(process)
                process.wait()
            if late and not stop.requested():
                raise _too_long(order) from None
            return process.returncode


def _tell(process: subprocess.Popen[bytes], job: bytes) -> None:
    """The job on stdin, then its end. A command that does not read it is no fault."""
    assert process.stdin is not None
    try:
        process.stdin.write(job + b"\n")
        process.stdin.close()
    except OSError:
        return


def _listen(process: subprocess.Popen[bytes], channel: Channel) -> None:
    """Progress from stdout: `{"start": text, "total": n}`, `{"advance": n}`, `{"say": text}`; the rest is logged."""
    assert process.stdout is not None
    while line := process.stdout.readline(MOST_OF_A_LINE):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):  # brackets within brackets: no progress line either
            said = None
        if not isinstance(said, dict) or not _relay(said, channel):
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()


def _relay(said: dict[str, Any], channel: Channel) -> bool:
    def text(key: str) -> str:
        return harmless(str(said.get(key, "")).replace("\n", " "))[:MOST_SAID]

    def count(key: str) -> int | None:
        return value if isinstance(value := said.get(key), int) and not isinstance(value, bool) else None

    if "start" in said:
        channel.start(text("start"), count("total"))
    elif count("advance") is not None:
        channel.advance(count("advance") or 0, text("note"))
    elif "say" in said:
        channel.say(text("say"))
    else:
        return False
    return True


def _read_answer(order: Order) -> Answer:
    path = order.job.result
    if not path.is_file():
        return Answer()
    if path.stat().st_size > MOST_ANSWERED:
        raise WorkerError(f"the answer of {order.job.stage} has more than 1 MiB", "numbers and notes belong there only")
    try:
        said = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise WorkerError(f"the answer of {order.job.stage} is no JSON: {error}", "docs/stages.md shows one") from None
    return _answer(said, f"the command of {order.job.stage}")


def _group() -> dict[str, Any]:
    if os.name == "nt":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    settings: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "linux":
        settings["preexec_fn"] = _die_with_parent
    return settings


def _die_with_parent() -> None:
    """Where the kernel can: when this worker is gone, so is its command, and no second writer goes on."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        if os.name == "nt":
            process.terminate()
        else:
            os.killpg(process.pid, number)
    except (OSError, ProcessLookupError):
        return


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever the command left running is ended."""
    if os.name == "nt":
        process.kill()
    else:
        _signal_group(process, signal.SIGKILL)


def main() -> int:
    """The program."""
    return work(body)


if __name__ == "__main__":
    sys.exit(main())
