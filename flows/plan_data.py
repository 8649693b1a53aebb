"""What a plan search takes from a run: its samples' lengths, and what its stress test measured, read as published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.rewritten import rewritten_samples
from flows.run_state import RunState
from flows.stress_records import StressRecords
from flows.workspace import Workspace, frozen_spec
from specs.base import Language
from specs.errors import InputError
from specs.hardware import find_gpu
from specs.parameters import TrainingConfiguration
from tasks.memory.devices import Device
from tasks.planning.measured import Measured, times_of


@dataclass(frozen=True)
class RunData:
    """Token counts of both splits, the base model as the spec names it, and what has been measured and configured."""

    run: str
    project: str
    lengths: tuple[int, ...]
    evaluation_lengths: tuple[int, ...]
    base_model: str
    language: Language
    training: TrainingConfiguration | None
    measured: Measured | None
    measured_on: tuple[str, str]
    """Kind and name of the device of the stress test; empty where there is none."""
    notes: list[str]
    """Keys of what is lacking, for `tasks/planning/texts.py`."""


def data_of(workspace: Workspace, state: RunState) -> RunData:
    """Read a run. Raises `InputError` while its data stage has not been published."""
    samples = _attempt(workspace, state, "data")
    if samples is None:
        raise InputError(
            f"run {workspace.run} has no finished data stage, so that its lengths are not known",
            "finish the data stage (`gatewright resume`), or give --length and --samples",
        )
    spec = frozen_spec(workspace)
    finished = {stage: found.number for stage, found in state.inputs(state.stages).items()}
    table = rewritten_samples(workspace, spec, finished) or samples / "artifacts" / "samples.parquet"
    lengths = _lengths(table)
    stress = StressRecords(workspace, state.current("stress_test"))
    training, notes = stress.training(), list[str]()
    measured, device = None, stress.read("device.json")
    if training is not None:
        times = times_of(stress.read("measurement.json").get("buckets") or [])
        measured = Measured(training=training, times=times, peak=stress.peak())
        notes += ["no_times"] if measured.times is None else []
        notes += ["no_peak"] if measured.peak is None else []
    notes += ["changed_records"] if stress.changed else []
    return RunData(
        run=workspace.run,
        project=spec.project,
        lengths=lengths["train"],
        evaluation_lengths=lengths["eval"],
        base_model=spec.base_model,
        language=spec.language,
        training=training,
        measured=measured,
        measured_on=(str(device.get("kind", "")), str(device.get("name", ""))),
        notes=notes,
    )


def measured_for(given: RunData, model: str | None, device: Device) -> tuple[Measured | None, str | None]:
    """What the stress test measured, where it is of this model and this device, else null and why not."""
    if given.measured is None:
        return None, None
    if model is not None and model != given.base_model:
        return None, "other_model"
    kind, name = given.measured_on
    return (given.measured, None) if kind == device.kind and same_card(name, device.name) else (None, "other_device")


def same_card(one: str, other: str) -> bool:
    """Whether two names are of one card: a driver spells it in another way than the catalog."""

    def known(name: str) -> str:
        try:
            return find_gpu(name).name
        except InputError:
            return name

    return one == other or known(one) == known(other)


def model_folder(workspace: Workspace) -> Path:
    """The base model of a run, as its stages read it."""
    from flows.proposing import model_of

    return model_of(workspace, frozen_spec(workspace)).folder


def _attempt(workspace: Workspace, state: RunState, stage: str) -> Path | None:
    """The folder of the newest published attempt that still counts."""
    attempt = state.current(stage)
    if attempt is None or attempt.state != "published":
        return None
    return workspace.attempt(stage, attempt.number)


def _lengths(path: Path) -> dict[str, tuple[int, ...]]:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError(f"{path} is gone", f"see what else is gone: gatewright audit verify {path.parents[3].name}")
    table = pq.read_table(path, columns=["split", "n_tokens"]).to_pydict()
    pairs = list(zip(table["split"], table["n_tokens"], strict=True))
    return {split: tuple(sorted(int(n) for s, n in pairs if s == split)) for split in ("train", "eval")}
