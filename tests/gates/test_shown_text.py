"""What one person writes cannot steer the terminal on which another decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.output import say
from flows.ledgers import ledger_of_run
from flows.reviewing import gate_facts, page
from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

EVIL = "please\x1b[2J\x1b[1;1H\u202eagain\r\x07"


def test_a_comment_that_steers_a_terminal_is_shown_as_it_is_written(tmp_path: Path):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p"))
    light_run.passage(workspace)
    light_run.decide(workspace, "rework", comment=EVIL)
    light_run.passage(workspace)
    shown = page(gate_facts(workspace, ledger_of_run(workspace)))
    assert "please\\x1b[2J" in shown
    assert not set(EVIL) & set(shown) - set("pleasagin[2J1;H")


@pytest.mark.parametrize(("language", "words"), [("en", "Nobody can approve"), ("zh", "恢复之前无法批准")])
def test_whoever_looks_is_told_what_was_changed_since_the_gate_opened(tmp_path: Path, language: str, words: str):
    workspace = light_run.begin(light_run.make_project(tmp_path / "p", more=f"language: {language}\n"))
    light_run.passage(workspace)
    light_run.decide(workspace)
    light_run.passage(workspace)
    honest = gate_facts(workspace, ledger_of_run(workspace))
    assert honest.changed == []
    assert words not in page(honest)
    (workspace.folder / "01-data/001/report.html").write_text("<h1>all is well</h1>")
    facts = gate_facts(workspace, ledger_of_run(workspace))
    assert facts.document()["changed"] == ["01-data/001/report.html"]
    first = page(facts).splitlines()[0]
    assert words in first
    assert "01-data/001/report.html" in first


def test_what_a_command_says_keeps_its_lines_and_letters_and_nothing_else(capsys: pytest.CaptureFixture[str]):
    say("第一行\u3000“好”\n\tnext" + EVIL)
    assert capsys.readouterr().out == "第一行\u3000“好”\n\tnextplease\\x1b[2J\\x1b[1;1H\\u202eagain\\r\\x07\n"
