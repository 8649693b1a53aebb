"""The page on using a release does what it says: its code runs on a release, its questions are those of training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.data.wording import words
from tasks.evaluate.release import build_release
from tests.evaluate.test_release import make_facts

PAGE = (Path(__file__).parents[2] / "docs/using-the-release.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_answers_a_question(lab, tmp_path, monkeypatch, capsys):
    trained = lab.evaluated("en", "true").inputs["train"] / "artifacts"
    files = {p.name: p.read_bytes() for p in (trained / "adapter").iterdir()}
    build_release(tmp_path / "release", make_facts(tmp_path, files, merged=True, base_model_folder=lab.model))
    monkeypatch.chdir(tmp_path)
    merged, adapted = CODE
    spoken: dict[str, object] = {}
    exec(merged.replace("max_new_tokens=200", "max_new_tokens=24"), spoken)
    first = capsys.readouterr().out
    assert first.strip()
    exec(adapted.replace('"BASE"', repr(str(lab.model))), spoken)
    exec(merged[merged.index("inputs =") :].replace("max_new_tokens=200", "max_new_tokens=24"), spoken)
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_questions_of_the_page_are_those_of_the_data_stage(language):
    used = words(language)
    for key in ("machine", "alarm", "problem", "ask_repair"):
        assert used[key].strip() in PAGE
    assert used["ask_code"].replace("{code}", "…") in PAGE
