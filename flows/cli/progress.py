"""Progress for a person: bars on a terminal, sparse lines where stderr is a file, silence when asked."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from flows.cli.progress_words import PROGRESS
from specs.base import Language


class Lines:
    """One line when a piece of work starts and one every ten seconds, on stderr."""

    def __init__(self, language: Language = "en", every_s: float = 10.0) -> None:
        self._language, self._every_s = language, every_s
        self._what, self._total, self._done, self._last = "", None, 0, 0.0  # type: tuple[Any, Any, Any, Any]

    def start(self, what: str, total: int | None = None) -> None:
        """A new piece of work."""
        what = PROGRESS(self._language, what)
        self._what, self._total, self._done, self._last = what, total, 0, time.monotonic()
        self._write(what + (f" ({total})" if total else ""))

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done."""
        self._done += units
        now = time.monotonic()
        if now - self._last >= self._every_s or (self._total and self._done == self._total):
            self._last = now
            of = f"{self._done}/{self._total}" if self._total else "" if note else str(self._done)
            self._write(f"{self._what}: {' '.join(part for part in (of, note) if part)}")

    def say(self, text: str) -> None:
        """One line."""
        self._write(PROGRESS(self._language, text))

    def _write(self, text: str) -> None:
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Bars:
    """A bar per piece of work, on a terminal."""

    def __init__(self, language: Language = "en") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False, markup=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
        )
        self._language = language
        self._task: Any = None

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        self._progress.stop()

    def start(self, what: str, total: int | None = None) -> None:
        """A new bar; the one before has ended."""
        self.finish()
        self._task = self._progress.add_task(PROGRESS(self._language, what), total=total, note="")

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done."""
        if self._task is not None:
            self._progress.update(self._task, advance=units, note=note)

    def say(self, text: str) -> None:
        """One line above the bars."""
        self._console.print(PROGRESS(self._language, text))

    def finish(self) -> None:
        """End the running bar: one without a count is full, one with a count stays where it came to."""
        if self._task is not None:
            task = next(t for t in self._progress.tasks if t.id == self._task)
            done = 1 if task.total is None else task.completed
            self._progress.update(self._task, total=task.total or 1, completed=done, note="")
            self._progress.stop_task(self._task)
            self._task = None

    def pause(self) -> None:
        """Take the bars off the screen while a person is asked."""
        self.finish()
        self._progress.stop()

    def resume(self) -> None:
        """Put them back."""
        self._progress.start()


def for_terminal(language: Language = "en") -> Bars | Lines:
    """Bars where stderr is a terminal, lines elsewhere."""
    return Bars(language) if sys.stderr.isatty() else Lines(language)
