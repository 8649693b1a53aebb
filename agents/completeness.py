"""The completeness check: what a seasoned practitioner would miss in a task sheet. Pure; each rule is one function.

A finding is blocking where the run could not mean anything: nothing to judge by, nothing that fits, nobody who
signs. Everything else is a warning with a proposed sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from agents.completeness_texts import TEXTS, WHY
from agents.contract import ProposerContext
from agents.facts import parameter_count
from specs.criteria import Criterion, Metric, judge
from specs.metrics import STAGES
from specs.project import Bounds, Project
from specs.proposals import Finding, SheetStage, TaskSheet
from specs.sources import AnySource
from specs.units import human
from specs.words import nearest

LEAKS = (
    ("data", "exact_duplicate_leakage"),
    ("data", "near_duplicate_leakage"),
    ("evaluate", "leaked_samples"),
)
"""Criteria without which the held-out samples prove nothing."""

SHARES = frozenset(
    {"valid_format_share", "quarantined_share", "padding_share", "usable_share", "fault_type_coverage", "ended_share"}
)
"""Metrics of unit share that lie between 0 and 1; others of that unit are ratios."""

SIGNED_UNITS = frozenset({"nats/token", "nats/token/step", "standard errors", "share"})
"""Units of metrics that may be below 0 (ratios and changes)."""

NEEDED = {
    "data": ("samples_train", "samples_eval"),
    "dry_run": ("steps_taken",),
    "train": ("steps_taken",),
    "evaluate": ("samples_evaluated",),
}
"""Numbers without which steps, hours and memory of the later stages cannot be computed."""

BYTES_PER_PARAMETER = {"full": 8.0, "lora": 2.0, "dora": 2.0, "qlora": 0.5}
"""The least that weights (and for full: gradients and two optimizer states in 16 bit) take; no activation counted."""

_OTHER = {"full": "lora", "lora": "qlora", "dora": "qlora", "qlora": "qlora"}


@dataclass(frozen=True)
class Facts:
    """What the rules look at. `uncovered` are words of the goal that no source has, `stale` numbers of the file of a
    sheet that are no longer what the rules say, `drafted` the sheet before a person wrote other numbers into it."""

    sheet: TaskSheet
    context: ProposerContext
    goal_given: bool = True
    uncovered: tuple[str, ...] = field(default=())
    stale: tuple[str, ...] = field(default=())
    drafted: TaskSheet | None = None

    @property
    def spec(self) -> Project:
        """The spec of the project."""
        return self.context.spec

    def listed(self, names: Iterable[str]) -> str:
        """Names one after the other, as the project's language divides them."""
        return ("、" if self.spec.language == "zh" else ", ").join(names)

    def find(self, rule: str, *, blocking: bool, stage: str | None = None, **values: str) -> Finding:
        """A finding in the project's language."""
        text, sentence = TEXTS[rule][self.spec.language]
        values = {"stage": stage or "", **values}
        return Finding(
            rule=rule, stage=stage, blocking=blocking, text=text.format(**values), sentence=sentence.format(**values)
        )


Rule = Callable[[Facts], Iterator[Finding]]


