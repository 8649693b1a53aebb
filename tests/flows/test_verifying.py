"""Verifying with newer code: what it measures in addition is said and is no difference; everything else is."""

from __future__ import annotations

from flows.verifying import _metric_differences, _newer, _verdict_differences
from specs.criteria import Criterion, Metric, judge
from specs.results import Evidence
from tests.agents.proposer_cases import data_evidence


def evidence() -> Evidence:
    recorded = data_evidence(train=400)
    verdicts = judge([Criterion(metric="samples_train", op=">=", bound=50)], recorded.metrics)
    return recorded.model_copy(update={"verdicts": verdicts})


def test_a_metric_and_criterion_that_came_later_are_named_and_no_difference():
    recorded = evidence()
    now = {**recorded.metrics, "personal_data_left": Metric(value=0, unit="count")}
    verdicts = [*recorded.verdicts, *judge([Criterion(metric="personal_data_left", op="==", bound=0)], now)]
    newer = _newer(recorded, now, verdicts)
    assert newer == ["personal_data_left", "personal_data_left == 0"]
    assert _metric_differences(recorded.metrics, now, newer) == []
    assert _verdict_differences(recorded.verdicts, verdicts, newer) == []


def test_a_metric_that_is_gone_or_changed_and_another_bound_are_differences():
    recorded = evidence()
    gone = {name: m for name, m in recorded.metrics.items() if name != "samples_eval"}
    changed = {**recorded.metrics, "samples_eval": Metric(value=1, unit="samples")}
    looser = judge([Criterion(metric="samples_train", op=">=", bound=1)], recorded.metrics)
    for now in (gone, changed):
        newer = _newer(recorded, now, recorded.verdicts)
        assert _metric_differences(recorded.metrics, now, newer)
    newer = _newer(recorded, recorded.metrics, looser)
    assert len(_verdict_differences(recorded.verdicts, looser, newer)) == 2
