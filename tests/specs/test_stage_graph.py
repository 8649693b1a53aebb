"""Any stages that wait for each other get one valid order, or the ring in which they wait is named."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from specs.metrics import STAGES
from specs.stage_graph import BUILT_IN, RELEASE, CycleError, StageGraph, sorted_graph

NAMES = [f"s{i}" for i in range(7)]


@st.composite
def acyclic(draw: st.DrawFn, names: list[str] = NAMES) -> dict[str, set[str]]:
    """Stages each of which may wait for any that come before it in a random order."""
    order = draw(st.permutations(names))
    return {
        name: set(draw(st.lists(st.sampled_from(order[:i]), max_size=3))) if i else set()
        for i, name in enumerate(order)
    }


@given(acyclic())
@settings(max_examples=40, deadline=None)
def test_each_stage_comes_after_all_that_it_waits_for(waits):
    graph = sorted_graph(waits, NAMES)
    place = {name: i for i, name in enumerate(graph.order)}
    assert sorted(graph.stages) == sorted(NAMES)
    assert all(place[other] < place[name] for name, others in waits.items() for other in others)
    assert place[RELEASE] == len(NAMES)


@given(acyclic())
@settings(max_examples=40, deadline=None)
def test_leaving_out_implied_edges_changes_nothing_of_what_stands_on_what(waits):
    graph = sorted_graph(waits, NAMES)

    def all_before(name: str) -> set[str]:
        return waits[name] | {far for near in waits[name] for far in all_before(near)}

    for name in NAMES:
        assert set(graph.ancestors(name)) == all_before(name)
        assert set(graph.descendants(name)) - {RELEASE} == {n for n in NAMES if name in all_before(n)}
        nearest = graph.before[name]
        assert not any(one in all_before(other) for one in nearest for other in nearest)
    assert set(graph.ancestors(RELEASE)) == set(NAMES)


@given(acyclic())
@settings(max_examples=40, deadline=None)
def test_a_recorded_graph_reads_as_the_one_that_was_recorded(waits):
    graph = sorted_graph(waits, NAMES)
    again = StageGraph.recorded(graph.stages, graph.edges)
    assert (again.stages, dict(again.before)) == (graph.stages, dict(graph.before))


@given(acyclic(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_ring_is_named_and_is_one(waits, data):
    graph = sorted_graph(waits, NAMES)
    late = data.draw(st.sampled_from(NAMES))
    early = data.draw(st.sampled_from([late, *graph.ancestors(late)]))
    ringed = {**waits, early: {*waits[early], late}}
    with pytest.raises(CycleError) as caught:
        sorted_graph(ringed, NAMES)
    ring = caught.value.ring
    assert ring[0] == ring[-1]
    assert all(later in ringed[name] for name, later in pairwise(ring))


@given(st.lists(st.text(max_size=3), max_size=6), st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3))))
@settings(max_examples=40, deadline=None)
def test_whatever_an_event_says_of_edges_can_be_walked(stages, edges):
    graph = StageGraph.recorded(stages, edges)
    for gate in graph.order:
        graph.ancestors(gate), graph.descendants(gate)
    assert all(graph.order.index(s) < graph.order.index(g) for g, found in graph.before.items() for s in found)


def test_runs_without_stages_of_their_own_are_the_built_in_line():
    assert BUILT_IN.order == (*STAGES, RELEASE)
    assert BUILT_IN.edges == {}
    assert StageGraph.recorded(STAGES, {}) == BUILT_IN
    assert BUILT_IN.from_on("stress_test") == ("stress_test", "train", "evaluate", RELEASE)
