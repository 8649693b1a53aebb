"""What the gate of `train` says after a stress test: what the ladder took, and the next plan up."""

from __future__ import annotations

from typing import Any

import pytest

from agents.rules import RulesProposer
from specs.canonical import plain
from specs.criteria import Metric
from specs.errors import GuardRefused
from specs.parameters import StressTestParameters, TrainingConfiguration
from specs.proposals import Proposal, Reason
from tests.agents.proposer_cases import context, data_evidence, memory_of, project

GIB = 2**30
GPU = {"kind": "cuda", "name": "H200", "count": 1, "usable_bytes": 10 * GIB, "physical_cores": 8, "bf16": True}


def at_train(share: float, *, reasons: tuple[Reason, ...] = (), device: dict[str, Any] = GPU, stages=None, **more):
    """A context at the gate of `train`, after a stress test of 2 x 4 samples that used so much of usable memory."""
    training = TrainingConfiguration(micro_batch=2, gradient_accumulation=4, max_length=304)
    measured = Proposal(
        stage="stress_test",
        round=1,
        parameters=plain(StressTestParameters(training=training)),
        reasons=list(reasons),
        proposer="rules",
    )
    evidence = data_evidence().model_copy(
        update={"stage": "stress_test", "metrics": {"usable_share": Metric(value=share, unit="share")}}
    )
    found = {"data": data_evidence(), "stress_test": evidence}
    approved = {"stress_test": measured}
    spec = project(stages={"stress_test": stages or {}})
    return context("train", spec=spec, evidence=found, approved=approved, device=device, **more)


def warnings(context, per_sample: int = GIB) -> list[str]:
    return RulesProposer(memory_of(per_sample, 10 * GIB)).propose(context).warnings


def test_the_largest_micro_batch_below_nine_tenths_is_offered_and_nothing_is_changed():
    proposal = RulesProposer(memory_of(GIB, 10 * GIB)).propose(at_train(0.4))
    assert proposal.parameters["training"]["micro_batch"] == 2
    offer = proposal.warnings[-1]
    assert "--want gradient_accumulation=1 --want micro_batch=8" in offer
    assert "40 %" in offer
    assert "80 %" in offer  # what it would use


def test_what_would_pass_nine_tenths_is_not_offered():
    assert "micro_batch=4" in warnings(at_train(0.4), 2 * GIB)[-1]
    assert warnings(at_train(0.4), 3 * GIB) == []


def test_a_plan_that_fills_memory_gets_no_offer():
    assert warnings(at_train(0.85)) == []


def test_limits_of_the_spec_bound_the_offer():
    assert "micro_batch=4" in warnings(at_train(0.4, stages={"micro_batch": {"max": 4}}))[-1]
    assert warnings(at_train(0.4, stages={"micro_batch": 2})) == []


def test_on_a_cpu_nothing_above_the_tokens_that_bring_speed_is_offered():
    cpu = {"kind": "cpu", "name": "CPU", "count": 1, "usable_bytes": 10 * GIB, "physical_cores": 2}
    assert warnings(at_train(0.4, device=cpu)) == []


def test_longer_samples_come_before_larger_batches():
    found = warnings(at_train(0.4, lengths={"reasons": {"quarantined: over_long": 7, "quarantined: empty": 3}}))
    assert "7 records were left out for their length" in found[-1]
    assert "micro_batch" not in found[-1]


def test_what_the_ladder_took_is_said_and_no_more_is_offered():
    took = Reason(parameter="training.micro_batch", text="memory ran out with 8; measured 2", source="ladder")
    proposal = RulesProposer(memory_of(GIB, 10 * GIB)).propose(at_train(0.4, reasons=(took,)))
    assert proposal.warnings == [
        "differs from what was approved before the stress test: micro_batch memory ran out with 8; measured 2. "
        "Approving this gate approves it"
    ]
    assert took in proposal.reasons


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"micro_batch": 4, "gradient_accumulation": 2}])
def test_another_configuration_than_measured_does_not_pass_the_guard(change):
    from agents.guard import guard

    here = at_train(0.4)
    proposal = RulesProposer(memory_of(GIB, 10 * GIB)).propose(here)
    edited = {"training": {**proposal.parameters["training"], **change}}
    with pytest.raises(GuardRefused, match="differs from what the stress test measured"):
        guard(proposal.model_copy(update={"parameters": edited}), here.spec, approved=here.approved)