def findings(facts: Facts) -> list[Finding]:
    """Everything that the sheet leaves open, blocking ones first, otherwise in the order of the rules."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda f: not f.blocking)


def _goal(facts: Facts) -> Iterator[Finding]:
    if not facts.goal_given or not facts.sheet.goal.strip():
        yield facts.find("goal-missing", blocking=False)
    for word in facts.uncovered:
        yield facts.find("goal-uncovered", blocking=True, word=word)


def _file(facts: Facts) -> Iterator[Finding]:
    if facts.stale:
        yield facts.find("sheet-stale", blocking=False, names=facts.listed(facts.stale))


def _target(facts: Facts) -> Iterator[Finding]:
    if facts.spec.objective is None:
        yield facts.find("metric-missing", blocking=False, stage="evaluate")


def _held_out(facts: Facts) -> Iterator[Finding]:
    if not _refuses(facts, "data", "samples_eval", bad=0, good=1e9) or 0 in _said(facts, "data", "samples_eval"):
        yield facts.find("evaluation-set-missing", blocking=True, stage="data")
    for stage, metric in LEAKS:
        if not _refuses(facts, stage, metric, bad=1, good=0):
            yield facts.find("evaluation-set-leaks", blocking=True, stage=stage, metric=metric)


def _refuses(facts: Facts, stage: str, metric: str, *, bad: float, good: float) -> bool:
    """Whether a blocking criterion fails at the bad value and passes at the good one."""

    def passes(criterion: Criterion, value: float) -> bool:
        return judge([criterion], {metric: Metric(value=value, unit="")})[0].passed

    criteria = [c for c in _criteria(facts, stage) if c.metric == metric and c.blocking]
    return any(passes(c, good) and not passes(c, bad) for c in criteria)


def _limits(facts: Facts) -> Iterator[Finding]:
    spec = facts.spec
    if spec.over_long == "ask" and not any(_limited(spec, name) for name in ("max_length", "max_tokens_per_step")):
        yield facts.find("length-limit-missing", blocking=False, stage="train")
    if not any(_limited(spec, name) for name in ("epochs", "max_steps")) and spec.budget.hours is None:
        yield facts.find("stop-rule-missing", blocking=False, stage="train")


def _limited(spec: Project, name: str) -> bool:
    """Whether a person limits a parameter of the training from above."""
    for stage in ("train", "stress_test"):
        setting = spec.stages.get(stage, {}).get(name)
        if isinstance(setting, Bounds):
            if setting.max is not None:
                return True
        elif setting is not None:
            return True
        if name in spec.caps.get(stage, {}):
            return True
    return False


def _budget(facts: Facts) -> Iterator[Finding]:
    budget = facts.spec.budget.hours
    if budget is None:
        yield facts.find("budget-missing", blocking=False, stage="train")
        return
    stage = _stage(facts.sheet, "train")
    if stage is not None and stage.budget_hours is None:
        yield facts.find("stage-budget-missing", blocking=False, stage="train", hours=f"{budget:g}")
    hours = max(_said(facts, "train", "training_hours"), default=None)
    if stage is not None and stage.budget_hours is not None:
        budget = min(budget, stage.budget_hours)
    if hours is not None and hours > budget:
        values = {"hours": f"{hours:.3g}", "budget": f"{budget:g}", "needed": f"{hours * 1.2:.2g}"}
        yield facts.find("over-budget", blocking=True, stage="train", **values)


def _memory(facts: Facts) -> Iterator[Finding]:
    """What the method needs before any activation, against the device. Only an impossibility is said here."""
    parameters = parameter_count(facts.context.base_model)
    usable = facts.context.device.get("usable_bytes")
    if parameters is None or not usable:
        return
    method = facts.spec.method
    needed = parameters * BYTES_PER_PARAMETER[method]
    if needed > float(usable):
        language = facts.spec.language
        yield facts.find(
            "method-does-not-fit",
            blocking=True,
            stage="train",
            method=method,
            needed=human(needed, "bytes", language),
            usable=human(float(usable), "bytes", language),
            device=str(facts.context.device.get("name", "the device")),
            other=_OTHER[method],
        )


def _sources(facts: Facts) -> Iterator[Finding]:
    rows = {(str(s.get("kind")), str(s.get("path"))): s.get("rows") for s in facts.context.source_summaries}
    for source in facts.spec.sources:
        name = source.path
        if rows.get((source.kind, name)) == 0:
            yield facts.find("source-empty", blocking=True, stage="data", source=name)
        yield from _source(facts, source)
    unowned = [source.path for source in facts.spec.sources if not (source.owner or "").strip()]
    if unowned:
        yield facts.find("owner-missing", blocking=False, stage="data", source=facts.listed(unowned))


def _source(facts: Facts, source: AnySource) -> Iterator[Finding]:
    name = source.path
    if source.kind == "sensor_logs" and source.time_zone is None and facts.spec.time_zone == "UTC":
        yield facts.find("time-zone-missing", blocking=False, stage="data", source=name)
    if source.kind == "work_orders" and "fault_type" not in (source.columns or {}):
        yield facts.find("fault-type-unmapped", blocking=False, stage="data", source=name)
    if source.kind == "work_orders" and "device_model" not in (source.columns or {}):
        yield facts.find("device-unmapped", blocking=False, stage="data", source=name)
    if source.kind == "sensor_logs" and source.device_model is None:
        yield facts.find("device-unmapped", blocking=False, stage="data", source=name)


def _model(facts: Facts) -> Iterator[Finding]:
    model = facts.spec.base_model
    hub_id = model.count("/") == 1 and not model.startswith((".", "/")) and ":" not in model
    local = facts.context.base_model is not None and facts.context.base_model.name == model.rpartition("/")[2]
    if hub_id and facts.spec.hub.revision is None and not local:
        yield facts.find("revision-missing", blocking=False, model=model)


def _people(facts: Facts) -> Iterator[Finding]:
    policy = facts.spec.policy
    if not policy.solo and not any(a.may_override for a in policy.approvers):
        yield facts.find("override-missing", blocking=False, who=policy.approvers[0].id)
    known = {a.id for a in policy.approvers}
    for stage in facts.sheet.stages:
        if not stage.signed_by:
            yield facts.find("signer-missing", blocking=True, stage=stage.name)
        for who in sorted(set(stage.signed_by) - known):
            yield facts.find("signer-unknown", blocking=True, stage=stage.name, who=who)


def _stages(facts: Facts) -> Iterator[Finding]:
    names = [stage.name for stage in facts.sheet.stages]
    for name in STAGES:
        if name not in names:
            yield facts.find("stage-missing", blocking=True, stage=name)
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield facts.find("stage-twice", blocking=True, stage=name)
    for stage in facts.sheet.stages:
        if not stage.inputs:
            yield facts.find("inputs-missing", blocking=True, stage=stage.name)
        if not stage.on_failure.strip():
            yield facts.find("failure-missing", blocking=False, stage=stage.name)


def _wiring(facts: Facts) -> Iterator[Finding]:
    """Inputs that nobody makes, outputs that nobody reads. The last stage's outputs go to the release."""
    made: set[str] = set()
    stages = facts.sheet.stages
    for stage in stages:
        for name in stage.inputs:
            if ": " in name and name not in made:
                yield facts.find("input-unmade", blocking=True, stage=stage.name, input=name)
        made |= {f"{stage.name}: {output}" for output in stage.outputs}
    read = {name for stage in stages for name in stage.inputs}
    for stage in stages[:-1]:
        for output in stage.outputs:
            if f"{stage.name}: {output}" not in read:
                yield facts.find("output-unused", blocking=False, stage=stage.name, output=output)


