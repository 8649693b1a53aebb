"""What advice takes from a project: its finished runs, the lengths of its newest data, its base model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.find import look_at, place_of, runs_of
from flows.folding import fold
from flows.plan_data import RunData, data_of
from flows.rehearsing import is_rehearsal
from flows.run_state import RunState
from flows.workspace import Workspace, frozen_spec
from specs.errors import GatewrightError, ModelError
from specs.project import Project
from specs.stages import Progress
from tasks.advising.route import Past

if TYPE_CHECKING:
    from specs.loading import LoadedProject


@dataclass
class ProjectFacts:
    """What is known of a project before a card is chosen. `unread` are runs of which something could not be read."""

    past: tuple[Past, ...] = ()
    data_run: str | None = None
    data: RunData | None = None
    measured_run: str | None = None
    """The run whose stress test measured something with this data."""
    unread: list[str] = field(default_factory=list)

    def take(self, run: str, state: RunState, workspace: Workspace) -> None:
        """What an older run adds: its data where no newer one has any, its measurements where they are of that data."""
        if self.measured_run is not None or not state.done("data"):
            return
        if self.data is not None and not state.done("stress_test"):
            return
        given = data_of(workspace, state)
        if self.data is None:
            self.data, self.data_run = given, run
        elif given.measured is None or not _alike(given, self.data):
            return
        if given.measured is not None:
            named = {name: getattr(given, name) for name in ("training", "measured", "measured_on")}
            self.data, self.measured_run = replace(self.data, **named), run


def _alike(one: RunData, other: RunData) -> bool:
    """Whether measurements of one run hold for the data of the other: the same model on samples of the same lengths."""
    return one.base_model == other.base_model and one.lengths == other.lengths


def facts_of(folder: Path) -> ProjectFacts:
    """Finished runs, oldest first, and the newest data stage. A project without runs has neither."""
    found = ProjectFacts()
    try:
        ledger = look_at(folder)
    except GatewrightError:
        return found
    past = []
    for row in runs_of(ledger, folder):
        workspace = place_of(row, folder)
        try:
            state = fold(ledger.events(row.run))
            if is_rehearsal(state):
                continue
            if (one := _past(workspace, state)) is not None:
                past.append(one)
            found.take(row.run, state, workspace)
        except (GatewrightError, OSError, ValueError, KeyError):  # files that are gone or damaged teach nothing
            found.unread.append(row.run)
    found.past = tuple(reversed(past))
    return found


def _past(workspace: Workspace, state: RunState) -> Past | None:
    """A run whose evaluation was published and judged; null for others."""
    attempt = state.current("evaluate")
    if attempt is None or attempt.state != "published" or attempt.verdicts is None:
        return None
    spec = frozen_spec(workspace)
    reached = None
    if spec.objective is not None:
        verdicts = [v for v in attempt.verdicts if v.metric == spec.objective.metric and v.value is not None]
        reached = all(v.passed for v in verdicts) if verdicts else None
    return Past(run=workspace.run, model=spec.base_model, method=spec.method, reached=reached)


def architecture_for(model: str, loaded: LoadedProject, progress: Progress) -> dict[str, Any]:
    """The configuration of a model of the catalog, else of the project's base model as its stages read it."""
    from tasks.memory.architecture import architecture_of
    from tasks.planning.architectures import sound

    path = loaded.folder / model
    if path.is_dir():
        return sound(architecture_of(path), model)
    try:
        return sound(architecture_of(model), model)
    except ModelError:
        if model != loaded.spec.base_model:
            raise
    from tasks.models.resolve import resolve_base_model

    return sound(architecture_of(resolve_base_model(model, loaded.folder, loaded.spec.hub, progress).folder), model)


def plain_text_share(spec: Project) -> float:
    """Of an epoch: what the spec sets, else nothing is known and nothing is assumed."""
    return spec.objective_mix.ratio if spec.objective_mix else 0.0
