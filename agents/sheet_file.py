"""The task sheet as a YAML file: written for people, who change numbers in it, and read back against the draft.

`value`, `budget_hours` and `on_failure` are a person's to change; `drafted` says what the rules said when it was
written. Everything else must be as project.yaml has it: it is changed there. Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.completeness import reach
from agents.report_texts import stage_title, t
from agents.sheet_texts import FILE_HEAD
from agents.stage_report import metric_title
from specs.errors import Problem, SpecError
from specs.project import Project
from specs.proposals import Expectation, SheetStage, TaskSheet
from specs.words import nearest
from specs.yaml_tree import Path as Place
from specs.yaml_tree import Tree, read_yaml

FILE_NAME = "task_sheet.yaml"
BY_PERSON = FILE_NAME
"""What `set_by` says of a number that a person wrote."""

FIXED = ("inputs", "outputs", "criteria", "signed_by")
"""Keys of a stage that follow from project.yaml and are shown, not changed, here."""

_KEYS = ("name", *FIXED, "on_failure", "expected", "budget_hours")
_NUMBER = ("metric", "value", "unit", "drafted")
_MOST = 1e15
_UNPRINTED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def to_yaml(sheet: TaskSheet, spec: Project, kept: Mapping[tuple[str, str], float] | None = None) -> str:
    """The file of a drafted sheet. `kept` are numbers of a person, by stage and metric, that go into `value`."""
    language = spec.language
    lines = [f"# {line}" for line in FILE_HEAD[language]]
    lines += ["version: 1", f"goal: {scalar(sheet.goal)}", "stages:"]
    for stage in sheet.stages:
        lines += ["", f"  # {stage_title(language, stage.name)}", f"  - name: {scalar(stage.name)}"]
        for key in ("inputs", "outputs", "signed_by"):
            lines.append(f"    {key}: {_flow(getattr(stage, key))}")
        lines += ["    criteria:" + ("" if stage.criteria else " []")]
        for criterion in stage.criteria:
            shown = {"metric": criterion.metric, "op": criterion.op, "bound": criterion.bound}
            lines.append(f"      - {_flow({**shown, 'blocking': criterion.blocking})}")
        lines += [f"    on_failure: {scalar(stage.on_failure)}", f"    budget_hours: {scalar(stage.budget_hours)}"]
        lines += list(_expected_lines(stage, spec, kept or {}))
    if sheet.findings:
        lines += ["", f"# {t(language, 'findings')}:"]
        lines += [f"# - {_one_line(f.text)}  ->  {_one_line(f.sentence)}" for f in sheet.findings]
    return "\n".join(lines) + "\n"


def _expected_lines(stage: SheetStage, spec: Project, kept: Mapping[tuple[str, str], float]) -> Iterator[str]:
    yield "    expected:" + ("" if stage.expected else " []")
    for e in stage.expected:
        value = kept.get((stage.name, e.metric), e.value)
        entry = _flow({"metric": e.metric, "value": _plain(value), "unit": e.unit, "drafted": _plain(e.value)})
        yield f"      - {entry}  # {metric_title(stage.name, e.metric, spec.language, spec)}: {_one_line(e.why)}"


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) and abs(value) < _MOST else value


def scalar(value: Any) -> str:
    """A text, number, boolean or null as YAML reads it: JSON, with what YAML does not print escaped."""
    return _UNPRINTED.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False))


def _flow(value: Any) -> str:
    """A list or mapping on one line, as YAML and as people write it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {scalar(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(scalar, value)) + "]"


def _one_line(text: str) -> str:
    return " ".join(_UNPRINTED.sub(" ", text).split())


def read_sheet(
    text: str, drafted: TaskSheet, spec: Project, file: str = FILE_NAME, *, numbers_only: bool = False
) -> dict[str, Any]:
    """What people may write in the file, checked against the draft: budgets and numbers by stage.

    Answers `{stage: {"budget_hours": hours or None, "on_failure": text, "expected": [...]}}`. Raises `SpecError` with
    every problem, each by its line; with `numbers_only` what project.yaml gives is not compared.
    """
    tree = read_yaml(text, file)
    reader = _Reader(tree, drafted, spec, numbers_only)
    found = reader.read()
    problems = [*tree.problems, *reader.problems]
    if problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line or 0, p.path)))
    return found


