"""What a trial takes from a run: its samples, and the training configuration that stands now."""

from __future__ import annotations

from pathlib import Path

from flows import gatefiles
from flows.plan_data import data_of
from flows.run_state import RunState
from flows.workspace import Workspace
from specs.errors import InputError
from specs.parameters import TrainingConfiguration

GATES = ("train", "stress_test")
"""Whose proposals hold a training configuration, the later first."""


def samples_of(workspace: Workspace, state: RunState) -> Path:
    """samples.parquet of the data stage. Raises `InputError` while there is none."""
    attempt = state.current("data")
    path = workspace.attempt("data", attempt.number) / "artifacts" / "samples.parquet" if attempt else None
    if attempt is None or attempt.state != "published" or path is None or not path.is_file():
        raise InputError(f"run {workspace.run} has no finished data stage", "finish it: gatewright resume")
    return path


def training_of(workspace: Workspace, state: RunState) -> TrainingConfiguration:
    """What the stress test measured, else what was proposed for it. Raises `InputError` while there is neither."""
    measured = data_of(workspace, state).training
    if measured is not None:
        return measured
    for gate in GATES:
        rounds = sorted(((r, d) for (name, r), d in state.proposals.items() if name == gate), reverse=True)
        for _, digest in rounds:
            found = gatefiles.load_proposal(workspace.folder, digest).parameters.get("training")
            if found:
                return TrainingConfiguration.model_validate(found)
    raise InputError(
        f"run {workspace.run} has no training configuration yet",
        "go on to the gate before the stress test, which proposes one: gatewright resume",
    )
