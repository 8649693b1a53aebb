"""The commands of docs/decisions.md do what it says: run as a team would, on a real run at its first gate."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli import reference
from flows.passage import pass_alone
from flows.session import Session, open_session
from flows.starting import start_run
from specs.loading import parse_project
from tests.policy.test_signing import key, public

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
HEAD = """\
project: small
base_model: package:gatewright-tiny
sources:
  - {kind: work_orders, path: raw/orders.csv, columns: {phenomenon: Problem, repair: Repair}}
"""

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJgpz1SFnqcVCyViVfLdULO9WNZRGNrkCfhAqbhC2Bgs"

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None or shutil.which("bash") is None, reason="needs ssh-keygen and a POSIX shell"
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def team(tmp_path: Path, tiny_model: Path) -> Path:
    """The project of the page, at its first gate; the person's home has li's key."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    line = public(key(tmp_path / "home" / ".ssh", "id_ed25519")).strip()
    project = tmp_path / "small"
    (project / "raw").mkdir(parents=True)
    rows = "".join(f"spindle noisy at {rpm} rpm,replaced bearing {rpm % 7}\n" for rpm in range(1000, 1040))
    (project / "raw" / "orders.csv").write_text("Problem,Repair\n" + rows, encoding="utf-8")
    (policy,) = blocks("yaml")
    text = HEAD + policy.replace("ssh-ed25519 AAAA...LI li@shop", line)
    (project / "project.yaml").write_text(text, encoding="utf-8")
    session = Session()
    workspace = start_run(project, "first")
    open_session(workspace.run, session)
    pass_alone(project, workspace.run, session)
    assert session.ending == "waiting", session.error
    return project


def test_the_policy_of_the_page_makes_sense_and_its_commands_exist() -> None:
    (policy,) = blocks("yaml")
    spec = parse_project(HEAD + policy.replace("ssh-ed25519 AAAA...LI li@shop", PUBLIC_KEY))
    assert spec.policy.at("train").quorum == 2
    known = {path: {opt for p in command.params for opt in p.opts} for path, command in reference.commands()}
    used = re.findall(r"gatewright ((?:policy |token |audit )?[a-z]+)((?: [^|;$`)\n]*)?)", "".join(blocks("sh")))
    assert len(used) >= 15
    for command, rest in used:
        assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest)) <= known[f"gatewright {command}"], command


@pytest.mark.slow
def test_the_commands_of_the_page_do_what_it_says(team: Path) -> None:
    shim = team.parent / "bin" / "gatewright"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flows.cli "$@"\n')
    shim.chmod(0o755)
    lines = ["set -u"]
    for line in "".join(blocks("sh")).splitlines():
        command, _, comment = line.partition("  # exit ")
        lines += [
            f'{command}; code=$?; [ $code = {comment or 0} ] || {{ echo "exit $code: {len(lines)}" >&2; exit 99; }}'
        ]
    environment = {
        **os.environ,
        "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(team.parent / "home"),
        "GATEWRIGHT_HOME": str(team.parent / "gatewright-home"),
    }
    for name in ("SSH_AUTH_SOCK", "GATEWRIGHT_TOKEN"):
        environment.pop(name, None)
    shutil.copytree(os.environ["GATEWRIGHT_HOME"], environment["GATEWRIGHT_HOME"])
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], cwd=team, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "nobody could confirm" not in said.split("recorded:")[1]
    for words in (
        "waits for wang; edited by li",
        "li edited what gate data round 1 showed (eval_share = 0.3)",
        "the token in GATEWRIGHT_TOKEN is of 'wang', the decision is by 'li'",
        "recorded: approve of gate data round 1 by wang",
        "1 signed, 1 not signed",
        "is not the one that was pinned",
    ):
        assert words in said, words
