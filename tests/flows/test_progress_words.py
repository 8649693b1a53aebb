"""A Chinese project is told in Chinese how far its stages are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cli.progress import Bars, Lines
from flows.cli.progress_words import PROGRESS
from flows.cli.run_words import STOPPED
from specs.phrases import Phrases
from tasks.training import checks, evaluation, judgement, session

ROOT = Path(__file__).parents[2]


def said_in_code() -> Iterator[tuple[str, str]]:
    """(place, sentence) of everything that code says to a progress or channel; `7` stands for each value."""
    for folder in ("tasks", "agents", "flows"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text("utf-8")
            if re.search(r"(progress|channel)\.(start|say)\(", text):
                for node in ast.walk(ast.parse(text)):
                    if (sentence := _sentence(node)) is not None:
                        yield f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", sentence


def _sentence(node: ast.AST) -> str | None:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    speaker = ast.unparse(node.func.value).rsplit(".", 1)[-1]
    if node.func.attr not in ("start", "say") or speaker not in ("progress", "channel"):
        return None
    match node.args[0]:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in values)
    return None


def test_every_sentence_of_progress_has_its_chinese() -> None:
    said = list(said_in_code())
    assert len(said) > 25
    assert [(place, text) for place, text in said if not re.search("[一-鿿]", PROGRESS("zh", text))] == []


def test_the_early_judgement_is_told_with_its_figures() -> None:
    figures = {"samples": 37, "before": 7.5, "now": 5.0, "change": -2.5, "standard_error": 0.05}
    known = judgement.Judgement(step=22, epoch=1, too_long=0, bound=0.0, verdict="go on", **figures)
    for verdict in ("go on", "ask", "stop"):
        said = PROGRESS("zh", f"early judgement: {verdict}; {known.words}")
        assert not re.search("[a-z] [a-z]", said), said
        assert "-2.5000" in said
    unknown = known.model_copy(update={"change": None})
    assert "37 个留出样本" in PROGRESS("zh", f"early judgement: not judged; {unknown.words}")


def test_every_way_in_which_a_run_is_stopped_has_its_chinese() -> None:
    said = {checks.STOPPED, session.NOTHING_LOST, evaluation.STOPPED_HERE}
    said = {f"stopped on request (SIGINT): {what}" for what in said} | {
        "stopped on request",
        "stopped on request (SIGINT) after step 6 of 66; checkpoint 00000006 holds everything",
        "stopped on request (SIGINT) after step 6 of 66 (step 7 had begun; it is trained again from its start); "
        "checkpoint 00000006 holds everything",
    }
    assert [text for text in said if re.search("[a-z] [a-z]", STOPPED("zh", text))] == []


def test_a_bar_that_was_cut_short_is_not_shown_as_full(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        bars.start("training", 66)
        bars.advance(6)
        bars.start("loading the model")
    shown = capsys.readouterr().err
    assert "6/66" in shown
    assert "66/66" not in shown
    assert "1/1" in shown


def test_english_projects_read_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    for language, expected in (("en", "  training (8)\n  step 3: odd\n"), ("zh", "  训练 (8)\n  第 3 步：odd\n")):
        lines = Lines("zh" if language == "zh" else "en")
        lines.start("training", 8)
        lines.say("step 3: odd")
        assert capsys.readouterr().err == expected


def test_values_are_taken_over_and_unknown_sentences_stay() -> None:
    phrases = Phrases({"{what} of {what}": "{what}！", "{a} (once) {b}": "{b}与{a}", "plain.": "白。"})
    assert phrases("zh", "x of x") == "x！"
    assert phrases("zh", "x of y") == "x of y"
    assert phrases("zh", "a{b} (once) {c}\nd") == "{c}\nd与a{b}"
    assert phrases("zh", "plain.") == "白。"
    assert phrases("zh", "plainX") == "plainX"
    assert phrases("en", "plain.") == "plain."
