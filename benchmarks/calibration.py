"""How far a stress test's calibration carries: measured and predicted peaks of a dozen CPU configurations.

python -m benchmarks.calibration [--model package:gatewright-tiny] [--minutes 8]

Every configuration is trained for two real steps by the real worker, with an evaluation and a save. The account of each
is then set against what was measured: by itself, and calibrated by the measurement of each other configuration in turn
(never by its own). A last table plants a wrong account and says which criterion notices it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from specs.parameters import LoraParameters, TrainingConfiguration
from specs.project import Hub
from specs.stages import Quiet
from tasks.memory.account import Account
from tasks.memory.devices import cpu_device
from tasks.memory.prediction import plan_account

LORA = {"lora": LoraParameters(rank=8), "lr": 1e-4}
CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {**LORA, "micro_batch": 1, "max_length": 128},
    {**LORA, "micro_batch": 1, "max_length": 512},
    {**LORA, "micro_batch": 2, "max_length": 256},
    {**LORA, "micro_batch": 4, "max_length": 256},
    {**LORA, "micro_batch": 4, "max_length": 512},
    {**LORA, "micro_batch": 8, "max_length": 256},
    {**LORA, "micro_batch": 8, "max_length": 512},
    {**LORA, "micro_batch": 4, "max_length": 512, "activation_checkpointing": True},
    {**LORA, "micro_batch": 8, "max_length": 512, "activation_checkpointing": True},
    {**LORA, "micro_batch": 8, "max_length": 768},
    {**LORA, "micro_batch": 4, "max_length": 512, "attention": "eager"},
    {"lr": 1e-4, "method": "full", "micro_batch": 4, "max_length": 512},
)


@dataclass(frozen=True)
class Case:
    """One configuration: what the account said, and what was measured."""

    name: str
    kind: tuple[str, ...]
    account: Account
    baseline_bytes: int
    peak_bytes: int

    @property
    def predicted_bytes(self) -> int:
        """Of the process, by the account alone."""
        return self.account.process_bytes

    @property
    def ratio(self) -> float:
        """What `tasks.stress.calibration` keeps: measured over predicted, beside the framework."""
        return (self.peak_bytes - self.baseline_bytes) / self.account.peak_reserved_bytes

    def calibrated_by(self, other: Case) -> int:
        """Of the process, by the rule, from another configuration's measurement."""
        return other.baseline_bytes + round(other.ratio * self.account.peak_reserved_bytes)

    def shifted_by(self, other: Case) -> int:
        """The other rule that was looked at: the difference in bytes is carried over instead of the ratio."""
        return self.predicted_bytes + other.peak_bytes - other.predicted_bytes


