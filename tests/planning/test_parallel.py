"""Promises of tensor and pipeline parallel: allowed where they divide, last in the order, never more per rank."""

from __future__ import annotations

import pytest

from tasks.memory.host import frameworks
from tasks.planning.families import Families
from tasks.planning.parallel import BUBBLE, bubble, fewest_micro_batches, tensor_degrees
from tasks.planning.plans import Limits
from tasks.planning.search import search
from tasks.planning.weighing import Search
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
