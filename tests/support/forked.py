"""Training workers that start in a tenth of a second: forked from a process that has the libraries imported already.

The process is the worker program itself, signals and pipes included; only the imports are not done again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.support.family import run_family

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.preload"])

TIMEOUT_S = 240.0


@dataclass
class Ended:
    """How a worker ended: exit code (negative: the signal that killed it) and what it said."""

    code: int
    said: list[dict[str, Any]] = field(default_factory=list)

    def error(self) -> dict[str, Any]:
        """The error object it sent."""
        return next(line for line in self.said if line["type"] == "error")

    def result(self) -> dict[str, Any]:
        """The result it sent."""
        return next(line for line in self.said if line["type"] == "result")


class ForkedWorker:
    """One worker on one job; `module` has a `main()`. Of several ranks, their parent and with it all of them."""

    def __init__(self, job: Path, module: str = "tasks.training.worker") -> None:
        number = 1 + len(list(job.parent.glob("said-*.jsonl")))
        self.said = job.parent / f"said-{number}.jsonl"
        self.log = job.parent / f"worker-{number}.log"
        ranks = json.loads(job.read_text(encoding="utf-8")).get("training", {}).get("ranks", 1)
        self.process: ForkServerProcess = _CONTEXT.Process(
            target=_run if ranks == 1 else run_family, args=(module, str(job), str(self.said), str(self.log))
        )
        self.process.start()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process.pid
        os.kill(self.process.pid, number)

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What it has said so far of one kind."""
        return [line for line in _lines(self.said) if line["type"] == kind]

    def wait(self) -> Ended:
        """Its end."""
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode is not None, f"the worker did not end; its log is {self.log}"
        return Ended(self.process.exitcode, _lines(self.said))


def train(job: Path, module: str = "tasks.training.worker") -> Ended:
    """Run a worker to its end."""
    return ForkedWorker(job, module).wait()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def _run(module: str, job: str, said: str, log: str) -> None:
    """In the child: the descriptors of a worker, then its program. Its stdin stays open, as under a living parent."""
    reading, _writing = os.pipe()
    os.dup2(reading, 0)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(said, flags, 0o644), 1)
    os.dup2(os.open(log, flags, 0o644), 2)
    sys.argv = [module, job]
    sys.exit(import_module(module).main())