def main() -> int:
    """The program; 1 when the calibrated median error is not below the uncalibrated one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="package:gatewright-tiny")
    parser.add_argument("--minutes", type=float, default=8.0, help="of processor time at most; the rest is not run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gatewright-calibration-") as folder:
        cases = measure(given.model, Path(folder), given.minutes)
    report(cases)
    return 0 if better(cases) else 1


def measure(model: str, folder: Path, minutes: float) -> list[Case]:
    """Every configuration in turn, until the time is used up."""
    from tasks.models.resolve import resolve_base_model

    found, base = [], resolve_base_model(model, folder, Hub(), Quiet()).folder
    for number, settings in enumerate(CONFIGURATIONS):
        if sum(os.times()[:4]) > 60 * minutes:
            print(f"{minutes:g} minutes of processor time are used: {len(CONFIGURATIONS) - number} are not run")
            break
        training = TrainingConfiguration(gradient_accumulation=1, max_steps=2, epochs=2, threads=1, **settings)
        found.append(_case(training, base, folder / str(number)))
        print(f"{time.strftime('%H:%M:%S')} {found[-1].name}", file=sys.stderr)
    return found


def _case(training: TrainingConfiguration, base: Path, folder: Path) -> Case:
    import json

    from tasks.data.batch_plan import read_plan
    from tasks.training.job import Job
    from tasks.training.launch import run_training
    from tests.support.samples import make_job

    folder.mkdir(parents=True)
    _samples(folder / "samples.parquet", base, training)
    job = Job.model_validate_json(make_job(folder, base, training, evaluation_batch=1).read_bytes())
    run_training(job, folder / "log", Quiet())
    lines = [json.loads(line) for name in ("memory", "metrics") for line in (job.out / f"{name}.jsonl").open()]
    peak = max(int(line.get("peak_bytes") or line["memory_bytes"]) for line in lines)
    account, _ = plan_account(base, training, cpu_device(), read_plan(job.plan), Quiet())
    words = [training.method, training.attention, *(["checkpointed"] if training.activation_checkpointing else [])]
    name = f"{training.micro_batch} x {training.max_length} {' '.join(words)}"
    kind = (training.method, training.weights, training.compute, training.attention)
    return Case(name, kind, account, int(lines[0]["baseline_bytes"]), peak)


def _samples(path: Path, base: Path, training: TrainingConfiguration) -> None:
    """As many samples as two steps need, each as long as the limit allows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.prompts import PromptTemplate

    template = PromptTemplate.load(base)

    def sample(words: int) -> tuple[str, int]:
        prompt = " ".join(("spindle", "bearing", "noise")[k % 3] for k in range(words))
        return prompt, len(template.encode(prompt, "replace it").input_ids)

    words = next(w for w in range(training.max_length, 0, -1) if sample(w)[1] <= training.max_length)
    prompt, tokens = sample(words)
    row = {"prompt": prompt, "answer": "replace it", "n_tokens": tokens, "split": "train", "kind": "note"}
    rows = [{"sample_id": f"s{n:02d}", **row} for n in range(2 * training.micro_batch)]
    pq.write_table(pa.Table.from_pylist(rows), path)


def errors(cases: list[Case], rule: str) -> list[float]:
    """Relative errors of every case, calibrated by every other one of its kind."""
    return [
        abs(getattr(case, rule)(other) / case.peak_bytes - 1)
        for case in cases
        for other in cases
        if other is not case and other.kind == case.kind
    ]


def better(cases: list[Case]) -> bool:
    """Whether the calibration brings the median error down."""
    before = statistics.median(abs(c.predicted_bytes / c.peak_bytes - 1) for c in cases)
    return statistics.median(errors(cases, "calibrated_by")) < before


def report(cases: list[Case]) -> None:
    """The tables, as Markdown."""
    mib = 2**20
    print("\n| configuration | measured MiB | account | error | ratio |\n|---|---|---|---|---|")
    for case in cases:
        error = case.predicted_bytes / case.peak_bytes - 1
        sizes = f"{case.peak_bytes / mib:.0f} | {case.predicted_bytes / mib:.0f}"
        print(f"| {case.name} | {sizes} | {error:+.1%} | {case.ratio:.3f} |")
    before = [abs(c.predicted_bytes / c.peak_bytes - 1) for c in cases]
    rows = {
        "account alone": before,
        "calibrated by another (ratio beside the measured framework)": errors(cases, "calibrated_by"),
        "the difference in bytes carried over": errors(cases, "shifted_by"),
    }
    print("\n| | median | largest |\n|---|---|---|")
    for name, found in rows.items():
        print(f"| {name} | {statistics.median(found):.1%} | {max(found):.1%} |")
    print("\n| planted: the account says | measured over it | noticed by peak_ratio <= 1.1 or peak_ratio_low >= 0.8 |")
    print("|---|---|---|")
    case = max(cases, key=lambda c: c.peak_bytes)
    for factor in (0.5, 0.8, 0.9, 1.0, 1.3, 2.0):
        held = round(case.account.peak_reserved_bytes * factor)
        ratio = case.peak_bytes / (case.baseline_bytes + held)
        noticed = "blocks" if ratio > 1.1 else "warns" if ratio < 0.8 else "no"
        print(f"| {factor:g} of what it traced | {ratio:.2f} | {noticed} |")


if __name__ == "__main__":
    sys.exit(main())
