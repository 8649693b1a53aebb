"""Run the command line as a person would, in processes of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GATES = ("data", "dry_run", "stress_test", "train", "evaluate", "release")


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


def gatewright(*words: str | Path, cwd: Path, timeout_s: float = 1800, **environment: str) -> Answer:
    """Run the command as a person would, in a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def called(*words: str | Path, cwd: Path) -> Answer:
    """Run the command in this process: a second quicker, and it sees what the test has replaced here."""
    from flows.cli.app import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        argv, sys.argv = sys.argv, ["gatewright", *map(str, words)]
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv = argv
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return Answer(code, out.getvalue(), err.getvalue())


def advance(project: Path, *, until_gate: str | None = None, who: str = "me") -> Answer:
    """Approve gate after gate and resume, as the person `who`, until the run ends or `until_gate` is open.

    The run works in processes of its own; what only looks or decides is called here.
    """
    answer = gatewright("resume", "--json", cwd=project)
    while answer.code == 3:
        gate = called("status", "--json", cwd=project).json["gate"]
        if until_gate is not None and f".{until_gate}." in gate["id"]:
            return answer
        decided = called("approve", "--as", who, "--json", cwd=project)
        assert decided.code == 0, decided.err
        answer = gatewright("resume", "--json", cwd=project)
    return answer
