"""Promises of tensor and pipeline parallel: allowed where they divide, last in the order, never more per rank."""

from __future__ import annotations

from typing import Any

import pytest

from flows.plan_words import Answer, notes
from tasks.memory.dividing import BUBBLE, fewest_micro_batches
from tasks.memory.host import frameworks
from tasks.planning.families import Families
from tasks.planning.parallel import bubble, divided_sizes, left_out, tensor_degrees, variants
from tasks.planning.plans import Limits, PlanSearch
from tasks.planning.search import search
from tasks.planning.texts import placed, text
from tasks.planning.weighing import BAND, Search
from tasks.planning.workload import Workload
from tests.planning.conftest import SMALL, machine_of

MIB = 2**20


def test_a_layer_is_divided_only_where_heads_key_heads_and_vocabulary_are():
    assert tensor_degrees(SMALL, machine_of(2**30, 4)) == [2, 4]
    assert tensor_degrees(SMALL | {"num_key_value_heads": 2}, machine_of(2**30, 4)) == [2]
    assert tensor_degrees(SMALL | {"vocab_size": 1023}, machine_of(2**30, 4)) == []
    assert tensor_degrees(SMALL, machine_of(2**30, 1)) == []


def test_on_pcie_at_most_four_share_a_layer_and_never_more_than_a_machine_has():
    wide = SMALL | {"num_key_value_heads": 8}
    assert tensor_degrees(wide, machine_of(2**30, 8)) == [2, 4]
    assert tensor_degrees(wide, machine_of(2**30, 8, nvlink=True)) == [2, 4, 8]
    assert max(tensor_degrees(wide, machine_of(2**30, 2, nodes=4))) == 2


def test_heads_are_found_under_the_names_of_every_family():
    plain = {"vocab_size": 1024, "n_head": 8}
    assert divided_sizes(plain) == (8, 8, 1024)
    assert divided_sizes(plain | {"num_kv_heads": 2}) == (8, 2, 1024)
    assert tensor_degrees(plain | {"multi_query": True}, machine_of(2**30, 4)) == [], "one key head is not divided"
    new = {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 4}
    assert divided_sizes(plain | new) == (8, 4, 1024)
    assert divided_sizes({"vocab_size": 1024}) is None


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_a_pipeline_has_micro_batches_enough_for_its_bubble(stages: int):
    fewest = fewest_micro_batches(stages)
    assert bubble(stages, fewest) <= BUBBLE
    assert fewest == stages or bubble(stages, fewest - 1) > BUBBLE


def test_layers_are_divided_only_where_nothing_else_fits(families: Families):
    """One rank of a divided model needs less than the card of an undivided one, and keeps the effective batch."""
    limits = Limits(methods=("full",), optimizers=("adamw_fused",), offload=False)
    workload = Workload(limits=(1024,), samples=64, effective_batch=8)
    roomy = search("small", SMALL, machine_of(2**33, 2), workload, limits, families)
    assert not any(p.configuration.divides_layers for p in roomy.plans)
    state = Search(SMALL, machine_of(2**33, 2), workload, limits, families)
    needed = [p.account.process_bytes for p in (*roomy.plans, *roomy.refused) if p.account]
    tight = search("small", SMALL, machine_of(min(needed) - 1, 2), workload, limits, families)
    divided = [p for p in (*tight.plans, *tight.refused) if p.configuration.divides_layers]
    assert divided
    assert all(p.configuration.effective_batch == 8 for p in divided)
    for plan in divided:
        alone = state.account(plan.configuration.undivided)
        assert plan.account is not None
        assert plan.account.method == "closed-form"
        assert plan.account.host_peak_bytes - alone.host_peak_bytes >= frameworks(2) - frameworks(1)
        if plan.configuration.data_ranks == 1:
            assert plan.account.peak_allocated_bytes < alone.peak_allocated_bytes + 2 * MIB


