"""A graph of stages: in whatever order independent stages and decisions come, the run ends up in the same place."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from flows.folding import advance
from flows.run_state import RunState
from flows.state import (
    Done,
    HandOut,
    OpenGate,
    Propose,
    Release,
    RunStage,
    Wait,
    WaitForWork,
    fold,
    next_steps,
    superseded_by,
)
from flows.steps import NextStep, place_of
from specs.decisions import Decision
from specs.events import (
    AttemptReserved,
    DecisionRecorded,
    GateOpened,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    RunFinished,
    VerdictsRecorded,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.stage_graph import RELEASE, StageGraph, sorted_graph
from tests.gates.test_fold import SHA, History, proposal_of, verdict
from tests.specs.test_stage_graph import acyclic

NAMES = [f"s{i}" for i in range(5)]


class GraphHistory(History):
    """Events of a run over a graph; `by_person` are stages that a person completes."""

    def __init__(self, graph: StageGraph, by_person: tuple[str, ...] = ()) -> None:
        self.events, self._live = [], RunState()
        self.add(
            RunCreated(
                project="p",
                spec=SHA,
                policy=SHA,
                environment=SHA,
                code="1",
                stages=list(graph.stages),
                edges=graph.edges,
                by_person=list(by_person),
                solo=True,
            )
        )

    @property
    def state(self) -> RunState:
        """Folded event by event, as they come; that folding all at once gives the same is asked at the end."""
        for event in self.events[self._live.sequence :]:
            advance(self._live, event)
        return self._live

    @property
    def steps(self) -> list[NextStep]:
        return next_steps(self.state)

    def take(self, step: Any, choice: str = "approve", stage: str | None = None) -> None:
        """Do one due step, whoever has to."""
        match step:
            case Propose():
                made = proposal_of(step.gate, step.round)
                self.add(ProposalMade(gate=step.gate, round=step.round, proposal=made, proposer="rules"))
            case OpenGate():
                blocked = self.state.blocked(step.gate)
                self.add(GateOpened(gate=step.gate, round=step.round, digest=SHA, blocked=blocked))
            case Wait():
                self._decide_on(step, choice, stage)
            case HandOut():
                self.add(WorkHandedOut(stage=step.stage, round=step.round, files={"sheet.csv": SHA}))
            case WaitForWork():
                self.add(WorkHandedIn(stage=step.stage, round=step.round, sha256=SHA, authentication="terminal"))
            case RunStage():
                self.add(AttemptReserved(stage=step.stage, attempt=step.attempt, parameters=SHA))
                self.publish(step.stage, step.attempt)
                self.add(VerdictsRecorded(stage=step.stage, attempt=step.attempt, verdicts=[verdict(True)]))
            case Release():
                self.add(ReleasePublished(folder="release", manifest=SHA))
            case Done():
                self.add(RunFinished())

    def _decide_on(self, step: Wait, choice: str, stage: str | None) -> None:
        decision = Decision(
            run="r",
            gate=step.gate,
            round=step.round,
            digest=step.digest,
            choice=choice,  # type: ignore[arg-type]
            actor="me",
            authentication="terminal",
            comment="c",
            rework_stage=stage,
        )
        obsolete = superseded_by(self.state, decision)
        self.add(DecisionRecorded(decision=decision), *([obsolete] if obsolete else []))


def told(state: RunState) -> Any:
    """Where a run stands, without the order in which it came there."""
    return (
        state.state,
        {name: [(a.number, a.state) for a in found] for name, found in sorted(state.attempts.items())},
        {key: (g.withdrawn, g.decision and g.decision.choice) for key, g in sorted(state.gates.items())},
        sorted(state.goals),
        sorted(state.approvals),
        sorted(state.handed_in),
    )


@given(acyclic(NAMES), st.data())
@settings(max_examples=20, deadline=None)
def test_every_order_of_independent_steps_ends_in_the_same_state(waits, data):
    graph = sorted_graph(waits, NAMES)
    people = tuple(data.draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True)))
    ends = []
    for _ in range(2):
        history = GraphHistory(graph, people)
        done: set[str] = set()
        while not history.state.terminal:
            steps = history.steps
            step = data.draw(st.sampled_from(steps))
            if isinstance(step, RunStage):
                assert set(graph.ancestors(step.stage)) <= done
                done.add(step.stage)
            assert len({place_of(s) for s in steps}) == len(steps)
            history.take(step)
        assert done == set(NAMES)
        ends.append(told(history.state))
        assert fold(history.events) == history.state
    assert ends[0] == ends[1]


@given(acyclic(NAMES), st.data())
@settings(max_examples=20, deadline=None)
def test_a_rework_does_again_what_stands_on_it_and_nothing_else(waits, data):
    graph = sorted_graph(waits, NAMES)
    history = GraphHistory(graph)
    for _ in range(data.draw(st.integers(5, 40))):
        if isinstance(history.steps[0], Release | Done):
            break
        history.take(data.draw(st.sampled_from(history.steps)))
    gates = [s for s in history.steps if isinstance(s, Wait)]
    if not gates:
        return
    gate = data.draw(st.sampled_from(gates))
    target = data.draw(st.sampled_from([*graph.ancestors(gate.gate), gate.gate]))
    again = set(graph.from_on(target))
    before = {s: a.number for s in graph.stages if (a := history.state.current(s)) and a.state == "published"}
    history.take(gate, "rework", target)
    state = history.state
    kept = {s: a.number for s in graph.stages if (a := state.current(s)) and a.state == "published"}
    assert kept == {s: n for s, n in before.items() if s not in again}
    assert not {g.name for g in state.open_gates} & again
    assert not set(state.approvals) & again
    while not history.state.terminal:
        history.take(data.draw(st.sampled_from(history.steps)))
    assert history.state.state == "finished"
    assert all(history.state.done(s) for s in graph.stages)


DIAMOND = sorted_graph({"a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}, ["a", "b", "c", "d"])


def at_both_gates() -> GraphHistory:
    """A run that waits at the gates of b and c."""
    history = GraphHistory(DIAMOND)
    while len(history.state.open_gates) < 2:
        waiting = history.steps == [s for s in history.steps if isinstance(s, Wait)]
        history.take(history.steps[0] if waiting else next(s for s in history.steps if not isinstance(s, Wait)))
    return history


def test_gates_of_independent_stages_are_open_at_once_and_are_decided_apart():
    history = at_both_gates()
    assert [g.name for g in history.state.open_gates] == ["b", "c"]
    history.take(history.steps[1])
    assert [type(s).__name__ for s in history.steps] == ["Wait", "RunStage"]
    assert history.state.state == "decided"


def test_a_stage_that_ends_after_a_rework_made_it_obsolete_never_counts():
    history = at_both_gates()
    history.take(history.steps[1])
    running = history.steps[1]
    assert isinstance(running, RunStage)
    history.add(AttemptReserved(stage="c", attempt=1, parameters=SHA))
    history.take(next(s for s in history.steps if isinstance(s, Wait)), "rework", "a")
    history.publish("c", 1)
    history.add(VerdictsRecorded(stage="c", attempt=1, verdicts=[verdict(True)]))
    assert history.steps == [Propose("a", 2, history.steps[0].feedback)]  # type: ignore[union-attr]
    assert history.state.current("c") is None


def test_a_gate_behind_several_stages_shows_all_of_them_and_a_failed_one_first():
    history = at_both_gates()
    for gate in ("b", "c"):
        history.take(next(s for s in history.steps if isinstance(s, Wait) and s.gate == gate))
    for step in list(history.steps):
        assert isinstance(step, RunStage)
        history.add(AttemptReserved(stage=step.stage, attempt=1, parameters=SHA))
        history.publish(step.stage, 1)
        history.add(VerdictsRecorded(stage=step.stage, attempt=1, verdicts=[verdict(step.stage == "b")]))
    assert history.steps == [Propose("d", 1)]
    assert [a.stage for a in history.state.all_finished("d")] == ["c", "b"]
    history.take(history.steps[0])
    history.take(history.steps[0])
    history.take(history.steps[0], "rework")
    assert [s.gate for s in history.steps if isinstance(s, Propose)] == ["c"]
    assert history.state.done("b")


def test_a_rejection_ends_the_run_though_another_stage_still_ends():
    history = at_both_gates()
    history.take(history.steps[1])
    history.add(AttemptReserved(stage="c", attempt=1, parameters=SHA))
    history.take(next(s for s in history.steps if isinstance(s, Wait)), "reject")
    history.publish("c", 1)
    assert history.state.state == "rejected"
    assert fold(history.events) == history.state
    assert RELEASE not in history.state.goals
