"""A training worker that is killed or stopped at one exact moment, by its own doing, inside a named region.

A moment is a call, or a return from a call, of a function that belongs to us, to `torch.serialization` or to
`safetensors`, and every C function called from there (rename, fsync, write). Encoding to canonical JSON is left out:
it writes nothing, and its thousands of calls would hide the rest. A run that is not cut off counts the moments.
`moment.json` beside the job says what happens when: `region`, `number`, `signal`, and of several ranks at which `rank`,
and whether that `rank`, the `parent` of all or the whole `family` is hit; without it, moments are counted and left in
`counts.json`, of further ranks in `counts-rank1.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from tasks.training import worker

ROOT = str(Path(__file__).resolve().parents[2])

REGIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "loading": (
        ("session.py", "_verify_inputs"),
        ("checkpoints.py", "newest"),
        ("session.py", "_begin"),
        ("session.py", "_feed"),
        ("session.py", "_model"),
        ("session.py", "_trainer"),
        ("trainer.py", "_load_optimizer_and_scheduler"),
        ("trainer.py", "_load_rng_state"),
    ),
    "steps": (
        ("trainer.py", "training_step"),
        ("recorder.py", "on_pre_optimizer_step"),
        ("recorder.py", "on_step_end"),
    ),
    "evaluation": (("losses.py", "mean"), ("losses.py", "held_out")),
    "saving": (("trainer.py", "_save_checkpoint"),),
    "epoch ends": (("trainer.py", "end_epoch"),),
}
_REGION_OF = {place: region for region, places in REGIONS.items() for place in places}


class Moments:
    """Counts moments by region; the innermost region counts. Calls `reached` at the chosen one."""

    def __init__(self, chosen: dict[str, Any] | None, note: Path, rank: int = 0) -> None:
        self.chosen = chosen if chosen and chosen.get("rank", 0) == rank else None
        self.note = note
        self.counts: Counter[str] = Counter()
        self.stack: list[tuple[FrameType, str]] = []
        self._ours: dict[Any, tuple[bool, str | None]] = {}

    def watch(self, frame: FrameType, event: str, argument: Any) -> None:
        """For `sys.setprofile`."""
        known = self._ours.get(frame.f_code)
        if known is None:
            known = self._ours[frame.f_code] = _look(frame)
        ours, region = known
        if region and event == "call":
            self.stack.append((frame, region))
        if ours and self.stack:
            self._count(self.stack[-1][1])
        if region and event == "return":
            while self.stack and self.stack.pop()[0] is not frame:
                pass

    def _count(self, region: str) -> None:
        self.counts[region] += 1
        chosen = self.chosen
        if chosen and chosen["region"] == region and chosen["number"] == self.counts[region]:
            sys.setprofile(None)
            self.note.write_text(region)
            hit(chosen.get("target", "rank"), getattr(signal, chosen["signal"]))


def hit(target: str, number: int) -> None:
    """Send a signal to this process, its parent, or all of them with the parent first and this one last."""
    parent, here = os.getppid(), os.getpid()
    others = [child.pid for child in psutil.Process(parent).children()] if target == "family" else []
    if target != "rank":
        os.kill(parent, number)
    for pid in (p for p in others if p != here):
        os.kill(pid, number)
    if target != "parent":
        os.kill(here, number)


def _look(frame: FrameType) -> tuple[bool, str | None]:
    name = frame.f_code.co_filename
    ours = name.startswith((ROOT + "/tasks", ROOT + "/specs")) or name.endswith("torch/serialization.py")
    ours = (ours or "/safetensors/" in name) and not name.endswith("specs/canonical.py")
    region = _REGION_OF.get((Path(name).name, frame.f_code.co_name)) if name.startswith(ROOT + "/tasks") else None
    return ours, region


def main() -> int:
    """The worker program, watched."""
    folder = Path(sys.argv[1]).parent
    asked = folder / "moment.json"
    rank = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    moments = Moments(json.loads(asked.read_text()) if asked.exists() else None, folder / "reached.txt", rank)
    sys.setprofile(moments.watch)
    try:
        return worker.main()
    finally:
        sys.setprofile(None)
        if not asked.exists():
            (folder / (f"counts-rank{rank}.json" if rank else "counts.json")).write_text(json.dumps(moments.counts))


if __name__ == "__main__":
    sys.exit(main())