class _Reader:
    """Reads one file and collects what is wrong with it."""

    def __init__(self, tree: Tree, drafted: TaskSheet, spec: Project, numbers_only: bool) -> None:
        self.tree, self.drafted, self.spec, self.numbers_only = tree, drafted, spec, numbers_only
        self.problems: list[Problem] = []

    def wrong(self, path: Place, rule: str, way_out: str) -> None:
        self.problems.append(self.tree.problem(path, rule, way_out))

    def read(self) -> dict[str, Any]:
        """The numbers by stage."""
        data = self.tree.data
        anew = "`gatewright decompose PROJECT --write` writes it anew and keeps the numbers that you changed"
        if not isinstance(data, dict) or not isinstance(data.get("stages"), list):
            self.wrong((), "must be a block with version, goal and stages", anew)
            return {}
        self._keys(data, ("version", "goal", "stages"), ())
        if data.get("version") != 1:
            self.wrong(("version",), "version 1 is the one that is read", anew)
        if data.get("goal") != self.drafted.goal and not self.numbers_only:
            self.wrong(("goal",), f"is not the goal of project.yaml: {self.drafted.goal}", "change `goal` there")
        found, known = {}, {stage.name: stage for stage in self.drafted.stages}
        for number, entry in enumerate(data["stages"]):
            place: Place = ("stages", number)
            name = entry.get("name") if isinstance(entry, dict) else None
            if name not in known or name in found:
                what = "is here twice" if name in found else f"stages are {', '.join(known)}"
                self.wrong((*place, "name"), what, anew)
                continue
            found[str(name)] = self._stage(entry, known[str(name)], place)
        for name in sorted(known.keys() - found.keys()) if not self.numbers_only else ():
            self.wrong(("stages",), f"the stage {name} is missing", anew)
        return found

    def _keys(self, entry: Mapping[str, Any], known: Sequence[str], place: Place) -> None:
        for key in entry:
            if key not in known:
                close = nearest(str(key), known)
                way_out = f"Did you mean {close[0]}?" if close else f"Keys here are {', '.join(known)}"
                self.wrong((*place, key), "is no key of a task sheet", way_out)

    def _stage(self, entry: Mapping[str, Any], drafted: SheetStage, place: Place) -> dict[str, Any]:
        self._keys(entry, _KEYS, place)
        wanted = drafted.model_dump(mode="json")
        for key in FIXED:
            if not self.numbers_only and key in entry and not _same(entry[key], wanted[key]):
                way_out = f"Write {_flow(wanted[key]) if isinstance(wanted[key], list) else scalar(wanted[key])}"
                where = {"criteria": "acceptance", "signed_by": "policy"}.get(key, "project.yaml")
                self.wrong((*place, key), f"differs from what project.yaml gives ({where})", f"{way_out}, or change it")
        on_failure = entry.get("on_failure", drafted.on_failure)
        if not (isinstance(on_failure, str) and on_failure.strip()):
            self.wrong((*place, "on_failure"), "must be a sentence", f"Write for example {scalar(drafted.on_failure)}")
        return {
            "on_failure": on_failure,
            "budget_hours": self._budget(entry.get("budget_hours"), (*place, "budget_hours")),
            "expected": self._numbers(entry.get("expected"), drafted, (*place, "expected")),
        }

    def _budget(self, value: Any, place: Place) -> float | None:
        if value is None:
            return None
        whole = self.spec.budget.hours
        if not _is_number(value) or value <= 0:
            self.wrong(place, "must be hours above 0, or null", "Write for example 2.5")
        elif whole is not None and value > whole:
            self.wrong(place, f"is more than budget.hours of project.yaml, {whole:g}", "Lower it, or raise that")
        else:
            return float(value)
        return None

    def _numbers(self, entries: Any, drafted: SheetStage, place: Place) -> list[dict[str, Any]]:
        units = {d.name: d.unit for d in self.spec.metrics_of(drafted.name)}
        units.update({e.metric: e.unit for e in drafted.expected})
        if not isinstance(entries, list):
            self.wrong(place, "must be a list of numbers", "Write [] where nothing is expected")
            return []
        found: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(entries):
            here: Place = (*place, number)
            if not isinstance(entry, dict):
                self.wrong(here, "must be {metric: ..., value: ...}", "See the lines around it")
                continue
            self._keys(entry, _NUMBER, here)
            metric = entry.get("metric")
            if metric not in units or metric in found:
                close = nearest(str(metric), units)
                way_out = f"Did you mean {close[0]}?" if close and metric not in units else "See docs/metrics.md"
                rule = "is here twice" if metric in found else f"is no metric of {drafted.name}"
                self.wrong((*here, "metric"), rule, way_out)
                continue
            unit = units[str(metric)]
            if entry.get("unit", unit) != unit:
                self.wrong((*here, "unit"), f"{metric} is in {unit}", f"Write unit: {scalar(unit)}")
            for key in ("value", "drafted"):
                if (key == "value" or entry.get(key) is not None) and not _is_number(entry.get(key)):
                    self.wrong((*here, key), "must be a number", "Write digits, with a dot for decimals")
            lowest, _ = reach(str(metric), unit)
            if lowest is not None and _is_number(entry.get("value")) and entry["value"] < lowest:
                self.wrong((*here, "value"), f"cannot be below {lowest:g}", "Write the number that you expect")
            found[str(metric)] = {**entry, "unit": unit}
        return list(found.values())


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < _MOST
    )


