"""The commands of docs/task-sheet.md do what the page says, and the first gate signs the file that they make."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.audit import verify
from flows.gatefiles import load_proposal, read_gate, sheet_path
from flows.ledgers import ledger_of_run
from flows.state import fold
from flows.workspace import Workspace
from specs.canonical import sha256_file
from tests.support import light_run
from tests.support.cli import Answer, called

PAGE = (Path(__file__).parents[2] / "docs" / "task-sheet.md").read_text(encoding="utf-8")
SPEC = """\
project: small
base_model: {model}
goal: quiet spindles
objective: {{metric: fault_type_coverage, at_least: 0.5}}
budget: {{hours: 2}}
sources:
  - {{kind: work_orders, path: raw/orders.csv, columns: {{phenomenon: Problem, repair: Repair}}}}
"""


@pytest.fixture
def project(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with real stages and proposers, whose passages need no Prefect server."""
    import flows.starting

    def alone(workspace: Any, session: Any, tick: Any = None) -> None:
        passed = light_run.passage(workspace, anew=session.anew)
        session.ending, session.error = passed.ending, passed.error

    monkeypatch.setattr(flows.starting, "pass_through", alone)
    monkeypatch.setenv("COLUMNS", "200")  # how long times are depends on the machine, and must not break phrases
    project = tmp_path / "small"
    (project / "raw").mkdir(parents=True)
    rows = "".join(f"spindle {rpm} noisy at {rpm} rpm,replaced bearing {rpm}\n" for rpm in range(1000, 1100))
    (project / "raw" / "orders.csv").write_text("Problem,Repair\n" + rows, encoding="utf-8")
    (project / "project.yaml").write_text(SPEC.format(model=tiny_model), encoding="utf-8")
    return project


def run_page(project: Path) -> list[Answer]:
    """Every command of the page's blocks, in order."""
    answers = []
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command, _, comment = line.partition("  # ")
            if not command.startswith("gatewright "):
                subprocess.run(["bash", "-c", command], cwd=project, check=True)
                continue
            answer = called(*shlex.split(command)[1:], cwd=project)
            assert answer.code == int(comment.removeprefix("exit ") or 0), (line, answer.out, answer.err)
            answers.append(answer)
    return answers


def gate_of(workspace: Workspace) -> Any:
    return fold(ledger_of_run(workspace).events(workspace.run)).gate


def test_the_page_leads_to_a_gate_that_signs_the_file(project: Path):
    answers = run_page(project)
    assert "set by a person; the rules said" in answers[2].out  # decompose --check shows whose number it is
    (run,) = (project / "runs").iterdir()
    workspace = Workspace(project, run.name)
    gate = gate_of(workspace)
    signed = read_gate(run, gate.name, gate.round).task_sheet
    assert signed == sha256_file(project / "task_sheet.yaml") == sha256_file(sheet_path(run, signed or ""))
    state = fold(ledger_of_run(workspace).events(run.name))
    sheet = load_proposal(run, state.proposals["data", 1]).task_sheet
    assert sheet is not None
    held_out = next(e for e in sheet.stages[0].expected if e.metric == "samples_eval")
    assert (held_out.value, held_out.set_by) == (11, "task_sheet.yaml")
    hours = next(e for e in sheet.stages[3].expected if e.metric == "training_hours")
    memory = next(e for e in sheet.stages[3].expected if e.metric == "peak_bytes")
    assert hours.value > 0
    assert memory.value > 10**8
    assert verify(ledger_of_run(workspace), run.name, run).parts["integrity"].ok

    # an edit counts all later stages again, and the person's own number stays
    edited = called("approve", "--as", "me", "--set", "eval_share=0.4", "--yes", "--json", cwd=project)
    assert edited.code == 0, edited.err
    after = load_proposal(run, edited.json["edited_proposal"])
    assert after.task_sheet is not None
    numbers = {(s.name, e.metric): e.value for s in after.task_sheet.stages for e in s.expected}
    assert numbers["data", "samples_eval"] == 11
    assert numbers["evaluate", "samples_evaluated"] == round(0.4 * 95)
    assert after.sheet_file == signed

    kept = sheet_path(run, signed or "")
    kept.write_bytes(kept.read_bytes() + b"# more\n")
    assert not verify(ledger_of_run(workspace), run.name, run).parts["integrity"].ok


def test_a_goal_that_no_source_covers_closes_the_gate_until_the_spec_is_taken_in_anew(project: Path):
    spec = project / "project.yaml"
    spec.write_text(spec.read_text("utf-8").replace("quiet spindles", "quiet spindles and tight boilers"), "utf-8")
    blocked = called("run", ".", "--run-id", "r1", cwd=project)
    assert blocked.code == 4, blocked.err
    assert "boiler" in blocked.out
    assert "resume r1 --anew" in blocked.out
    refused = called("approve", "--as", "me", "--yes", cwd=project)
    assert refused.code == 6
    assert "boiler" in refused.err
    assert "boiler" in called("review", cwd=project).out
    spec.write_text(spec.read_text("utf-8").replace(" and tight boilers", ""), "utf-8")
    again = called("resume", "--anew", cwd=project)
    assert again.code == 3, again.err
    assert "changed: goal" in again.err
    assert called("approve", "--as", "me", "--yes", cwd=project).code == 0
    assert called("audit", "verify", "--json", cwd=project).json["authority"]["ok"]