def too_small(families: Families, effective_batch: int, count: int, nodes: int) -> PlanSearch:
    """A search in which nothing fits without dividing layers."""
    limits = Limits(methods=("full",), optimizers=("adamw_fused",), offload=False)
    workload = Workload(limits=(1024,), samples=64, effective_batch=effective_batch)
    whole = search("small", SMALL, machine_of(2**33, count, nodes=nodes), workload, limits, families)
    least = min(p.account.process_bytes for p in whole.plans if p.account)
    return search("small", SMALL, machine_of(least - 1, count, nodes=nodes), workload, limits, families)


def test_layers_are_divided_within_a_machine_and_stages_across_machines_with_the_bubble_said(families: Families):
    found = too_small(families, 32, 2, 2)
    divided = [p for p in (*found.plans, *found.refused) if p.configuration.divides_layers]
    assert {p.configuration.tensor_parallel for p in divided} <= {1, 2}, "never more than a machine has"
    assert {p.configuration.pipeline_stages for p in divided} == {1, 2}
    for plan in divided:
        c = plan.configuration
        assert c.cards == 4
        if c.pipeline_stages == 1:
            assert plan.pipeline is None
            continue
        assert plan.pipeline is not None
        assert plan.pipeline.bubble == bubble(2, c.gradient_accumulation) <= BUBBLE
        assert c.gradient_accumulation >= plan.pipeline.fewest_micro_batches == fewest_micro_batches(2)
        assert "bubble" in placed(plan, "en")
        assert "气泡" in placed(plan, "zh")
    feasible = [p.configuration for p in found.plans if p.utilisation <= BAND[1]]
    order = [(c.pipeline_stages > 1) + 2 * (c.tensor_parallel > 1) for c in feasible]
    assert order == sorted(order), "pipeline and replicas before tensor ranks, both together last"


def test_all_three_are_together_only_where_two_are_not_enough(families: Families):
    one = too_small(families, 32, 2, 2).refused[0].configuration.undivided
    tried = list(variants(one.model_copy(update={"micro_batch": 1}), SMALL, machine_of(2**30, 2, nodes=2), 32))
    assert {(c.tensor_parallel, c.pipeline_stages) for c in tried} == {(2, 1), (1, 2), (2, 2)}
    found = too_small(families, 32, 2, 2)
    batches: dict[tuple[Any, ...], list[Any]] = {}
    for plan in (*found.plans, *found.refused):
        c = plan.configuration
        if c.divides_layers:
            batches.setdefault((c.micro_batch, c.weights, c.seq_len), []).append(plan)
    assert batches
    for plans in batches.values():
        both = [p for p in plans if min(p.configuration.tensor_parallel, p.configuration.pipeline_stages) > 1]
        either = [p for p in plans if p not in both]
        assert bool(both) != any(p.feasible for p in either)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_pipeline_without_micro_batches_enough_is_named_with_the_batch_it_needs(families: Families, language: Any):
    found = too_small(families, 8, 2, 2)
    assert [one.reason for one in found.left_out] == ["pipeline_short"]
    needed = found.left_out[0].values["needed"]
    assert needed == 2 * fewest_micro_batches(2)
    workload = Workload(limits=(1024,), samples=64, effective_batch=8)
    said = notes(Answer(found, machine_of(2**30, 2, nodes=2), workload, Limits()), language)
    assert any(str(needed) in line for line in said if "pipeline" in line or "流水线" in line)
    assert left_out(SMALL, machine_of(2**30, 2, nodes=2), needed) == []
    roomy = search("small", SMALL, machine_of(2**33, 2, nodes=2), workload, Limits(methods=("lora",)), families)
    assert roomy.left_out == [], "nothing is said of what nobody needs"


def test_heads_that_nothing_divides_are_named():
    one = SMALL | {"num_key_value_heads": 1}
    (found,) = left_out(one, machine_of(2**30, 4), 8)
    assert (found.reason, found.values) == ("heads", {"heads": 8, "key_heads": 1, "vocabulary": 1024})
    assert text("en", "left_out.heads", **found.values) != text("zh", "left_out.heads", **found.values)
