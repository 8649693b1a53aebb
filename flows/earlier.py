"""What earlier runs of a project expected and what came: the next sheet starts from the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.rates import alone, together
from flows.costs import machine
from flows.ledger import Ledger
from flows.ledger.rows import RunRow
from flows.rehearsing import is_rehearsal
from flows.reviewing import approved_proposals, evidence_of
from flows.state import fold
from flows.workspace import Workspace, frozen_spec
from specs.costs import COUNTING, STAGE_SECONDS
from specs.errors import GatewrightError
from specs.project import Project
from specs.proposals import Expectation, Proposal
from specs.results import Evidence

RUNS = 5
"""Earlier runs that are read, the newest ones."""


@dataclass(frozen=True)
class Earlier:
    """What earlier runs tell. `unread` counts those whose files are incomplete or were changed: they teach nothing."""

    results: list[dict[str, Any]] = field(default_factory=list)
    unread: int = 0


def earlier_results(ledger: Ledger, workspace: Workspace, project: str, *, with_this: bool = False) -> Earlier:
    """Expected beside actual of the newest earlier runs, oldest first; see `ProposerContext.history`.

    `with_this` counts the run of the workspace itself. Runs that began after it are not earlier, and those whose
    folder was taken away are none any more.
    """
    rows = runs_of_project(ledger, workspace, project)
    at = next((number for number, row in enumerate(rows) if row.run == workspace.run), -1)
    found: list[list[dict[str, Any]]] = []
    unread = 0
    for row in rows[at if with_this and at >= 0 else at + 1 :]:
        other = Workspace(workspace.project_dir, row.run)
        if not other.folder.is_dir():
            continue
        try:
            state = fold(ledger.events(row.run))
            if is_rehearsal(state):  # its times say nothing of a run in earnest
                continue
            evidence = evidence_of(other, state)
            entries = results_of(row.run, frozen_spec(other), approved_proposals(other, state), evidence)
        except GatewrightError:
            unread += 1
            continue
        if entries:
            found.append(entries)
        if len(found) == RUNS:
            break
    return Earlier([entry for entries in reversed(found) for entry in entries], unread)


def runs_of_project(ledger: Ledger, workspace: Workspace, project: str) -> list[RunRow]:
    """The project's runs, newest first: those that began in its folder, and those that came with it when the folder was
    moved or copied. Of several projects of one name in a shared ledger only its own."""
    here = workspace.project_dir
    return [r for r in ledger.runs(project) if r.project_dir == here or Workspace(here, r.run).folder.is_dir()]


def results_of(
    run: str, spec: Project, proposals: Mapping[str, Proposal], evidence: Mapping[str, Evidence]
) -> list[dict[str, Any]]:
    """One entry per expectation that was measured. `known` are the stages that had finished when it was made.

    `idle` is the actual time less what other programs added, as far as this run itself can tell; null of what is no
    time and where it was not measured.
    """
    sheet = proposals["data"].task_sheet if "data" in proposals else None
    made: list[tuple[str, list[str], Iterable[Expectation]]] = []
    for stage in sheet.stages if sheet else []:
        made.append((stage.name, [], stage.expected))
    graph = spec.graph
    for name in graph.stages[1:]:
        if name in proposals:
            made.append((name, list(graph.ancestors(name)), proposals[name].expected))
    entries = []
    for name, known, expectations in made:
        for expectation in expectations:
            metric = evidence[name].measured(expectation.metric) if name in evidence else None
            if metric is None or metric.value is None:
                continue
            entries.append(
                {
                    "run": run,
                    "stage": name,
                    "metric": expectation.metric,
                    "known": known,
                    "expected": expectation.value,
                    "low": expectation.low,
                    "high": expectation.high,
                    "by_rule": expectation.value if expectation.by_rule is None else expectation.by_rule,
                    "actual": metric.value,
                    "others_cpu_share": evidence[name].others_cpu_share,
                    "work": expectation.work,
                    **_took(evidence[name], expectation),
                    "base_model": spec.base_model,
                    "method": spec.method,
                }
            )
    return entries


def _took(evidence: Evidence, expectation: Expectation) -> dict[str, Any]:
    """What the work behind a time took, with the load it ran under, and whether it ran on another machine than this."""
    actual = evidence.measured(expectation.metric)
    if not evidence.took or not expectation.work or actual is None or actual.value is None:
        return {"idle": None}
    elsewhere = any(t.device != machine() for t in evidence.took)
    took = together(evidence.took, "stage" if expectation.metric == STAGE_SECONDS else "steps")
    return {
        "idle": alone(evidence.took, expectation.metric, expectation.unit, actual.value),
        "elsewhere": elsewhere,
        "took": took.model_dump(mode="json") if took and not elsewhere and took.counting == COUNTING else None,
    }
