"""Promises of the plan search: what is feasible fits, more never takes away, the invariant holds, reasons help."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.hardware import find_gpu
from specs.parameters import TrainingConfiguration
from tasks.memory.family import Family
from tasks.planning.candidates import placements
from tasks.planning.families import Families, key_of
from tasks.planning.machine import Machine
from tasks.planning.measured import Measured, Times, configuration_of, times_of
from tasks.planning.plans import Configuration, Lever, Limits, PlanSearch
from tasks.planning.refusals import explained
from tasks.planning.search import best_of_each, search, wanted_families
from tasks.planning.timing import step_seconds
from tasks.planning.weighing import BAND, Search
from tasks.planning.workload import Workload
from tests.planning.conftest import SMALL, WORKLOAD, machine_of

MIB = 2**20
FRAMEWORK = 512 * MIB
TIMES = Times(seconds_per_step=3.0, steps=8, padded_tokens_per_step=900.0)
FEW = Limits(optimizers=("adamw_fused",))
"""A third of the candidates: properties do not need all optimizers."""


def found(families: Families, usable: int, count: int = 1, limits: Limits | None = None, **more: Any) -> PlanSearch:
    machine = machine_of(usable, count, **more)
    return search("small", SMALL, machine, WORKLOAD, limits or Limits(), families)


@settings(max_examples=3, deadline=None)
@given(st.integers(FRAMEWORK, FRAMEWORK + 400 * MIB), st.integers(1, 300 * MIB), st.sampled_from([1, 2]))
def test_more_memory_never_makes_a_plan_infeasible(families: Families, usable: int, more: int, count: int):
    few, many = found(families, usable, count, FEW), found(families, usable + more, count, FEW)
    before = {p.configuration for p in few.plans if not p.configuration.divides_layers}
    assert before <= {p.configuration for p in many.plans}
    assert {p.configuration.method for p in few.plans} <= {p.configuration.method for p in many.plans}
    # layers are divided only for methods that nothing else makes fit; all other candidates are the same
    few_whole, many_whole = (
        s.candidates - sum(p.configuration.divides_layers for p in [*s.plans, *s.refused]) for s in (few, many)
    )
    assert few_whole == many_whole


@settings(max_examples=3, deadline=None)
@given(st.integers(FRAMEWORK, FRAMEWORK + 400 * MIB), st.sampled_from([1, 2]))
def test_every_feasible_plan_fits_and_keeps_the_effective_batch(families: Families, usable: int, count: int):
    result = found(families, usable, count, FEW)
    for plan in result.plans:
        assert plan.account is not None
        assert plan.account.process_bytes <= usable
        assert plan.configuration.effective_batch == WORKLOAD.effective_batch
    for plan in result.refused:
        assert plan.refused is not None
        assert plan.configuration.effective_batch == WORKLOAD.effective_batch
        assert plan.account is not None
        assert plan.account.process_bytes > usable


def test_a_way_out_does_make_it_fit(families: Families):
    result = found(families, FRAMEWORK + 60 * MIB)
    state = Search(SMALL, machine_of(FRAMEWORK + 60 * MIB), WORKLOAD, Limits(), families)
    helped = 0
    for plan in result.refused:
        assert plan.refused is not None
        for step in plan.refused.way_out:
            if step.lever in ("cards", "other_processes", "allocator") or not step.fits:
                continue
            alone = len([s for s in plan.refused.way_out if not s.fits]) == 0
            if alone:
                changed = Configuration.model_validate({**plan.configuration.model_dump(), **step.change})
                assert not state.lacks(state.account(changed)), step
                assert changed.effective_batch == WORKLOAD.effective_batch
                helped += 1
    assert helped > 10


def test_steps_that_together_make_it_fit_are_all_needed(families: Families):
    """Every chain ends in a plan that fits, and fits no more when one of its steps is left out."""
    machine, chains = machine_of(FRAMEWORK + 21 * MIB), 0
    state = Search(SMALL, machine, WORKLOAD, FEW, families)
    for plan in search("small", SMALL, machine, WORKLOAD, FEW, families).refused:
        steps = plan.refused.way_out if plan.refused else []
        if not any(not s.fits for s in steps) or any(s.lever == "cards" for s in steps):
            continue
        chains += 1
        start = plan.configuration.model_dump()

        def changed(kept: list[Any], start: dict[str, Any] = start) -> Configuration:
            return Configuration.model_validate({**start, **{k: v for s in kept for k, v in s.change.items()}})

        assert not state.lacks(state.account(changed(steps)))
        for step in steps:
            fewer = changed([s for s in steps if s is not step])
            kept = fewer.effective_batch == WORKLOAD.effective_batch and not state.unrecorded(fewer)
            assert not kept or state.lacks(state.account(fewer)), step
    assert chains


def test_levers_come_in_their_order(families: Families):
    seen = set()
    usable = FRAMEWORK + 60 * MIB
    for limits in (Limits(), FEW.model_copy(update={"free_bytes": usable - 10 * MIB})):
        for plan in found(families, usable, 2, limits).refused:
            assert plan.refused is not None
            places = [get_args(Lever).index(s.lever) for s in plan.refused.way_out]
            assert places == sorted(places)
            seen |= {s.lever for s in plan.refused.way_out}
    few = {"allocator", "qlora"}  # the first has a test of its own; 4-bit weights save nothing of so small a model
    assert seen == set(get_args(Lever)) - few


def wasteful(families: Families, machine: Machine, limits: Limits) -> tuple[Search, Configuration]:
    """A candidate whose allocator would keep 40 MiB more than its tensors take."""
    best = found(families, 2**33, limits=FEW).preferred
    assert best is not None
    c = best.configuration
    account = Search(SMALL, machine, WORKLOAD, limits, families).predicted(c)
    wide = account.model_copy(update={"peak_reserved_bytes": account.peak_allocated_bytes + 40 * MIB})
    return Search(SMALL, machine, WORKLOAD, limits, families, accounts={c: wide}), c


def test_the_allocator_is_named_with_its_setting_only_where_it_is_enough(families: Families):
    roomy = machine_of(2**33)
    state, c = wasteful(families, roomy, Limits())
    tensors = state.predicted(c).peak_allocated_bytes + state.predicted(c).framework_bytes

    def ways(usable: int, limits: Limits | None = None, **machine: Any) -> dict[str, Any]:
        state, c = wasteful(families, machine_of(usable, **machine), limits or Limits())
        refused = explained(state.plan(c), state).refused
        assert refused is not None
        return {step.lever: step.change for step in refused.way_out}

    assert ways(tensors + MIB)["allocator"] == {"allocator": "expandable_segments"}
    assert ways(tensors + MIB, expandable=False)["allocator"] == {"allocator": "max_split_size"}
    assert "allocator" not in ways(tensors - MIB)
    held = ways(tensors + 60 * MIB, Limits(free_bytes=tensors - MIB))
    assert "other_processes" in held
    assert "allocator" not in held, "with what others leave even the tensors have no room"
    host = machine_of(tensors + MIB).device.with_host(0.01, None)
    assert "allocator" not in ways(tensors + MIB, device=host), "it is the host that is too small"


def test_a_refused_plan_says_by_how_much_on_the_card_in_host_memory_and_on_the_disk(families: Families):
    usable = FRAMEWORK + 60 * MIB
    device = machine_of(usable).device.with_host(0.25, 0.001)
    result = search("small", SMALL, machine_of(usable, device=device), WORKLOAD, FEW, families)
    rules = set()
    for plan in result.refused:
        assert plan.refused is not None
        assert plan.account is not None
        lacks = {lack.rule: lack for lack in plan.refused.lacks}
        rules |= lacks.keys()
        needed = {"memory": plan.account.process_bytes, "host": plan.account.host_peak_bytes}
        needed["disk"] = plan.account.disk_bytes
        for rule in lacks.keys() & needed.keys():
            assert lacks[rule].needed == needed[rule] > lacks[rule].there
        if "memory" in lacks:
            assert plan.refused.over_bytes == plan.account.process_bytes - usable
        if lacks.keys() & {"host", "disk"}:
            assert not any("gpu" in step.change for step in plan.refused.way_out), "a bigger card has no bigger host"
    assert rules >= {"memory", "host", "disk"}
    assert result.plans == []


def test_offload_comes_with_its_price_in_time(families: Families):
    steps = [
        step
        for plan in found(families, FRAMEWORK + 20 * MIB, 1, FEW).refused
        if plan.refused
        for step in plan.refused.way_out
        if step.lever == "offload" and "weights" not in step.change  # lighter types are quicker
    ]
    assert steps
    assert all(step.slower is not None and step.slower > 1 for step in steps)
    offloaded = [p for p in found(families, 2**33, 1, FEW).plans if p.configuration.offload != "none"]
    assert offloaded
    assert all(p.seconds and p.seconds.parts["host"] > 0 for p in offloaded)


def test_a_bigger_card_computes_in_the_same_types(families: Families):
    result = search("small", SMALL, machine_of(FRAMEWORK + MIB), WORKLOAD, FEW, families)
    cards = {
        find_gpu(str(step.change["gpu"]))
        for plan in result.refused
        if plan.refused and "bf16" in plan.configuration.compute
        for step in plan.refused.way_out
        if "gpu" in step.change
    }
    assert cards
    assert all(card.bf16_hardware for card in cards)


def test_hours_hold_training_evaluation_saving_and_loading(families: Families):
    best = found(families, 2**33, limits=FEW).preferred
    assert best is not None
    assert best.duration is not None
    assert best.duration.parts.keys() == {"training", "evaluation", "saving", "loading"}
    assert all(hours > 0 for hours in best.duration.parts.values())
    assert sum(best.duration.parts.values()) == pytest.approx(best.duration.hours)
    without = WORKLOAD.model_copy(update={"evaluation_lengths": ()})
    other = search("small", SMALL, machine_of(2**33), without, FEW, families).preferred
    assert other is not None
    assert other.duration is not None
    assert other.duration.hours == pytest.approx(best.duration.hours - best.duration.parts["evaluation"])


def test_the_preferred_plan_is_the_simplest_within_the_band(families: Families):
    result = found(families, FRAMEWORK + 90 * MIB, 2)
    best = result.preferred
    assert best is not None
    assert best.utilisation <= BAND[1]
    assert best.configuration.cards == 1
    assert best.configuration.offload == "none"
    order = [p.configuration.offload for p in result.plans if p.utilisation <= BAND[1]]
    assert order == sorted(order, key=("none", "optimizer", "all").index)
    same = [p for p in result.plans if p.configuration.method == best.configuration.method and p.utilisation <= BAND[1]]
    single = [p.configuration.seq_len for p in same if p.configuration.cards == 1 and p.configuration.offload == "none"]
    assert best.configuration.seq_len == max(single), "length goes up before batch"


def test_no_length_beyond_the_longest_sample_is_tried(families: Families):
    result = found(families, 2**30)
    assert max(p.configuration.seq_len for p in result.plans) == 1024  # 900 tokens, in steps of 128
    short = [p for p in result.plans if p.configuration.seq_len < 900]
    assert all(p.samples_over_length > 0 for p in short)
    assert all(p.samples_over_length == 0 for p in result.plans if p.configuration.seq_len == 1024)


def test_a_device_map_that_spills_a_quantised_model_is_refused_by_name(families: Families):
    rules = [lack.rule for p in found(families, FRAMEWORK + MIB).refused if p.refused for lack in p.refused.lacks]
    assert "offloaded-quantized" in rules
    rules = [lack.rule for p in found(families, 2**33).refused if p.refused for lack in p.refused.lacks]
    assert "offloaded-quantized" not in rules


def test_ranks_that_cannot_share_the_batch_are_counted(families: Families):
    result = search("small", SMALL, machine_of(2**33, 3), WORKLOAD, Limits(), families)
    assert result.indivisible_ranks == [3]
    assert {p.configuration.data_ranks for p in result.plans} == {1}


def test_other_processes_come_first(families: Families):
    usable = FRAMEWORK + 200 * MIB
    limits = Limits(free_bytes=FRAMEWORK + 100 * MIB)
    refused = found(families, usable, limits=limits).refused
    held = [p for p in refused if p.account and p.account.process_bytes <= usable and p.refused]
    assert held
    assert all(p.refused and p.refused.way_out[0].lever == "other_processes" for p in held)


def test_hours_and_money_refuse_with_figures(families: Families):
    free = found(families, 2**33, price_per_card_hour=2.0)
    best = free.preferred
    assert best is not None
    assert best.duration is not None
    assert best.duration.money == pytest.approx(best.duration.hours * 2.0)
    for limits, rule in (
        (FEW.model_copy(update={"hours": best.duration.hours / 2}), "hours"),
        (FEW.model_copy(update={"money": best.duration.money / 2}), "money"),
    ):
        refused = found(families, 2**33, limits=limits, price_per_card_hour=2.0).refused
        own = next(p for p in refused if p.configuration == best.configuration)
        assert own.refused is not None
        assert own.duration is not None
        needed = {"hours": own.duration.hours, "money": own.duration.money}[rule]
        assert [(lack.rule, lack.needed) for lack in own.refused.lacks] == [(rule, needed)]


def test_a_bound_on_the_steps_shortens_the_run_and_nothing_else(families: Families):
    machine = machine_of(2**33)
    whole = search("small", SMALL, machine, WORKLOAD, FEW, families).preferred
    few = WORKLOAD.model_copy(update={"max_steps": 5})
    bound = search("small", SMALL, machine, few, FEW, families).preferred
    assert whole is not None
    assert bound is not None
    assert (bound.configuration, bound.seconds, bound.account) == (whole.configuration, whole.seconds, whole.account)
    assert whole.duration is not None
    assert bound.duration is not None
    assert (whole.duration.steps, bound.duration.steps) == (15, 5)
    assert bound.duration.parts["training"] == pytest.approx(whole.duration.parts["training"] / 3)
    assert bound.duration.tokens == pytest.approx(whole.duration.tokens / 3)
    many = WORKLOAD.model_copy(update={"max_steps": 500})
    assert search("small", SMALL, machine, many, FEW, families).preferred == whole


def test_a_faster_card_or_link_is_never_slower(families: Families):
    slow = found(families, 2**33, 2)
    fast = found(families, 2**33, 2, tflops=330.0, memory_gb_s=2000.0, link_gb_s=300.0, nvlink=True)
    before = {p.configuration: p.seconds.expected for p in slow.plans if p.seconds}
    after = {p.configuration: p.seconds.expected for p in fast.plans if p.seconds}
    assert before.keys() == after.keys()
    assert all(after[c] <= before[c] for c in before)
    assert all(p.seconds.low <= p.seconds.expected <= p.seconds.high for p in slow.plans if p.seconds)


def test_without_rates_no_time_is_invented(families: Families):
    result = found(families, 2**33, tflops=None)
    assert result.plans
    assert all(p.seconds is None and p.duration is None for p in result.plans)


def test_measured_times_replace_predicted_ones(families: Families):
    machine = machine_of(2**33)
    training = TrainingConfiguration(
        weights="bf16",
        compute="amp-bf16",
        optimizer="adamw_fused",
        micro_batch=2,
        gradient_accumulation=2,
        max_length=1024,
    )
    timed = {
        "planned_steps": 6,
        "seconds_per_step": 3.0,
        "planned_padded_tokens": 600,
        "padded_tokens_per_second": 50.0,
    }
    other = {
        "planned_steps": 2,
        "seconds_per_step": None,
        "planned_padded_tokens": 1000,
        "padded_tokens_per_second": None,
    }
    times = times_of([timed, other])
    assert times is not None
    assert times.seconds_per_step == pytest.approx((6 * 3.0 + 1000 / 50.0) / 8)
    assert times.buckets_without_time == 1
    measured = Measured(training=training, times=times)
    result = search("small", SMALL, machine, WORKLOAD, Limits(), families, measured)
    own = [p for p in result.plans if measured.is_of(p.configuration, Limits()) and not p.samples_over_length]
    assert own
    assert all(p.seconds and p.seconds.source == "measured" for p in own)
    assert own[0].seconds is not None
    assert own[0].seconds.expected == pytest.approx(times.seconds_per_step)
    others = [p.seconds for p in result.plans if p not in own and p.seconds]
    assert {s.source for s in others} == {"scaled"}


def test_the_best_of_each_kind_is_its_first(families: Families):
    result = found(families, 2**33, 2)
    shown = best_of_each(result.plans, 20)
    kinds = [
        (p.configuration.method, p.configuration.sharding, p.configuration.offload, p.configuration.cards)
        for p in shown
    ]
    assert len(set(kinds)) == len(kinds)
    assert shown[0] == result.preferred


def test_accounts_carried_from_card_to_card_change_nothing(families: Families):
    carried: dict[Configuration, Any] = {}
    for usable in (2**33, FRAMEWORK + 90 * MIB):
        machine = machine_of(usable)
        carrying = search("small", SMALL, machine, WORKLOAD, FEW, families, explain=False, accounts=carried)
        fresh = search("small", SMALL, machine, WORKLOAD, FEW, families)
        assert carrying.plans == fresh.plans
        assert [p.configuration for p in carrying.refused] == [p.configuration for p in fresh.refused]


@pytest.mark.parametrize(("asked", "taken"), [("flash", "sdpa"), ("eager", "eager"), ("sdpa", "sdpa")])
def test_a_card_without_flash_kernels_takes_the_attention_that_was_recorded(
    families: Families, asked: Literal["flash", "eager", "sdpa"], taken: str
):
    machine = machine_of(FRAMEWORK + 10 * MIB, flash=False)
    workload = WORKLOAD.model_copy(update={"attention": asked})
    recorded = {
        key_of(s): families[key_of(s.model_copy(update={"attention": "sdpa"}))]
        for s in wanted_families(SMALL, machine, workload, Limits())
    }
    result = search("small", SMALL, machine, workload, Limits(), recorded)
    assert "offloaded-quantized" in {lack.rule for p in result.refused if p.refused for lack in p.refused.lacks}
    assert {p.configuration.attention for p in (*result.plans, *result.refused)} == {taken}


def test_a_search_survives_its_file(families: Families):
    result = found(families, FRAMEWORK + 90 * MIB)
    assert PlanSearch.model_validate(json.loads(result.model_dump_json())) == result


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 4000))
def test_every_sample_within_the_limit_is_in_a_micro_batch(lengths: list[int], size: int, limit: int):
    sums = Workload(lengths=tuple(lengths)).sums(size, limit)
    kept = [n for n in lengths if n <= limit]
    assert sums.over == len(lengths) - len(kept)
    assert sums.micro_batches == -(-len(kept) // size)
    assert sum(kept) <= sums.padded_tokens <= len(kept) * max(kept, default=0)


def test_nothing_lies_on_the_host_when_that_is_not_wanted():
    for method in ("lora", "qlora", "full"):
        found = placements(machine_of(2**33, 4), method, Limits(offload=False))  # type: ignore[arg-type]
        assert {p.offload for p in found} == {"none"}


def test_recomputation_costs_time(families: Families):
    state = Search(SMALL, machine_of(2**33), WORKLOAD, Limits(), families)
    plain = next(p.configuration for p in found(families, 2**33).plans if not p.configuration.activation_checkpointing)
    again = plain.model_copy(update={"activation_checkpointing": True})
    sums = WORKLOAD.sums(plain.micro_batch, plain.seq_len)
    times = [step_seconds(c, state.account(c), state.family(c), state.machine, sums) for c in (plain, again)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].parts["compute"] < times[1].parts["compute"] < 1.6 * times[0].parts["compute"]


def test_the_run_s_own_optimizer_has_its_measured_time_although_nobody_asked_for_it(families: Families):
    from tasks.planning import search as module
    from tasks.planning.candidates import family_settings, settings_of
    from tasks.planning.families import key_of
    from tasks.planning.search import find_plans

    training = TrainingConfiguration(weights="bf16", compute="amp-bf16", optimizer="adamw", micro_batch=4)
    measured = Measured(training=training, times=TIMES)
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "families_for", lambda wanted, names, *_: asked.extend([list(wanted), names]) or families)
        find_plans("small", SMALL, machine_of(2**33), WORKLOAD, FEW, measured)
    assert asked[1] == ("adamw_fused", "adamw")
    like = next(iter(found(families, 2**33, limits=FEW).plans)).configuration
    ran = family_settings(settings_of(SMALL, configuration_of(training, like), machine_of(2**33), FEW))
    assert key_of(ran) in {key_of(s) for s in asked[0]}


@pytest.mark.parametrize(
    "changed", [{"offload": "all", "sharding": "zero3"}, {"micro_batch": 2, "gradient_accumulation": 4}]
)
def test_what_was_measured_is_not_said_of_a_configuration_that_did_not_run(changed: dict[str, Any]):
    training = TrainingConfiguration(weights="bf16", compute="amp-bf16", micro_batch=4, gradient_accumulation=2)
    measured = Measured(training=training, times=TIMES)
    like = Configuration(
        method="lora",
        weights="bf16",
        compute="amp-bf16",
        optimizer="adamw",
        micro_batch=4,
        gradient_accumulation=2,
        data_ranks=1,
        seq_len=1024,
        activation_checkpointing=False,
        attention="sdpa",
    )
    assert measured.is_of(like, Limits())
    assert not measured.is_of(like.model_copy(update=changed), Limits())
    loose = training.model_copy(update={"max_tokens_per_step": 8 * 1024, "max_tokens_per_micro_batch": 4 * 1024})
    assert measured.model_copy(update={"training": loose}).is_of(like, Limits()), "no step is divided by these"
    for bound in ({"max_tokens_per_step": 8 * 1024 - 1}, {"max_tokens_per_micro_batch": 4 * 1024 - 1}):
        tight = training.model_copy(update=bound)
        assert not measured.model_copy(update={"training": tight}).is_of(like, Limits())
    packed = measured.model_copy(update={"training": training.model_copy(update={"packing": True})})
    assert not packed.is_of(like, Limits()), "candidates pack nothing"
    ranks = training.model_copy(update={"ranks": 2})
    assert not measured.model_copy(update={"training": ranks}).is_of(like, Limits()), "two ranks took half as long"


def test_a_length_that_leaves_samples_out_has_no_measured_time(families: Families):
    training = TrainingConfiguration(
        weights="bf16", compute="amp-bf16", optimizer="adamw_fused", micro_batch=4, gradient_accumulation=1
    )
    measured = Measured(training=training, times=TIMES)
    result = search("small", SMALL, machine_of(2**33), WORKLOAD, FEW, families, measured)
    own = [p for p in result.plans if p.seconds and p.seconds.source == "measured"]
    assert own
    assert all(not p.samples_over_length for p in own)


def test_what_others_hold_is_not_there_to_be_filled(families: Families):
    usable, free = FRAMEWORK + 400 * MIB, FRAMEWORK + 200 * MIB
    result = found(families, usable, limits=FEW.model_copy(update={"free_bytes": free}))
    assert result.usable_bytes == free
    assert result.preferred is not None
    assert result.preferred.account is not None
    assert result.preferred.account.process_bytes <= BAND[1] * free
    assert all(
        p.utilisation == pytest.approx(p.account.process_bytes / free, abs=1e-3) for p in result.plans if p.account
    )


def test_lengths_that_the_model_was_not_made_for_are_named():
    asked = Workload(limits=(4096, 1000, 512))
    assert asked.length_limits(1024) == [1024, 512]
    assert asked.left_out(1024) == [4096]


def test_families_of_ways_out_are_recorded_only_where_somebody_reads_them():
    limits = Limits(methods=("full",))
    wanted = [wanted_families(SMALL, machine_of(2**33), WORKLOAD, limits, explain=explain) for explain in (True, False)]
    assert [{s.method for s in found} for found in wanted] == [{"full", "lora", "qlora"}, {"full"}]


def test_candidates_whose_family_was_not_recorded_are_refused_and_the_others_are_as_before(families: Families):
    some = {k: f for k, f in families.items() if isinstance(f, Family) and f.settings.activation_checkpointing}
    part = search("small", SMALL, machine_of(2**33), WORKLOAD, FEW, some, explain=False)
    whole = search("small", SMALL, machine_of(2**33), WORKLOAD, FEW, families, explain=False)
    assert part.plans == [p for p in whole.plans if p.configuration.activation_checkpointing]
    assert part.candidates == whole.candidates
