"""The task sheet: what every stage needs, should bring in numbers, must pass, may cost, and who signs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents import added_texts
from agents.completeness import Facts, findings
from agents.contract import MemoryFunction, ProposerContext
from agents.expectations import expectations
from agents.gate_rules import suggest
from agents.rates import alone
from agents.sheet_texts import GOAL
from agents.subtasks import subtasks
from specs.base import Strict
from specs.project import Project
from specs.proposals import Expectation, Proposal, SheetStage, TaskSheet
from specs.results import BUSY, Evidence
from specs.stage_graph import RELEASE


class ExpectedRow(Strict):
    """One expected number beside what came. `actual` is null while the stage has not run or did not measure it.

    `expected` is the newest number made before the stage ran, `signed` the one of the sheet that the first gate signed.
    """

    stage: str
    metric: str
    expected: float
    actual: float | None
    unit: str
    why: str = ""
    signed: float | None = None
    low: float | None = None
    high: float | None = None
    alone: float | None = None
    """Of a time on a busy machine: what it would have been without other programs. That is what is expected."""
    finished: bool = False
    by_rule: float | None = None
    set_by: str = ""

    @property
    def difference(self) -> float | None:
        """(actual - expected) / expected; null where that has no meaning. Other programs are no part of it."""
        came = self.actual if self.alone is None else self.alone
        if came is None or self.expected == 0:
            return None
        return (came - self.expected) / abs(self.expected)


def alone_of(evidence: Evidence, name: str) -> float | None:
    """What a time of a stage on a busy machine would have been without other programs; null of all else."""
    metric = evidence.measured(name)
    busy = evidence.others_cpu_share is not None and evidence.others_cpu_share >= BUSY
    if not busy or metric is None or metric.value is None:
        return None
    return alone(evidence.took, name, metric.unit, metric.value)


def expected_row(expectation: Expectation, stage: str, evidence: Evidence | None) -> ExpectedRow:
    """An expected number of a stage, beside what its evidence measured where there is one."""
    row = ExpectedRow(
        stage=stage,
        metric=expectation.metric,
        expected=expectation.value,
        actual=None,
        by_rule=expectation.by_rule,
        set_by=expectation.set_by,
        unit=expectation.unit,
        why=expectation.why,
        low=expectation.low,
        high=expectation.high,
    )
    return row if evidence is None else with_actual(row, evidence)


def with_actual(row: ExpectedRow, evidence: Evidence) -> ExpectedRow:
    """The row beside what its finished stage measured."""
    metric = evidence.measured(row.metric)
    came = {"actual": metric.value if metric else None, "alone": alone_of(evidence, row.metric), "finished": True}
    return row.model_copy(update=came)


def sheet_of(
    context: ProposerContext,
    memory: MemoryFunction | None = None,
    goal: str = "",
    proposed: Proposal | None = None,
) -> TaskSheet:
    """The sheet from everything known at a gate: sources, model folder, device, finished stages.

    With the gate's own proposal its numbers are the sheet's, after a rework too, and later stages count on it.
    """
    spec = context.spec
    if proposed is not None:
        context = context.model_copy(update={"approved": {**context.approved, proposed.stage: proposed}})
    sheet_stages = []
    for stage in spec.graph.stages:
        inputs, criteria = _inputs(spec, stage), spec.criteria(stage)
        sheet_stages.append(
            SheetStage(
                name=stage,
                inputs=inputs,
                expected=proposed.expected
                if proposed is not None and stage == proposed.stage
                else _expected(context, stage, memory),
                criteria=criteria,
                budget_hours=spec.budget.hours if stage == "train" else None,
                signed_by=sorted(approver.id for approver in spec.policy.approvers),
                on_failure=added_texts.on_failure(spec, stage),
                outputs=added_texts.outputs(spec, stage),
                subtasks=subtasks(stage, inputs, [c.metric for c in criteria]),
                runs=added_texts.runs(spec, stage),
            )
        )
    given = goal.strip() or (spec.goal or "").strip()
    return checked(TaskSheet(goal=given or _goal(spec), stages=sheet_stages), context, goal_given=bool(given))


def checked(
    sheet: TaskSheet,
    context: ProposerContext,
    *,
    goal_given: bool = True,
    stale: Sequence[str] = (),
    drafted: TaskSheet | None = None,
) -> TaskSheet:
    """The sheet with everything that the completeness check finds in it; `stale` as `sheet_file.stale` says.

    `drafted` is the sheet by rules where people wrote numbers into this one: theirs count beside the rules'.
    """
    uncovered = tuple(context.survey.get("uncovered", ()))
    facts = Facts(sheet, context, goal_given, uncovered, tuple(stale), drafted)
    found = findings(facts)
    return sheet.model_copy(update={"findings": found})


def _goal(spec: Project) -> str:
    template = GOAL[spec.language]
    objective = spec.objective
    if objective is None:
        return template["plain"].format(project=spec.project)
    return template["objective"].format(
        project=spec.project, metric=objective.metric, at_least=f"{objective.at_least:g}"
    )


def _inputs(spec: Project, stage: str) -> list[str]:
    if stage == "data":
        return [source.path for source in spec.sources]
    return added_texts.inputs(spec, stage)


def _expected(context: ProposerContext, stage: str, memory: MemoryFunction | None) -> list[Expectation]:
    """Expected numbers from the parameters that the rules would propose now; refined at each later gate."""
    account = memory if "data" in context.evidence or context.survey.get("longest_tokens") else None
    approved = dict(context.approved)
    if stage == "train" and "stress_test" not in approved:
        approved["stress_test"] = suggest(_at(context, "stress_test"), account)
    return suggest(_at(context, stage).model_copy(update={"approved": approved}), account).expected


def with_consequences(
    proposal: Proposal, context: ProposerContext, memory: MemoryFunction | None, goal: str = ""
) -> Proposal:
    """The proposal with what follows from its parameters: its stage's numbers, and the sheet or the stages ahead."""
    expected = expectations(context, proposal.stage, proposal.parameters, memory)
    proposal = proposal.model_copy(update={"expected": expected})
    if proposal.stage == context.spec.graph.stages[0]:
        return proposal.model_copy(update={"task_sheet": sheet_of(context, memory, goal, proposal)})
    return proposal.model_copy(update={"ahead": ahead(context, memory, proposal)})