def _judged(facts: Facts) -> Iterator[Finding]:
    for stage in facts.sheet.stages:
        criteria = _criteria(facts, stage.name)
        if not any(c.blocking for c in criteria):
            one = "[{metric: ..., op: '<=', bound: ...}]"
            own = stage.name in facts.spec.added_stages
            write = f"{{{stage.name}: {{criteria: {one}}}}}" if own else f"{{{stage.name}: {one}}}"
            write = f"{'added_stages' if own else 'acceptance'}: {write}"
            yield facts.find("criteria-missing", blocking=True, stage=stage.name, write=write)
        units = {d.name: d.unit for d in facts.spec.metrics_of(stage.name)}
        for criterion in criteria:
            if criterion.metric not in units:
                near = ", ".join(nearest(criterion.metric, units)) or ", ".join(sorted(units)[:3])
                yield facts.find(
                    "criterion-unmeasured", blocking=True, stage=stage.name, metric=criterion.metric, near=near
                )
            else:
                yield from _possible(facts, stage, criterion, units[criterion.metric])


def _possible(facts: Facts, stage: SheetStage, criterion: Criterion, unit: str) -> Iterator[Finding]:
    low, high = reach(criterion.metric, unit)
    why = WHY["share" if high is not None else "positive"][facts.spec.language]
    values = {
        "metric": criterion.metric,
        "title": _title(facts, stage.name, criterion.metric),
        "op": criterion.op,
        "bound": f"{criterion.bound:g}",
        "why": why,
    }
    outcome = certain(criterion, low, high)
    if outcome is True:
        yield facts.find("criterion-cannot-fail", blocking=criterion.blocking, stage=stage.name, **values)
    elif outcome is False:
        yield facts.find("criterion-cannot-pass", blocking=criterion.blocking, stage=stage.name, **values)
    expected = next((e.value for e in stage.expected if e.metric == criterion.metric), None)
    goal = facts.spec.objective
    if expected is None or (goal is not None and stage.name == "evaluate" and goal.metric == criterion.metric):
        return
    if not judge([criterion], {criterion.metric: Metric(value=expected, unit=unit)})[0].passed:
        yield facts.find(
            "expected-fails",
            blocking=False,
            stage=stage.name,
            value=human(expected, unit, facts.spec.language),
            where=f"added_stages.{stage.name}" if stage.name in facts.spec.added_stages else "acceptance",
            **values,
        )


