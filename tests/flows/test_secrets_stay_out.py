"""A planted secret appears in no file that is produced: project, ledger, Prefect's data, outputs, logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flows.workspace import Workspace
from tests.support import light_run, postgresql
from tests.support.cli import called

pytestmark = pytest.mark.usefixtures("light_stages")

ROOT = Path(__file__).resolve().parents[2]
IN_VARIABLE, IN_URL, IN_DATABASE = "sk-planted-in-a-variable", "planted-in-a-url", "planted-in-the-database-url"
MORE = f"hub: {{mirror: 'https://someone:{IN_URL}@mirror.example'}}\n"


def leaks(*folders: Path) -> list[str]:
    """Files below the folders that hold a planted secret, `project.yaml` apart: a person wrote that one."""
    secrets = [s.encode() for s in (IN_VARIABLE, IN_URL, IN_DATABASE)]
    found = []
    for path in (p for folder in folders for p in sorted(folder.rglob("*")) if p.is_file()):
        data = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as bundle:
                data += b"".join(bundle.read(name) for name in bundle.namelist())
        if path.name != "project.yaml" and any(secret in data for secret in secrets):
            found.append(str(path))
    return found


def fails_with_secrets(context: Any) -> None:
    """What a careless library does."""
    key = os.environ["PLANTED_API_KEY"]
    raise RuntimeError(f"401: key {key} was refused by https://someone:{IN_URL}@mirror.example, {dict(os.environ)}")


def test_a_run_that_fails_and_one_that_ends_leave_no_planted_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", IN_VARIABLE)
    project = light_run.make_project(tmp_path / "p", more=MORE)
    workspace = light_run.begin(project)
    light_run.passage(workspace)
    light_run.decide(workspace)
    monkeypatch.setitem(light_run.HOW, "while_running", fails_with_secrets)
    failed = light_run.passage(workspace)
    assert failed.ending == "failed"
    said = [str(failed.error and failed.error.message)]
    monkeypatch.setitem(light_run.HOW, "while_running", lambda context: None)
    assert light_run.complete(project).ending == "finished"
    assert (workspace.folder / "internal-errors.log").read_text().count("401") >= 1
    assert (workspace.folder / "04-train/001/logs/worker.log").stat().st_size > 0
    for words in (
        ["status", "--json"],
        ["check", "."],
        ["audit", "show"],
        ["audit", "export", tmp_path / "p" / "bundle.zip"],
        ["audit", "verify", "--json"],
        ["run", ".", "--run-id", "r1"],
    ):
        answer = called(*words, cwd=project)
        said += [answer.out, answer.err]
    assert leaks(project, Path(os.environ["GATEWRIGHT_HOME"])) == []
    assert not any(secret in text for text in said for secret in (IN_VARIABLE, IN_URL))


def test_an_unreachable_database_is_said_without_its_password(tmp_path):
    pytest.importorskip("psycopg")
    ledger = f"postgresql://me:{IN_DATABASE}@/db?host={tmp_path}"
    project = light_run.make_project(tmp_path / "p", ledger=f'"{ledger}"')
    for words in (["status"], ["gates"], ["run", "."]):
        answer = called(*words, "--json", cwd=project)
        assert answer.code != 0
        assert IN_DATABASE not in answer.out + answer.err


PASSAGES = """
import json, sys
from pathlib import Path
from flows.session import Session
from flows.starting import pass_through
from tests.flows.test_secrets_stay_out import fails_with_secrets
from tests.support import light_run
light_run.install()
project = Path(sys.argv[1])
workspace = light_run.begin(project)
endings = []
for fails in (False, True, False):
    light_run.HOW["while_running"] = fails_with_secrets if fails else lambda context: None
    session = Session()
    pass_through(workspace, session)
    endings.append(session.ending)
    if session.ending == "waiting" and len(endings) == 1:
        light_run.decide(workspace)
print(json.dumps(endings))
"""


@pytest.mark.slow
def test_neither_prefect_nor_a_database_with_a_password_gets_the_secret(tmp_path):
    pytest.importorskip("psycopg")
    home = tmp_path / "home"
    try:
        with postgresql.server() as url:
            name, _, rest = url.partition("://tester@")
            ledger = f"{name}://tester:{IN_DATABASE}@{rest}"
            project = light_run.make_project(tmp_path / "p", ledger=f'"{ledger}"', more=MORE)
            environment = {**os.environ, "GATEWRIGHT_HOME": str(home), "PLANTED_API_KEY": IN_VARIABLE}
            done = subprocess.run(
                [sys.executable, "-c", PASSAGES, str(project)],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert json.loads(done.stdout) == ["waiting", "failed", "waiting"], done.stderr
            assert Workspace(project, "r1").folder.is_dir()
            assert (home / "prefect" / "prefect.db").is_file()
            assert leaks(project, home) == []
            assert not any(s in done.stdout + done.stderr for s in (IN_VARIABLE, IN_URL, IN_DATABASE))
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))
    finally:
        for record in home.rglob("gatewright-server.json"):
            os.kill(json.loads(record.read_bytes())["pid"], signal.SIGTERM)
