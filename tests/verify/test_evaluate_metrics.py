"""The verifier of evaluate finds planted faults, from artifacts alone, without the code that wrote them."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.canonical import digest_folder
from specs.criteria import Metric, blocked, judge
from specs.metrics import default_criteria
from tasks.verify import evaluate, evaluate_answers

BASE_SHA256 = "b" * 64
KINDS = ("A1", "B2", "C3", "D4")
REPAIRS = {"A1": "replace relay K17", "B2": "clean nozzle N2", "C3": "tighten belt T40", "D4": "fill oil tank"}


@dataclass
class Planted:
    """Rows of every file; a test changes some, then asks the verifier."""

    folder: Path
    samples: list[dict[str, Any]] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    fed: list[str] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    evaluated: dict[str, Any] = field(default_factory=dict)
    generations: int = 4
    sources: list[dict[str, Any]] = field(default_factory=lambda: [{"kind": "instructions", "path": "c.jsonl"}])

    def metrics(self) -> dict[str, Metric]:
        """Write everything and verify it."""
        inputs = {name: self.folder / name for name in ("data", "stress_test", "train")}
        _table(inputs["data"] / "artifacts" / "samples.parquet", self.samples)
        plan = [{"sample_id": s, "epoch": 1, "step": i + 1} for i, s in enumerate(self.planned)]
        _table(inputs["stress_test"] / "artifacts" / "batch_plan.parquet", plan)
        _lines(inputs["train"] / "artifacts" / "micro_batches.jsonl", [{"sample_ids": self.fed}])
        out = self.folder / "evaluate"
        _table(out / "artifacts" / "eval_losses.parquet", self.losses)
        _lines(out / "artifacts" / "generations.jsonl", self.answers)
        (out / "artifacts" / "evaluated.json").write_text(json.dumps(self.evaluated))
        context = {
            "parameters": {"generations": self.generations},
            "base_model_sha256": BASE_SHA256,
            "spec": {"sources": self.sources},
        }
        return evaluate.metrics(out, inputs, context)

    def value(self, name: str) -> float | None:
        """One metric."""
        return self.metrics()[name].value


def _table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def sample(sample_id: str, split: str, kind: str, component: int) -> dict[str, Any]:
    """A row of samples.parquet."""
    text = f"{kind} {sample_id}\n{REPAIRS[kind]} {sample_id}"
    answer = f"{REPAIRS[kind]} {sample_id}"
    row = {"sample_id": sample_id, "split": split, "fault_type": kind, "component": component, "text": text}
    return {**row, "prompt": f"{kind} {sample_id}", "answer": answer}


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """An honest evaluation of eight held-out samples of four fault types."""
    samples = [sample(f"t{i}", "train", KINDS[i % 4], i) for i in range(12)]
    held_out = [sample(f"e{i}", "eval", KINDS[i % 4], 100 + i) for i in range(8)]
    adapter = tmp_path / "train" / "artifacts" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_model.safetensors").write_bytes(b"weights")
    trained = [s["sample_id"] for s in samples]
    losses = [
        {
            "sample_id": s["sample_id"],
            "kind": "work_order",
            "fault_type": s["fault_type"],
            "n_answer_tokens": 10 + i,
            "loss_base": 3.0 + 0.1 * i,
            "loss_adapter": 1.0 + 0.1 * i,
            "loss_base_mispaired": 3.0 + 0.1 * ((i + 1) % 8),
            "loss_adapter_mispaired": 1.5 + 0.11 * ((i + 1) % 8),
            "mispaired_with": f"e{(i + 1) % 8}",
        }
        for i, s in enumerate(held_out)
    ]
    answers = [
        {"sample_id": s["sample_id"], "adapter": s["answer"], "base": "call the vendor", "adapter_ended": i % 2 == 0}
        for i, s in enumerate(held_out[:4])
    ]
    identity = {"adapter_sha256": digest_folder(adapter), "base_model_sha256": BASE_SHA256}
    return Planted(tmp_path, [*samples, *held_out], trained, list(trained), losses, answers, identity)


def test_an_honest_evaluation(planted):
    found = {name: metric.value for name, metric in planted.metrics().items()}
    tokens = [10 + i for i in range(8)]
    mean = sum(t * (3.0 + 0.1 * i) for i, t in enumerate(tokens)) / sum(tokens)
    gain = sum(t * (0.5 + 0.01 * i) for i, t in enumerate(tokens)) / sum(tokens)
    assert found["eval_loss_base"] == pytest.approx(mean)
    assert found["eval_loss_adapter"] == pytest.approx(mean - 2)
    assert found["eval_loss_change"] == pytest.approx(-2)
    assert found["pairing_gain"] == pytest.approx(gain), "each answer against itself: how hard it is falls out"
    assert found["pairing_certainty"] > 10
    assert found["fault_type_coverage"] == 1
    assert found["fault_type_coverage_base"] == 0
    assert found["ended_share"] == 0.5
    assert found["samples_evaluated"] == 8
    assert [found[n] for n in ("leaked_samples", "eval_samples_missing", "evaluated_other_weights")] == [0, 0, 0]


def leak_by_plan(p: Planted) -> None:
    """A held-out id is in the plan."""
    p.planned.append("e3")


def leak_by_feeding(p: Planted) -> None:
    """A held-out id was fed although it was not planned."""
    p.fed.append("e3")


def leak_by_component(p: Planted) -> None:
    """A held-out sample shares a duplicate component with a trained one."""
    p.samples[-1]["component"] = 5


def leak_by_text(p: Planted) -> None:
    """A held-out text is a training text."""
    p.samples[-1]["text"] = p.samples[2]["text"]


def leak_unevaluated(p: Planted) -> None:
    """A held-out sample was trained on, and quietly left out of the evaluation."""
    p.planned.append("e7")
    p.losses.pop()


@pytest.mark.parametrize(
    "fault",
    [leak_by_plan, leak_by_feeding, leak_by_component, leak_by_text, leak_unevaluated],
    ids=lambda f: f.__name__,
)
def test_leaks_are_found(planted, fault: Callable[[Planted], None]):
    fault(planted)
    assert planted.value("leaked_samples") == 1


def test_missing_doubled_foreign_and_infinite_losses_are_counted(planted):
    planted.losses.append(copy.deepcopy(planted.losses[0]))
    assert planted.value("eval_samples_missing") == 1
    planted.losses[-1]["sample_id"] = "t1"
    assert planted.value("eval_samples_missing") == 1
    del planted.losses[2:4]
    assert planted.value("eval_samples_missing") == 3
    planted.losses[0]["loss_adapter"] = float("nan")
    found = planted.metrics()
    assert found["eval_samples_missing"].value == 4
    assert found["eval_loss_adapter"].value is None
    assert found["eval_loss_change"].value is None


def test_other_weights_than_the_trained_ones_are_found(planted):
    (planted.folder / "train" / "artifacts" / "adapter" / "adapter_model.safetensors").write_bytes(b"others")
    assert planted.value("evaluated_other_weights") == 1
    planted.evaluated["base_model_sha256"] = "c" * 64
    assert planted.value("evaluated_other_weights") == 2


def test_a_pairing_within_a_fault_type_shows_nothing(planted):
    planted.losses[0]["mispaired_with"] = "e4"
    found = planted.metrics()
    assert found["pairing_gain"].value is None
    assert found["pairing_certainty"].value is None
    assert "same fault type" in found["pairing_gain"].reason


def test_too_few_pairs_show_nothing(planted):
    for row in planted.losses[:3]:
        row["mispaired_with"] = None
    found = planted.metrics()["pairing_gain"]
    assert found.value is None
    assert found.reason == "only 5 of 8 held-out questions have an answer of another fault type"


def test_types_that_were_not_asked_about_count_as_not_covered(planted):
    del planted.answers[1:]
    assert planted.value("fault_type_coverage") == 0.25
    planted.generations = 1
    assert planted.value("fault_type_coverage") == 1


def test_references_come_from_the_samples_and_not_from_the_stage(planted):
    for row in planted.answers:
        row["reference"] = row["base"]
        row["adapter"] = row["base"]
    assert planted.value("fault_type_coverage") == 0


def test_without_fault_types_every_sample_counts_as_one_and_it_is_said(planted):
    for row in [*planted.samples, *planted.losses]:
        row["fault_type"] = ""
    found = planted.metrics()["fault_type_coverage"]
    assert found.value is not None
    assert "every held-out answer counts as one" in found.reason
    assert not found.applies


def test_fault_types_that_the_sources_name_or_training_has_make_their_absence_count(planted):
    for row in [*planted.samples[-8:], *planted.losses]:
        row["fault_type"] = ""
    assert planted.metrics()["fault_type_coverage"].applies
    for row in planted.samples:
        row["fault_type"] = ""
    assert not planted.metrics()["fault_type_coverage"].applies
    planted.sources = [{"kind": "work_orders", "columns": {"fault_type": "Code"}}]
    assert planted.metrics()["fault_type_coverage"].applies


def test_of_plain_text_alone_no_metric_of_answers_applies(planted):
    for row in planted.samples:
        row["prompt"] = ""
    for row in planted.losses:
        row["mispaired_with"] = None
    planted.answers = []
    found = planted.metrics()
    of_answers = ("pairing_gain", "pairing_certainty", "fault_type_coverage", "ended_share")
    assert [found[name].applies for name in of_answers] == [False] * 4
    assert not blocked([v for v in judge(default_criteria("evaluate"), found) if v.metric in of_answers])
    assert found["eval_loss_change"].applies


def test_answers_that_are_missing_are_not_answers_that_nobody_could_give(planted):
    planted.answers = []
    found = planted.metrics()
    assert (found["ended_share"].value, found["ended_share"].applies) == (None, True)
    assert (found["fault_type_coverage"].value, found["fault_type_coverage"].applies) == (None, True)


def test_missing_artifacts_are_null_with_a_reason(tmp_path):
    inputs = {name: tmp_path / name for name in ("data", "stress_test", "train")}
    context = {"parameters": {"generations": 4}, "base_model_sha256": BASE_SHA256}
    found = evaluate.metrics(tmp_path / "evaluate", inputs, context)
    unknown = {name for name, metric in found.items() if metric.value is None}
    assert unknown == found.keys() - {"samples_evaluated"}
    assert all(found[name].reason for name in unknown)


@pytest.mark.parametrize("module", [evaluate, evaluate_answers])
def test_the_verifier_imports_nothing_of_the_stage(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert not [name for name in imported if name.startswith("tasks.") and not name.startswith("tasks.verify")]
