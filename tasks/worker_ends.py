"""How a worker ended, in words and as an error of its own class."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specs import errors
from specs.errors import GatewrightError, OutOfMemory, WorkerError
from tasks.out_of_memory import is_out_of_memory, kernel_kills

LAST_LINES = 12
ABORTS = ("SIGABRT", "SIGSEGV", "SIGBUS")
"""How libraries end that do not expect a request for memory to fail."""

USER_ERRORS: dict[str, type[GatewrightError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, GatewrightError) and kind is not errors.SpecError
}


class WorkerDied(WorkerError):
    """A worker that ended without saying why; `signal_number` is what killed it, null when it exited by itself."""

    def __init__(self, message: str, hint: str, signal_number: int | None) -> None:
        super().__init__(message, hint)
        self.signal_number = signal_number


def died(who: str, code: int, log: Path, kills: int | None = None) -> WorkerError:
    """The error for an exit code other than 0 (negative: the signal that killed it).

    `kills` is what the kernel's counter of processes killed for memory said before the worker started.
    """
    hint = f"its log is {log}" + _last_lines(log)
    if code >= 0:
        return WorkerDied(f"{who} ended with exit code {code} and no result", hint, None)
    number = -code
    if number == getattr(signal, "SIGKILL", 9):
        return _killed(who, hint, number, kills)
    try:
        killer = signal.Signals(number).name
    except ValueError:
        killer = f"signal {number}"
    if killer in ABORTS and is_out_of_memory(RuntimeError(hint)):
        return OutOfMemory(f"out of memory: {who} was ended by {killer} when a library could get no more", hint)
    return WorkerDied(f"{who} was ended by {killer}", hint, number)


def said(message: str, error: Mapping[str, Any]) -> GatewrightError:
    """The error that a worker sent, as its own class, with `message` for its words."""
    kind = USER_ERRORS.get(error["class"], WorkerError)
    if issubclass(kind, OutOfMemory):
        return kind(message, error["hint"], error.get("facts"))
    return kind(message, error["hint"])


def _killed(who: str, hint: str, number: int, kills: int | None) -> WorkerError:
    """Killed by the kernel for memory where its counter says so, by somebody where the counter did not move."""
    now = kernel_kills()
    lower = f"free memory, or lower micro_batch or max_length; `gatewright resume` goes on from the last save; {hint}"
    if kills is None or now is None:
        return WorkerDied(f"{who} was killed by the system, most likely out of memory", lower, number)
    if now > kills:
        counted = {"kernel_kills": now - kills}
        return OutOfMemory(f"out of memory: the kernel killed {who} to get memory back", lower, counted)
    message = f"{who} was killed (SIGKILL) by somebody: the kernel has killed nothing for memory meanwhile"
    return WorkerDied(message, f"`gatewright resume` goes on from the last save; {hint}", number)


def _last_lines(log: Path) -> str:
    """The end of the log for a person, without the frames of a traceback."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    shown = [line for line in lines if line.strip() and not line.startswith((" ", "Traceback"))][-LAST_LINES:]
    return "; its last lines:\n" + "\n".join(f"  {line[:300]}" for line in shown) if shown else ""
