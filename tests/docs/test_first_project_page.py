"""The commands of docs/first-project.md, and of its Chinese twin, do what the pages say, from an empty folder on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from specs.parameters import PARAMETERS
from tests.docs.test_readme import PAGES, text_of
from tests.support import light_run
from tests.support.cli import Answer, called

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = {"first-project.md": ("Symptom", "Action"), "first-project.zh.md": ("故障描述", "处理结果")}


def mended(spec: str, check: Answer, model: Path) -> str:
    """What somebody makes of the spec after `check`: the mapping that it offers is pasted."""
    offered = re.search(r"^ +(columns: \{.*\})$", check.err, re.MULTILINE)
    assert offered, check.err
    spec = re.sub(r"columns: \{[^}]*\}", offered[1].replace("\\", r"\\"), spec)
    return re.sub(r"base_model: \S+", f"base_model: {model}", spec)


@pytest.mark.parametrize("name", COLUMNS)
def test_the_page_leads_from_an_empty_folder_to_the_first_decision(
    name: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows.starting

    def alone(workspace: Any, session: Any, tick: Any = None) -> None:
        passed = light_run.passage(workspace, anew=session.anew)
        session.ending, session.error = passed.ending, passed.error

    monkeypatch.setattr(flows.starting, "pass_through", alone)
    folder, said = tmp_path, []
    text = (DOCS / name).read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command, _, comment = line.partition("  # ")
            if command.startswith("cd "):
                folder = folder / command[3:]
                continue
            if command == "gatewright resume":
                break  # what follows needs a real data stage
            answer = called(*shlex.split(command)[1:], cwd=folder)
            assert answer.code == int(comment.removeprefix("exit ") or 0), (line, answer.out, answer.err)
            said.append(answer.out)
            if command.startswith("gatewright init"):
                rows = "".join(f"pump {n} leaks at {n} bar,replaced seal {n}\n" for n in range(100, 200))
                (folder / "pumps/raw/work_orders.csv").write_text(",".join(COLUMNS[name]) + "\n" + rows, "utf-8")
            if command.startswith("gatewright check"):
                spec = folder / "pumps/project.yaml"
                spec.write_text(mended(spec.read_text("utf-8"), answer, tiny_model), "utf-8")
                assert "no problems" in called("check", "pumps", cwd=folder).out
    assert ("停在关口 data" if name.endswith("zh.md") else "waits at gate data") in said[-2]
    assert ("批准" if name.endswith("zh.md") else "recorded: approve of gate data") in said[-1]


def test_every_parameter_that_a_page_sets_exists() -> None:
    known = {name for model in PARAMETERS.values() for name in names(model)} | {"key"}
    named = {key for page in PAGES for key in re.findall(r"--set ([\w.]+)=", text_of(page))}
    assert len(named) > 5
    assert named - known == set()


def names(model: Any, above: str = "") -> set[str]:
    """Every end of a dotted path, as `--set` takes it: training.lora.rank, lora.rank, rank."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        path = f"{above}{name}"
        found |= {path.split(".", n)[-1] for n in range(path.count(".") + 1)}
        if hasattr(field.annotation, "model_fields"):
            found |= names(field.annotation, f"{path}.")
    return found
