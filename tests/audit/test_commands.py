"""The commands of docs/audit.md as a person types them, and what they answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.audit import verify
from flows.cli import main
from specs.events import ReleasePublished
from specs.loading import parse_project
from tasks.evaluate.release import build_release
from tests.support.release_facts import make_facts
from tests.support.run_maker import RunMaker

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
SPEC = "project: demo\nlanguage: {language}\nbase_model: tiny\nsources:\n  - {{kind: notes, path: raw/notes.md}}\n"


def project(folder: Path, language: str = "en") -> Path:
    """A project with two runs, `first` to its end and `second` at its second gate, and a release by the first."""
    text = SPEC.format(language=language)
    made = RunMaker(folder, "first", spec=parse_project(text)).start().until_gate("release")
    made.decide()
    (folder.parent / "facts").mkdir()
    facts = make_facts(folder.parent / "facts", {"adapter_model.safetensors": b"weights"})
    released = ReleasePublished(folder="release", manifest=build_release(made.run_dir / "release", facts))
    made.ledger.append("first", released, "gatewright", made.fence)
    made.to_the_end().ledger.close()
    other = RunMaker(folder, "second", spec=parse_project(text)).start().until_gate("data")
    other.decide(edits={"seed": 7})
    other.work(loss=0.25)
    other.until_gate("dry_run")
    other.ledger.close()
    (folder / "project.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("made") / "project")


class Shell:
    """Types commands in a folder, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str | Path, at: Path) -> tuple[int, str]:
        """Exit code, and what stood on stdout."""
        self.monkeypatch.chdir(at)
        self.monkeypatch.setattr(sys, "argv", ["gatewright", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = self.capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(end.value.code or 0), printed.out

    def json(self, *words: str | Path, at: Path) -> Any:
        """The document that a command answers."""
        return json.loads(self(*words, "--json", at=at)[1])


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def test_every_command_of_the_page_works(shell: Shell, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(made, tmp_path / "project")
    (tmp_path / ".ssh").mkdir()
    key = tmp_path / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert len(commands) >= 14
    for program, *words in commands:
        assert program == "gatewright"
        code, out = shell(*words, at=tmp_path / "project")
        assert (code, bool(out)) == (0, True), (words, out)


def test_the_steps_of_the_page_are_those_of_a_report(made: Path):
    maker = RunMaker(made, "first")
    report = verify(maker.ledger, "first", maker.run_dir)
    maker.ledger.close()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [(str(step.n), step.check) for part in report.parts.values() for step in part.steps]


def test_a_bundle_is_verified_where_there_is_no_project(shell: Shell, made: Path, tmp_path: Path):
    assert shell("audit", "export", tmp_path / "run.zip", "second", at=made)[0] == 0
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "run.zip", tmp_path / "elsewhere" / "run.zip")
    report = shell.json("audit", "verify", "--bundle", "run.zip", at=tmp_path / "elsewhere")
    assert report["ok"] is True
    code, out = shell("audit", "verify", "--bundle", "run.zip", at=tmp_path / "elsewhere")
    assert code == 0
    assert "steps say what they could not verify" in out
    code, out = shell("audit", "show", "--bundle", "run.zip", at=tmp_path / "elsewhere")
    assert (code, out.splitlines()[0]) == (0, "Run second of project demo: waiting")
    (tmp_path / "elsewhere" / "cut.zip").write_bytes((tmp_path / "elsewhere" / "run.zip").read_bytes()[:900])
    assert shell("audit", "verify", "--bundle", "cut.zip", at=tmp_path / "elsewhere")[0] == 7
    (tmp_path / "elsewhere" / "text.zip").write_text("hello")
    assert shell("audit", "verify", "--bundle", "text.zip", at=tmp_path / "elsewhere")[0] == 2


def test_a_run_beside_a_bundle_is_refused(shell: Shell, made: Path):
    assert shell("audit", "verify", "first", "--bundle", "run.zip", at=made)[0] == 2
    assert shell("audit", "verify", "--signer", "nobody", at=made)[0] == 2
    (made / "run.zip").write_bytes(b"")
    answer = shell.json("audit", "verify", "run.zip", at=made)
    assert "--bundle" in answer["error"]["hint"]


def test_a_changed_run_exits_with_seven(shell: Shell, made: Path, tmp_path: Path):
    shutil.copytree(made, tmp_path / "project")
    (tmp_path / "project" / "runs" / "first" / "01-data" / "001" / "artifacts" / "new.txt").write_text("x")
    code, out = shell("audit", "verify", "first", at=tmp_path / "project")
    assert code == 7
    assert " 9 FAIL no file lies among the artifacts that nobody listed: 01-data/001/artifacts/new.txt" in out
    assert out.splitlines()[-1].startswith("NOT verified")


def test_two_runs_are_told_apart(shell: Shell, made: Path, tmp_path: Path):
    found = shell.json("audit", "diff", "first", "second", at=made)
    named = {section: {d["name"]: (d["one"], d["other"]) for d in ds} for section, ds in found["differences"].items()}
    assert named["parameters"]["data.seed"][1] == 7
    assert named["metrics"]["data.loss"] == (0.5, 0.25)
    assert named["spec"] == {}
    assert found["same"]["spec"] > 3
    assert named["decisions"]["release round 1"][1] is None
    assert found["equal"] is False
    code, out = shell("audit", "diff", "first", "second", at=made)
    assert code == 0
    assert "metrics" in out
    assert "0.25 nats/token" in out


def test_a_run_does_not_differ_from_its_bundle(shell: Shell, made: Path, tmp_path: Path):
    shell("audit", "export", tmp_path / "run.zip", "first", at=made)
    found = shell.json("audit", "diff", "first", tmp_path / "run.zip", at=made)
    assert found["equal"] is True
    assert "no difference" in shell("audit", "diff", tmp_path / "run.zip", "first", at=made)[1]


def test_verify_means_the_run_here_when_only_a_stage_is_named(shell: Shell, made: Path):
    for words in (("train",), ("second", "train")):
        answer = shell.json("verify", *words, at=made)
        assert answer["error"]["message"] == "train has no published attempt in second"


def test_the_story_of_a_chinese_project_is_chinese(shell: Shell, tmp_path: Path):
    folder = project(tmp_path / "project", "zh")
    _, out = shell("audit", "show", "second", at=folder)
    assert "与预期不同之处" in out
    assert "数据" in out
    assert "gate" not in out
    _, out = shell("audit", "diff", "first", "second", at=folder)
    assert [
        word for word in ("指标", "数据: loss", "数据，第 1 轮", "等待决定", "相同：", "批准") if word not in out
    ] == []


def test_events_are_listed_as_a_document(shell: Shell, made: Path):
    everything = shell.json("audit", "list", "first", at=made)
    assert [e["sequence"] for e in everything["events"]] == list(range(1, len(everything["events"]) + 1))
    assert shell.json("audit", "list", "first", "--last", "2", at=made)["events"] == everything["events"][-2:]
    assert shell("audit", "list", "first", "--kind", "decision", at=made)[0] == 2


def test_a_changed_release_exits_with_seven(shell: Shell, made: Path, tmp_path: Path):
    shutil.copytree(made / "runs" / "first" / "release", tmp_path / "copy")
    assert shell("release", "verify", tmp_path / "copy", at=tmp_path)[0] == 0
    (tmp_path / "copy" / "model_card.md").write_text("better")
    answer = shell.json("release", "verify", tmp_path / "copy", at=tmp_path)
    assert answer["ok"] is False
    assert shell("release", "verify", tmp_path / "copy", at=tmp_path)[0] == 7
    assert shell("release", "verify", tmp_path / "nothing", at=tmp_path)[0] == 2
