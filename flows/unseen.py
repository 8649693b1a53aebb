"""Open gates that show files which are gone, or are to go: nobody approves what nobody can see."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flows.gatefiles import read_gate, shown
from flows.run_state import RunState
from flows.workspace import Workspace
from specs.errors import InputError


@dataclass(frozen=True)
class Showing:
    """An open gate that shows files which are to go, or are gone: nobody approves it then."""

    gate: str
    round: int
    files: list[str]
    stage: str

    def sentence(self, run: str) -> str:
        """What follows for the gate, and the way out."""
        return (
            f"gate {self.gate} round {self.round} shows {', '.join(self.files)}, which nobody can see any more, and "
            f"nobody can approve it; `gatewright rework {run} --stage {self.stage} --as WHO -m WHY` makes it anew, "
            "or reject"
        )


def showing(workspace: Workspace, state: RunState, paths: Collection[str] | None) -> list[Showing]:
    """The open gates of a run that show some of these files, relative to its folder; None: whatever they show."""
    found = []
    for gate in [] if state.terminal else state.open_gates:
        try:
            document = read_gate(workspace.folder, gate.name, gate.round, gate.digest if gate.amendments else "")
        except InputError:
            continue  # what is not there any more shows nothing; `review` names it
        files = sorted(name for name in shown(workspace.folder, document) if paths is None or name in paths)
        if files:
            found.append(Showing(gate.name, gate.round, files, stage_of(files)))
    return found


def unseen(workspace: Workspace, state: RunState) -> list[Showing]:
    """The open gates of a run that show files which are not there any more, removed on request or lost."""
    found = []
    for gate in showing(workspace, state, None):
        files = [path for path in gate.files if not (workspace.folder / path).exists()]
        if files:
            found.append(Showing(gate.gate, gate.round, files, stage_of(files)))
    return found


def stage_of(paths: Iterable[str]) -> str:
    """The first stage that files of a run belong to, by the number of its folder; doing it again makes them anew."""
    numbered = sorted(path.split("/")[0] for path in paths if re.match(r"\d+-", path))
    return numbered[0].partition("-")[2] if numbered else "STAGE"
