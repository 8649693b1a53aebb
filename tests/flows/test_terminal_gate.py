"""A person at a terminal is asked at the gate, and what is typed there counts as confirmed."""

from __future__ import annotations

import codecs
import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli import called

pty = pytest.importorskip("pty", reason="needs a POSIX terminal")


class Terminal:
    """The command in a real pseudo terminal."""

    def __init__(self, cwd: Path, *words: str) -> None:
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(sys.executable, [sys.executable, "-m", "flows.cli", *words], {**os.environ, "TERM": "xterm"})
        self.seen = ""
        self.decoded = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end inside a character

    def until(self, text: str, timeout_s: float = 120) -> None:
        """Read until `text` was shown."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += self.decoded.decode(os.read(self.handle, 65536))
            except OSError:
                break
        assert text in self.seen, self.seen

    def type(self, line: str) -> None:
        """Type a line."""
        self.seen = ""
        os.write(self.handle, (line + "\n").encode())

    def code(self) -> int:
        """Wait for the end; the exit code."""
        while True:
            try:
                if not os.read(self.handle, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_the_gate_is_shown_and_a_typed_decision_is_recorded_as_confirmed(before_train, copy_of) -> None:
    project = copy_of(before_train)
    terminal = Terminal(project, "resume")
    terminal.until("[l] 稍后再定")
    assert "train" in terminal.seen
    terminal.type("w")
    terminal.until("要改什么")
    terminal.type("请使用更小的学习率")
    terminal.until("[l] 稍后再定")
    terminal.type("l")
    assert terminal.code() == 3
    events = called("audit", "list", "--kind", "decision.recorded", "--json", cwd=project).json["events"]
    decision = events[-1]["payload"]["decision"]
    assert (decision["choice"], decision["authentication"]) == ("rework", "terminal")
    assert decision["comment"] == "请使用更小的学习率"
    assert called("status", "--json", cwd=project).json["gate"]["round"] == 2


def test_approve_at_a_terminal_asks_for_confirmation(before_train, copy_of) -> None:
    project = copy_of(before_train)
    terminal = Terminal(project, "approve", "--as", "me")
    terminal.until("输入 approve 以确认")
    terminal.type("no")
    assert terminal.code() == 6
    assert called("status", "--json", cwd=project).json["state"] == "waiting"
    terminal = Terminal(project, "approve", "--as", "me")
    terminal.until("输入 approve 以确认")
    terminal.type("approve")
    assert terminal.code() == 0
    events = called("audit", "list", "--kind", "decision.recorded", "--json", cwd=project).json["events"]
    assert events[-1]["payload"]["decision"]["authentication"] == "terminal"