def reach(metric: str, unit: str) -> tuple[float | None, float | None]:
    """The lowest and highest value that a metric can have; null where there is no limit."""
    if metric in SHARES:
        return 0.0, 1.0
    return (None if unit in SIGNED_UNITS else 0.0), None


def certain(criterion: Criterion, low: float | None, high: float | None) -> bool | None:
    """True where every value between `low` and `high` passes, False where none does, null where it depends."""
    bound, op = criterion.bound, criterion.op
    below, above = low is not None and bound < low, high is not None and bound > high
    at_low, at_high = low is not None and bound == low, high is not None and bound == high
    always = {">=": below or at_low, ">": below, "<=": above or at_high, "<": above, "==": False, "!=": below or above}
    never = {">=": above, ">": above or at_high, "<=": below, "<": below or at_low, "==": below or above, "!=": False}
    return True if always[op] else False if never[op] else None


def _numbers(facts: Facts) -> Iterator[Finding]:
    for stage in facts.sheet.stages:
        have = {e.metric for e in stage.expected}
        for metric in NEEDED.get(stage.name, ()):
            if metric not in have:
                title = _title(facts, stage.name, metric)
                yield facts.find("expected-missing", blocking=False, stage=stage.name, metric=metric, title=title)


def _title(facts: Facts, stage: str, metric: str) -> str:
    found = (d.title[facts.spec.language] for d in facts.spec.metrics_of(stage) if d.name == metric)
    return next(found, metric)


def _stage(sheet: TaskSheet, name: str) -> SheetStage | None:
    return next((stage for stage in sheet.stages if stage.name == name), None)


def _expected(sheet: TaskSheet, stage: str, metric: str) -> float | None:
    found = _stage(sheet, stage)
    return next((e.value for e in found.expected if e.metric == metric), None) if found else None


def _said(facts: Facts, stage: str, metric: str) -> list[float]:
    """What the sheet expects, and what the rules drafted: a number written over theirs closes no finding."""
    sheets = [facts.sheet, *([facts.drafted] if facts.drafted is not None else [])]
    return [value for sheet in sheets if (value := _expected(sheet, stage, metric)) is not None]


def _criteria(facts: Facts, stage: str) -> list[Criterion]:
    """The criteria in the sheet: exactly what the stage will be judged by."""
    found = _stage(facts.sheet, stage)
    return found.criteria if found else []


RULES: tuple[Rule, ...] = (
    _goal,
    _file,
    _target,
    _held_out,
    _limits,
    _budget,
    _memory,
    _sources,
    _model,
    _people,
    _stages,
    _wiring,
    _judged,
    _numbers,
)
