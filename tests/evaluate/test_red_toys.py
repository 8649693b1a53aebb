"""The criteria of evaluate tell a useful adapter from toys that lower the loss, or do nothing."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from specs.metrics import definitions
from tasks.verify.evaluate import metrics

LANGUAGES = ("en", "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_true_labels_pass_loss_and_pairing(lab, verdicts_of, language: str):
    verdicts = verdicts_of(lab.evaluated(language, "true"))
    names = ("leaked_samples", "eval_samples_missing", "evaluated_other_weights", "eval_loss_change")
    assert [n for n in (*names, "pairing_gain", "pairing_certainty") if not verdicts[n]] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_shuffled_labels_lower_the_loss_and_fail_by_the_pairing(lab, verdicts_of, language: str):
    verdicts = verdicts_of(lab.evaluated(language, "shuffled"))
    assert verdicts["eval_loss_change"], "the loss alone does not tell it from a useful adapter"
    assert not verdicts["pairing_certainty"]


def test_an_identity_adapter_fails_loss_and_pairing(lab, verdicts_of):
    evaluated = lab.evaluated("en", "none")
    verdicts = verdicts_of(evaluated)
    found = metrics(evaluated.context.out_dir, evaluated.inputs, evaluated.plain_context)
    assert found["eval_loss_change"].value == 0
    assert found["pairing_gain"].value == 0
    assert not verdicts["eval_loss_change"]
    assert not verdicts["pairing_gain"]
    assert not verdicts["pairing_certainty"]


def test_every_metric_of_the_table_is_recomputed(lab):
    evaluated = lab.evaluated("en", "true")
    found = metrics(evaluated.context.out_dir, evaluated.inputs, evaluated.plain_context)
    assert {d.name: d.unit for d in definitions("evaluate")} == {name: m.unit for name, m in found.items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_plain_text_counts_for_losses_and_not_for_pairing(lab, language: str):
    evaluated = lab.evaluated(language, "true")
    rows = pq.read_table(evaluated.context.artifacts / "eval_losses.parquet").to_pylist()
    plain = [r for r in rows if r["kind"] == "manual"]
    assert len(plain) == 1
    assert plain[0]["n_answer_tokens"] > 4
    assert plain[0]["loss_base"] > 0
    assert plain[0]["mispaired_with"] is None
    assert plain[0]["loss_adapter_mispaired"] is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_lie_side_by_side_with_their_references(lab, language: str):
    evaluated = lab.evaluated(language, "true")
    lines = (evaluated.context.artifacts / "generations.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    samples = pq.read_table(evaluated.inputs["data"] / "artifacts" / "samples.parquet").to_pylist()
    answers = {r["sample_id"]: r["answer"] for r in samples}
    assert len(rows) == len({r["fault_type"] for r in rows}) == 8, "eight answers of eight fault types"
    assert all(r["reference"] == answers[r["sample_id"]] for r in rows)
    assert any(r["base"] != r["adapter"] for r in rows)
    assert all(0 <= r["tokens"] <= 16 for r in rows)
