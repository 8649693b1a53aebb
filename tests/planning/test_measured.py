"""What a stress test measured stands in its plan, corrects its kin where it has to, and is said; nothing else moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.plan_data import RunData
from flows.plan_words import Answer, document, lines_after, lines_before, notes
from specs.parameters import LoraParameters, TrainingConfiguration
from tasks.advising import cards
from tasks.planning.families import Families
from tasks.planning.measured import Measured, Peak, Times, peak_of
from tasks.planning.plans import Limits, Plan, PlanSearch
from tasks.planning.search import search
from tests.planning.conftest import SMALL, WORKLOAD, machine_of

MIB = 2**20
RAN = TrainingConfiguration(
    weights="bf16", compute="amp-bf16", optimizer="adamw_fused", micro_batch=4, gradient_accumulation=1
)
SMALLER = RAN.model_copy(update={"micro_batch": 2, "gradient_accumulation": 2})
LIMITS = Limits(optimizers=("adamw_fused",))
MACHINE = machine_of(2**33)


def peak(held: int, framework: int = 700 * MIB, *, predicted: int = 100 * MIB, confirmed: bool = False) -> Peak:
    """As `calibration.json` records it."""
    sizes = {"held_bytes": held, "framework_bytes": framework, "process_bytes": held + framework}
    document = {
        "key": "0" * 64,
        "confirmed": confirmed,
        "measured": sizes,
        "predicted": {"process_bytes": predicted + 512 * MIB, "held_bytes": predicted, "framework_bytes": 512 * MIB},
        "ratio": held / predicted,
        "framework_bytes": framework,
    }
    return peak_of(document, "1" * 64)


def searched(families: Families, measured: Measured | None, limits: Limits = LIMITS, **more: Any) -> PlanSearch:
    return search("small", SMALL, MACHINE, WORKLOAD.model_copy(update=more), limits, families, measured)


def own(found: PlanSearch) -> list[Plan]:
    return [p for p in (*found.plans, *found.refused) if p.memory_source == "measured"]


def test_the_configuration_that_ran_has_its_measured_peak_and_no_other_has(families: Families):
    measured = Measured(training=RAN, peak=peak(333 * MIB))
    found = searched(families, measured)
    assert own(found)
    for plan in own(found):
        assert measured.is_of(plan.configuration, LIMITS)
        assert plan.account is not None
        assert plan.account.fits is not None
        assert plan.account.process_bytes == plan.account.fits.needed_bytes == 1033 * MIB
        assert plan.utilisation == pytest.approx(1033 * MIB / 2**33, abs=1e-4)
        assert plan.account.residents["framework"] == 700 * MIB
        assert sum(plan.account.residents.values()) == pytest.approx(
            plan.account.peak_allocated_bytes + 700 * MIB, abs=len(plan.account.residents)
        )


def test_others_of_the_kind_are_corrected_by_the_ratio_and_the_rest_keep_their_account(families: Families):
    plain, found = searched(families, None), searched(families, Measured(training=RAN, peak=peak(150 * MIB)))
    before = {p.configuration: p.account for p in plain.plans}
    assert {p.configuration for p in found.plans} == set(before)
    for plan in found.plans:
        account = before[plan.configuration]
        assert account is not None
        assert plan.account is not None
        if plan.memory_source == "predicted":
            assert plan.account == account
            assert plan.account_bytes is None
            assert plan.configuration.method != "lora" or plan.configuration.offload != "none"
        if plan.memory_source == "calibrated":
            assert plan.account_bytes == account.process_bytes
            assert plan.account.process_bytes == 700 * MIB + round(1.5 * account.peak_reserved_bytes)
    assert {p.memory_source for p in found.plans} == {"predicted", "calibrated", "measured"}


def test_a_measurement_that_confirms_the_account_corrects_no_other(families: Families):
    found = searched(families, Measured(training=RAN, peak=peak(104 * MIB, 512 * MIB, confirmed=True)))
    assert {p.memory_source for p in found.plans} == {"predicted", "measured"}


def test_a_peak_above_what_can_be_used_refuses_the_plan_that_its_account_would_allow(families: Families):
    found = searched(families, Measured(training=RAN, peak=peak(8 * 2**30)))
    (refused, *_) = own(found)
    assert not refused.feasible
    assert refused.account_bytes is not None
    assert refused.account_bytes < 2**33
    assert refused.refused is not None
    assert refused.refused.over_bytes == 700 * MIB


def test_other_adapters_are_not_what_ran(families: Families):
    """The families were recorded for rank 16: the run had another."""
    ran = RAN.model_copy(update={"lora": LoraParameters(rank=64)})
    found = searched(families, Measured(training=ran, peak=peak(150 * MIB)))
    assert own(found) == []
    full = TrainingConfiguration(method="full", lora=LoraParameters(rank=64))
    like = found.plans[0].configuration.model_copy(
        update={"method": "full", "weights": "fp32", "compute": "fp32", "optimizer": "adamw"}
    )
    like = like.model_copy(update={"micro_batch": 1, "gradient_accumulation": 8, "activation_checkpointing": False})
    assert Measured(training=full).is_of(like, Limits()), "full fine-tuning has no adapters"


def test_what_ran_is_among_the_plans_although_nobody_would_try_its_types(families: Families):
    from tasks.planning.candidates import family_settings, settings_of
    from tasks.planning.families import key_of
    from tasks.planning.measured import configuration_of

    like = searched(families, None).plans[0].configuration
    ran = RAN.model_copy(update={"compute": "bf16"})
    settings = family_settings(settings_of(SMALL, configuration_of(ran, like), MACHINE, LIMITS))
    some = next(f for f in families.values())
    known = {**families, key_of(settings): some}
    found = searched(known, Measured(training=ran, peak=peak(150 * MIB)))
    assert [p.configuration.compute for p in own(found)] == ["bf16"]
    assert own(searched(known, Measured(training=ran, peak=peak(150 * MIB)), effective_batch=8)) == []


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (Measured(training=RAN, peak=peak(150 * MIB)), "peak of the stress test of this run: 0.83 GiB"),
        (Measured(training=SMALLER, peak=peak(150 * MIB)), "(139% of the account)"),
        (Measured(training=SMALLER, peak=peak(104 * MIB, 512 * MIB, confirmed=True)), "confirms it (101% of the"),
        (Measured(training=RAN.model_copy(update={"method": "full"}), peak=peak(150 * MIB)), "another kind"),
        (Measured(training=RAN, times=Times(seconds_per_step=3.0, steps=8, padded_tokens_per_step=900.0)), None),
    ],
)
def test_it_is_said_where_memory_comes_from_and_what_ran(families: Families, measured: Measured, said: str | None):
    found = searched(families, measured)
    given = RunData("r1", "p", (60, 900), (100,), "small", "en", RAN, measured, ("cuda", "test card"), [])
    answer = Answer(found, MACHINE, WORKLOAD, LIMITS, given=given, measured=measured)
    assert lines_before(answer, "en") == [
        "data: run r1, 2 training samples of at most 900 tokens, 1 held out",
    ]
    told = "\n".join(notes(answer, "en"))
    assert (said is None) == ("memory is" not in told)
    assert said is None or said in told
    assert ("what the stress test ran" in told) == (bool(own(found)) and found.plans[0] not in own(found))
    for line in notes(answer, "en"):
        assert f"  {line}" in lines_after(answer, "en"), "the terminal shows what the document holds"
    held = document(answer, "en")
    assert held["notes"] == notes(answer, "en")
    assert held["data"] == {
        "run": "r1",
        "project": "p",
        "samples": 2,
        "held_out": 1,
        "longest": 900,
        "stress_test_used": True,
    }
    assert json.dumps(held)
    assert notes(answer, "zh") != notes(answer, "en")


def test_buckets_that_the_stress_test_did_not_run_are_told_with_the_times_they_are_in(families: Families):
    times = Times(seconds_per_step=3.0, steps=8, padded_tokens_per_step=900.0, buckets_without_time=2)
    measured = Measured(training=RAN, times=times)
    given = RunData("r1", "p", (60, 900), (100,), "small", "en", RAN, measured, ("cuda", "test card"), [])
    answer = Answer(searched(families, measured), MACHINE, WORKLOAD, LIMITS, given=given, measured=measured)
    said = "the stress test did not run 2 buckets of lengths: they count at the mean rate of the others"
    assert said in notes(answer, "en")


@pytest.mark.parametrize("broken", [{}, {"measured": {}}, {"measured": {"process_bytes": 0, "framework_bytes": 0}}])
def test_a_record_of_a_peak_that_is_none_is_an_error(broken: dict[str, Any]):
    with pytest.raises((KeyError, ValueError)):
        peak_of(broken, "1" * 64)


def test_the_configuration_that_ran_stays_first_when_it_is_the_best(families: Families, tmp_path: Path):
    """A measured plan is ranked by its measured peak: within the band it is preferred over an emptier card."""
    small = machine_of(1000 * MIB)
    measured = Measured(training=RAN, peak=peak(150 * MIB))
    found = search("small", SMALL, small, WORKLOAD, LIMITS, families, measured)
    assert found.preferred is not None
    assert found.preferred.memory_source == "measured"
    assert 0.8 <= found.preferred.utilisation <= 0.9


def test_advice_takes_what_was_measured_for_the_card_it_was_measured_on(families: Families, monkeypatch: Any):
    monkeypatch.setattr(cards, "families_for", lambda *_: families)
    cards_looked_at = ("RTX 4090", "RTX 3090")

    def surveyed(on: str | None) -> dict[str, cards.Row]:
        ran = Measured(training=RAN, peak=peak(150 * MIB))
        found = cards.survey(
            "small",
            SMALL,
            WORKLOAD,
            LIMITS.model_copy(update={"methods": ("lora",)}),
            named=cards_looked_at,
            most=1,
            measured=lambda device: ran if device.name == on else None,
        )
        return {row.gpu: row for row in found.rows}

    plain, found = surveyed(None), surveyed("RTX 4090")
    assert [found[name].measured for name in cards_looked_at] == [True, False]
    assert found["RTX 3090"] == plain["RTX 3090"]
    own, before = found["RTX 4090"].plan, plain["RTX 4090"].plan
    assert own is not None
    assert before is not None
    assert own.memory_source != "predicted" == before.memory_source
    assert own.utilisation != before.utilisation