def ahead(context: ProposerContext, memory: MemoryFunction | None, proposal: Proposal) -> dict[str, list[Expectation]]:
    """What the stages after the proposal's should bring, from what is known by now and from its parameters."""
    if proposal.stage not in context.spec.graph.stages:
        return {}
    known = context.model_copy(update={"approved": {**context.approved, proposal.stage: proposal}})
    later = context.spec.graph.descendants(proposal.stage)
    return {stage: found for stage in later if stage != RELEASE and (found := _expected(known, stage, memory))}


def _at(context: ProposerContext, gate: str) -> ProposerContext:
    return context.model_copy(update={"gate": gate, "feedback": "", "last_proposal": None, "round": 1})


def expected_beside_actual(
    sheet: TaskSheet,
    evidence: Mapping[str, Evidence],
    proposals: Mapping[str, Proposal] | None = None,
    shown: Proposal | None = None,
) -> list[ExpectedRow]:
    """Every expected number of the sheet beside what the finished stages measured, in the order of the stages.

    A stage's own approved proposal, made later and with more known, replaces the sheet's numbers for it; so does the
    proposal that a gate shows, for its own stage and for the stages ahead.
    """
    rows = []
    newest = dict(shown.ahead) if shown is not None else {}
    newest |= {stage: p.expected for stage, p in (proposals or {}).items() if p.expected}
    if shown is not None and shown.expected:
        newest[shown.stage] = shown.expected
    for stage in sheet.stages:
        signed = {e.metric: e for e in stage.expected}
        expected = {**signed, **{e.metric: e for e in newest.get(stage.name, ())}}
        found = evidence.get(stage.name)
        for name, expectation in expected.items():
            row = expected_row(expectation, stage.name, found)
            rows.append(row.model_copy(update={"signed": signed[name].value}) if name in signed else row)
    return rows
