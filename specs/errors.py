"""Every error a person may see. Each carries what is wrong, a way out, and the exit code of the command.

GatewrightError                 1   something failed while running
├── StorageError                1   the disk is full, or a folder cannot be written
├── WorkerError                 1   a worker process ended without its result
│   ├── OutOfMemory             1   a worker needed more memory than there was
│   └── PeerLost                1   a rank of a training that another rank left alone
├── TrainingError               1   training cannot go on: a loss that is not finite, a plan that does not hold
│   └── NotFinite               1   a loss or gradient that is not finite, or nothing left to learn
├── InputError                  2   what the person wrote or provided cannot be used
│   ├── SpecError               2   project.yaml: all problems at once, each with its line
│   ├── SourceError             2   a raw file: missing, empty, undecodable, wrong columns
│   └── ModelError              2   the base model: missing, no weights, no tokenizer
├── Refused                     6   a rule forbids it
│   ├── PolicyRefused           6   who may decide, and how
│   ├── DecisionRefused         6   early, late, double, ambiguous or stale
│   ├── LeaseHeld               6   another process works on this run
│   ├── RunOpen                 6   the project has an open run
│   ├── ResumeRefused           6   what a checkpoint was written under is not what is asked for now
│   ├── GuardRefused            6   a proposal or edit outside schema, bounds or memory
│   └── SignatureRefused        6   a signature that does not hold, or is by a key of somebody else
├── VerificationFailed          7   recomputed is not what was recorded
└── Stopped                     130 stopped on request, everything saved
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXIT_DONE = 0
EXIT_INTERNAL = 1
EXIT_INPUT = 2
EXIT_WAITING = 3
EXIT_WAITING_FAILED_CRITERION = 4
EXIT_REJECTED = 5
EXIT_REFUSED = 6
EXIT_VERIFICATION = 7
EXIT_STOPPED = 130


class GatewrightError(Exception):
    """An error for a person: `message` says what is wrong and where, `hint` says the way out."""

    exit_code = EXIT_INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StorageError(GatewrightError):
    """The disk is full or a folder cannot be written."""


class WorkerError(GatewrightError):
    """A worker process ended without its result."""


class OutOfMemory(WorkerError):
    """A worker needed more memory than there was. `facts` are the figures of that moment, in bytes, where known."""

    def __init__(self, message: str, hint: str = "", facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint)
        self.facts = dict(facts or {})


class PeerLost(WorkerError):
    """A rank of a training cannot go on because another one is gone or late: never the cause, always a consequence."""


class TrainingError(GatewrightError):
    """Training cannot go on: a loss that is not finite, or a batch that is not the planned one."""


class NotFinite(TrainingError):
    """A loss that is not finite or exactly zero, or a gradient that is not finite: the optimizer has not moved."""


class InputError(GatewrightError):
    """What the person wrote or provided cannot be used."""

    exit_code = EXIT_INPUT


@dataclass(frozen=True)
class Problem:
    """One finding in a file: where it is (`line` 1-based, `path` dotted), the value, the rule, the way out."""

    file: str
    line: int | None
    path: str
    value: str
    rule: str
    way_out: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        value = f" (is {self.value})" if self.value and self.value not in self.rule else ""
        return f"{where}: {self.path}: {self.rule}{value}. {self.way_out}".rstrip()


class SpecError(InputError):
    """All problems of one `project.yaml` at once."""

    def __init__(self, problems: list[Problem]) -> None:
        count = f"{len(problems)} problem" + ("s" if len(problems) != 1 else "")
        file = problems[0].file if problems else "project.yaml"
        super().__init__(f"{count} in {file}:\n" + "\n".join(f"  {p}" for p in problems))
        self.problems = problems


class SourceError(InputError):
    """A raw file is missing, empty, cannot be decoded, or lacks a column that was named."""


class ModelError(InputError):
    """The base model is missing, has no weights or no tokenizer, or does not fit the method."""


class Refused(GatewrightError):
    """A rule of the design forbids it."""

    exit_code = EXIT_REFUSED


class PolicyRefused(Refused):
    """This person may not decide this, or not in this way."""


class DecisionRefused(Refused):
    """The decision is early, late, double, ambiguous or stale."""


class LeaseHeld(Refused):
    """Another process works on this run."""


class RunOpen(Refused):
    """The project has an open run."""


class ResumeRefused(Refused):
    """What a checkpoint was written under is not what is asked for now."""


class GuardRefused(Refused):
    """A proposal or an edit is outside its schema, its bounds or the memory of the device."""


class SignatureRefused(Refused):
    """A signature does not hold, was made for something else, or is by a key that is not the person's."""


class VerificationFailed(GatewrightError):
    """What was recomputed is not what was recorded."""

    exit_code = EXIT_VERIFICATION


class Stopped(GatewrightError):
    """Stopped on request, with everything saved."""

    exit_code = EXIT_STOPPED