def _same(given: Any, wanted: Any) -> bool:
    """Equal as YAML reads it: criteria by their four keys, whatever else the model has; names in any order."""
    if isinstance(wanted, list) and all(isinstance(w, str) for w in wanted):
        return isinstance(given, list) and sorted(map(str, given)) == sorted(wanted)
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        keys = ("metric", "op", "bound", "blocking")
        return isinstance(given, list) and [[g.get(k) for k in keys] if isinstance(g, dict) else g for g in given] == [
            [w[k] for k in keys] for w in wanted
        ]
    return bool(given == wanted)


def of_people(found: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The numbers that a person changed or added, by stage and metric."""
    return {
        (stage, e["metric"]): float(e["value"])
        for stage, entry in found.items()
        for e in entry["expected"]
        if e.get("drafted") is None or float(e["value"]) != float(e["drafted"])
    }


def stale(found: Mapping[str, Any], drafted: TaskSheet) -> list[str]:
    """Metrics whose drafted number in the file is not what the rules say now, as `stage.metric`."""
    now = {(s.name, e.metric): e.value for s in drafted.stages for e in s.expected}
    times = {(s.name, e.metric) for s in drafted.stages for e in s.expected if e.work}
    was = {
        (stage, e["metric"]): float(e["drafted"])
        for stage, entry in found.items()
        for e in entry["expected"]
        if e.get("drafted") is not None
    }
    keys = now.keys() | was.keys()
    moved = (key for key in keys if _moved(now.get(key), was.get(key), SETTLED if key in times else 0.0))
    return sorted(f"{stage}.{metric}" for stage, metric in moved)


SETTLED = 0.25
"""A time moves a little with all that runs on this machine; from this much on the sheet is told to be drafted anew."""


def _moved(now: float | None, was: float | None, by: float) -> bool:
    if now is None or was is None:
        return now != was
    return abs(now - was) > by * abs(was)


def with_numbers(drafted: TaskSheet, found: Mapping[str, Any], *, all_of_file: bool = True) -> TaskSheet:
    """The draft with the numbers of the file: all of them, or only those that a person changed."""
    changed = of_people(found)
    stages = []
    for stage in drafted.stages:
        entry = found[stage.name]
        now = {e.metric: e for e in stage.expected}
        expected: list[Expectation] = [] if all_of_file else list(stage.expected)
        for e in entry["expected"]:
            mine = (stage.name, e["metric"]) in changed
            if not (mine or all_of_file):
                continue
            value, rule = float(e["value"]), now.get(e["metric"])
            if rule is not None and rule.value == value:
                new = rule
            else:
                base = rule or Expectation(metric=e["metric"], value=value, unit=e["unit"])
                by_rule = None if rule is None else rule.value if rule.by_rule is None else rule.by_rule
                written_there = {"value": value, "by_rule": by_rule, "set_by": BY_PERSON, "low": None, "high": None}
                new = base.model_copy(update=written_there)
            expected = [*(x for x in expected if x.metric != e["metric"]), new]
        written = {key: entry[key] for key in ("budget_hours", "on_failure")}
        stages.append(stage.model_copy(update={"expected": expected, **written}))
    return drafted.model_copy(update={"stages": stages})
