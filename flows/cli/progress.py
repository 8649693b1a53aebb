"""Progress for a person: bars on a terminal, sparse lines where stderr is a file, silence when asked."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Lines:
    """One line when a piece of work starts and one every ten seconds, on stderr."""

    def __init__(self, every_s: float = 10.0) -> None:
        self._every_s = every_s
        self._what, self._total, self._done, self._last = "", None, 0, 0.0  # type: tuple[Any, Any, Any, Any]

    def start(self, what: str, total: int | None = None) -> None:
        """A new piece of work."""
        self._what, self._total, self._done, self._last = what, total, 0, time.monotonic()
        self._write(what + (f" ({total})" if total else ""))

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done."""
        self._done += units
        now = time.monotonic()
        if now - self._last >= self._every_s or (self._total and self._done == self._total):
            self._last = now
            of = f"/{self._total}" if self._total else ""
            self._write(f"{self._what}: {self._done}{of} {note}".rstrip())

    def say(self, text: str) -> None:
        """One line."""
        self._write(text)

    def _write(self, text: str) -> None:
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Bars:
    """A bar per piece of work, on a terminal."""

    def __init__(self) -> None:
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
        """A new bar; the one before is full."""
        self.finish()
        self._task = self._progress.add_task(what, total=total, note="")

    def advance(self, units: int = 1, note: str = "") -> None:
        """`units` more are done."""
        if self._task is not None:
            self._progress.update(self._task, advance=units, note=note)

    def say(self, text: str) -> None:
        """One line above the bars."""
        self._console.print(text)

    def finish(self) -> None:
        """Fill the running bar."""
        if self._task is not None:
            task = next(t for t in self._progress.tasks if t.id == self._task)
            self._progress.update(self._task, total=task.total or 1, completed=task.total or 1, note="")
            self._task = None

    def pause(self) -> None:
        """Take the bars off the screen while a person is asked."""
        self.finish()
        self._progress.stop()

    def resume(self) -> None:
        """Put them back."""
        self._progress.start()


def for_terminal() -> Bars | Lines:
    """Bars where stderr is a terminal, lines elsewhere."""
    return Bars() if sys.stderr.isatty() else Lines()
