"""What docs/stages.md shows is what the code takes: its project.yaml, its job, its answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

from examples.catalog import stages_file
from specs.loading import parse_project
from specs.metrics import STAGES
from tasks.added.job import AddedJob, Answer
from tasks.added.sources import package_root

PAGE = (Path(__file__).parents[2] / "docs" / "stages.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_spec_of_the_page_loads_and_has_the_order_that_the_page_says():
    (text,) = blocks("yaml")
    graph = parse_project(text).graph
    assert graph.order == ("data", "expand", "count_words", *STAGES[1:], "release")
    assert graph.before["dry_run"] == graph.before["count_words"] == ("expand",)


def test_the_documents_of_the_page_are_those_of_the_contract():
    job, answer = (json.loads(block) for block in blocks("json"))
    assert set(job) == set(AddedJob.model_fields)
    AddedJob.model_validate(job)
    Answer.model_validate(answer)


def test_the_example_stages_load_in_both_languages_and_name_tasks_that_are_there():
    graphs = []
    for language in ("en", "zh"):
        head = "project: p\nbase_model: tiny\nsources: [{kind: notes, path: raw/notes.md}]\n"
        spec = parse_project(head + stages_file("added", language, "yaml").read_text(encoding="utf-8"))
        assert spec.graph.before["release"] == ("expert_labelling", "second_adapter")
        for stage in spec.added_stages.values():
            for task in stage.tasks:
                module, _, name = task.partition(":")
                assert f"def {name}(" in package_root(module).read_text(encoding="utf-8")
        graphs.append((spec.graph, {n: list(s.metrics) for n, s in spec.added_stages.items()}))
    assert graphs[0] == graphs[1]
    assert all(f"`{name}`" in PAGE for name in graphs[0][1])
