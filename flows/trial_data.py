"""What a trial takes from a run: its samples, and the training configuration that stands now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows import gatefiles
from flows.decide import parsed
from flows.plan_data import data_of
from flows.rewritten import rewritten_samples
from flows.run_state import RunState
from flows.workspace import Workspace, frozen_spec
from specs.errors import InputError
from specs.parameters import TrainingConfiguration, leaves, replace, resolve
from specs.words import nearest
from tasks.training.models import contradictions

GATES = ("train", "stress_test")
"""Whose proposals hold a training configuration, the later first."""


def samples_of(workspace: Workspace, state: RunState) -> Path:
    """The samples that training reads: of the data stage, or rewritten. Raises `InputError` while there are none."""
    attempt = state.current("data")
    path = workspace.attempt("data", attempt.number) / "artifacts" / "samples.parquet" if attempt else None
    if attempt is None or attempt.state != "published" or path is None or not path.is_file():
        raise InputError(f"run {workspace.run} has no finished data stage", "finish it: gatewright resume")
    finished = {stage: found.number for stage, found in state.inputs(state.stages).items()}
    return rewritten_samples(workspace, frozen_spec(workspace), finished) or path


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


def changed(training: TrainingConfiguration, settings: Mapping[str, str]) -> TrainingConfiguration:
    """The configuration with settings from the command line, as `approve --set` reads them.

    Raises `InputError` for one that is not known or set twice, for a value that is none, and for settings that no
    machine can train together.
    """
    before = training.model_dump(mode="json")
    values: dict[str, Any] = {}
    for key, value in settings.items():
        path = _path(before, key)
        if path in values:
            raise InputError(f"--set names {path} twice", "give each setting once")
        values[path] = parsed(value)
    now = before
    for path, value in values.items():
        now = replace(now, path, value)
    try:
        found = TrainingConfiguration.model_validate(now)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']} (is {e['input']!r})" for e in error.errors()]
        raise InputError(f"--set {'; '.join(wrong)}", "docs/parameters.md lists the values") from None
    if problems := contradictions(found):
        ways = "; ".join(way for _, way in problems)
        raise InputError(
            f"these settings exclude each other: {'; '.join(problem for problem, _ in problems)}",
            f"give both by --set, as one machine can train them ({ways})",
        )
    return found


def _path(parameters: dict[str, Any], key: str) -> str:
    """The dotted path of a setting. Raises `InputError` for none, with the nearest that there is."""
    path = resolve(parameters, key.removeprefix("training."))
    if path is not None:
        return path
    known = nearest(key, leaves(parameters))
    meant = f"did you mean {known[0]}? " if known else ""
    raise InputError(f"--set {key}: no setting of a training", f"{meant}docs/parameters.md lists TrainingConfiguration")
