"""What is wrong with the stages that a project adds is named by its line, all of it at once, with a way out."""

from __future__ import annotations

import pytest

from specs.added import parameters_model, rewritten_input
from specs.canonical import canonical_bytes
from specs.errors import SpecError
from specs.loading import parse_project
from specs.metrics import STAGES
from specs.project import Project

HEAD = """\
project: p
base_model: tiny
sources: [{kind: notes, path: raw/notes.md}]
"""
REWRITES = "    rewrites: data/samples.parquet\n"
STAGE = """\
  {name}:
    inputs: {{samples: {source}}}
    task: {task}
    outputs: [samples.parquet]
    metrics: {{m: {{unit: count, self_reported: true}}}}
"""


def stage(name: str, source: str = "data/samples.parquet", task: str = "tasks.added.x:run", more: str = "") -> str:
    return STAGE.format(name=name, source=source, task=task) + more


def problems(text: str) -> list[tuple[int | None, str, str, str]]:
    with pytest.raises(SpecError) as caught:
        parse_project(HEAD + text)
    return [(p.line, p.path, p.rule, p.way_out) for p in caught.value.problems]


def test_an_added_stage_takes_its_place_in_the_order():
    spec = parse_project(HEAD + "added_stages:\n" + stage("expand", more=REWRITES))
    assert spec.graph.order == ("data", "expand", *STAGES[1:], "release")
    assert spec.graph.before["dry_run"] == ("expand",)


def test_a_stage_that_names_no_other_comes_after_data_and_before_the_release():
    text = "added_stages:\n  alone:\n    command: [echo]\n    metrics: {m: {unit: count, self_reported: true}}\n"
    graph = parse_project(HEAD + text).graph
    assert graph.before["alone"] == ("data",)
    assert graph.before["release"] == ("alone", "evaluate")


def test_a_ring_is_named_at_the_line_that_closes_it():
    text = "added_stages:\n" + stage("one", "two/samples.parquet") + stage("two", "one/samples.parquet")
    (found,) = problems(text)
    assert found[0] == 6
    assert found[1] == "added_stages.one.inputs.samples"
    assert "one -> two -> one" in found[2]


def test_what_waits_for_a_stage_that_it_feeds_is_a_ring():
    more = "    rewrites: data/samples.parquet\n    after: [dry_run]\n"
    (found,) = problems("added_stages:\n" + stage("expand", more=more))
    assert found[0] == 11
    assert "dry_run" in found[2]


@pytest.mark.parametrize(
    ("text", "line", "says", "way_out"),
    [
        (stage("x", "dta/samples.parquet"), 6, "'dta', which is no stage", "Did you mean data?"),
        (stage("x") + stage("y", "x/other.csv"), 11, "declares no output 'other.csv'", "samples.parquet"),
        (stage("x", more="    after: [trian]\n"), 10, "is not a stage", "Did you mean train?"),
        (stage("x", more="    before: [data]\n"), 10, "with which every run begins", "outside the run"),
        (stage("x", task="evil.module:run"), 7, "lies in no package of task_packages", "Add evil to task_packages"),
        (stage("train"), 5, "is a stage already", "Choose another name"),
        (stage("Bad-Name"), 5, "cannot name a stage", "lower-case"),
        (stage("x", "../secret"), 6, "names neither an artifact nor a file", "data/samples.parquet"),
        (stage("x", "project:../secret"), 6, "names neither", "project:raw/file.csv"),
        (stage("x", more="    command: [echo]\n"), 5, "needs task or command, and not both", "task:"),
        (stage("x", more="    criteria: [{metric: n, op: '>', bound: 0}]\n"), 10, "no metric of it", ""),
        (stage("x", more="    rewrites: data/row_ledger.parquet\n"), 10, "cannot be rewritten", "data/samples.parquet"),
        (stage("x", "project:samples.parquet", more=REWRITES), 10, "does not read", "inputs"),
        (stage("x").replace("unit: count,", "unit: count, title: '',"), 9, "no title", "en: ..., zh: ..."),
        (stage("x").replace("unit: count,", "unit: count, title: {zh: '<b>'},"), 9, "no title", "without markup"),
        (stage("x").replace("unit: count,", "unit: count, title: 5,"), 9, "no title", "without markup"),
        (stage("x").replace("unit: count,", "unit: count, title: {fr: x},"), 9, "no title", "en: ..., zh: ..."),
        (stage("x").replace("unit: count,", "unit: count, title: [a],"), 9, "no title", "en: ..., zh: ..."),
        (stage("x").replace("unit: count,", "unit: count, title: {en: 3},"), 9, "no title", "en: ..., zh: ..."),
        (stage("x").replace("m: {", "samples_across: {") + REWRITES, 9, "of every stage that rewrites", "take it out"),
        (stage("x", more="    parameters: {n: {value: 9, max: 3}}\n"), 10, "above max 3", "change one"),
    ],
)
def test_each_fault_has_its_line_and_a_way_out(text, line, says, way_out):
    found = problems("added_stages:\n" + text)
    assert any(f[0] == line and says in f[2] and way_out.lower() in f[3].lower() for f in found), found


def test_metrics_that_nobody_computes_again_must_say_so():
    text = "added_stages:\n  x:\n    command: [echo]\n    metrics: {m: {unit: count}}\n"
    (found,) = problems(text)
    assert "nothing computes again" in found[2]
    assert "self_reported: true" in found[3]


def test_two_stages_cannot_rewrite_the_samples_apart():
    found = problems("added_stages:\n" + stage("one", more=REWRITES) + stage("two", more=REWRITES))
    assert any("neither reads the other's" in f[2] for f in found)
    chained = stage("one", more=REWRITES) + stage("two", "one/samples.parquet", more=REWRITES)
    graph = parse_project(HEAD + "added_stages:\n" + chained).graph
    assert graph.before["dry_run"] == ("two",)


def test_criteria_of_an_added_stage_are_not_written_under_acceptance():
    text = "acceptance: {x: [{metric: m, op: '>', bound: 0}]}\nadded_stages:\n" + stage("x")
    (found,) = problems(text)
    assert "added_stages.x: criteria" in found[3]


def test_the_policy_knows_the_gates_of_added_stages():
    policy = "policy: {gates: {x: {comment_required: [approve]}}}\n"
    spec = parse_project(HEAD + policy + "added_stages:\n" + stage("x"))
    assert spec.policy.at("x").comment_required == ("approve",)
    assert any("is not a gate" in f[2] for f in problems(policy))


def test_stages_and_whole_numbers_are_the_same_when_the_spec_is_read_back_frozen():
    more = "    parameters: {factor: {value: 2.0, max: 4.0}, share: {value: 1, max: 1.5}}\n"
    spec = parse_project(HEAD + "added_stages:\n" + stage("zoom", more=more) + stage("arrange"))
    frozen = Project.model_validate_json(canonical_bytes(spec))
    assert frozen.graph.order == spec.graph.order
    for read in (spec, frozen):
        fields = parameters_model(read.added_stages["zoom"]).model_fields
        assert (fields["factor"].annotation, fields["share"].annotation) == (int, float)


def test_a_rewritten_table_is_not_lost_when_the_next_stage_reads_only_what_lies_beside_it():
    rewrites = "    rewrites: data/samples.parquet\n"
    reads = stage("two", more=rewrites).replace("{samples:", "{log: one/log.csv, samples:")
    text = "added_stages:\n" + stage("one", more=rewrites).replace("outputs: [", "outputs: [log.csv, ") + reads
    ((line, path, rule, way_out),) = problems(text)
    assert (line, path) == (16, "added_stages.two.rewrites")
    assert "neither reads the other's" in rule
    assert way_out == "Let one read the other's: one/samples.parquet"


def test_a_file_of_the_project_is_not_what_a_stage_rewrites():
    more = "    rewrites: data/samples.parquet\n"
    ((_, path, rule, _),) = problems("added_stages:\n" + stage("one", "project:raw/samples.parquet", more=more))
    assert (path, rule) == ("added_stages.one.rewrites", "rewrites what it does not read")


@pytest.mark.parametrize("name", ["model_config", "model_dump", "json", "copy", "schema"])
def test_a_parameter_that_cannot_be_a_field_is_refused_with_another_name(name):
    more = f"    parameters: {{{name}: {{value: 1}}}}\n"
    ((_, _, rule, way_out),) = problems("added_stages:\n" + stage("one", more=more))
    assert name in rule
    assert f"{name}_setting" in way_out


@pytest.mark.parametrize("output", ["author.json", "project_files/x.csv", "self_reported.json", "Samples.parquet"])
def test_an_output_takes_no_place_that_is_taken(output):
    text = "added_stages:\n" + stage("one").replace("outputs: [", f"outputs: [{output}, ")
    ((_, path, _, _),) = problems(text)
    assert path == "added_stages.one.outputs"


def test_a_stage_that_rewrites_samples_is_judged_by_what_leaks_and_loosened_only_by_name():
    loose = "    criteria:\n      - {metric: samples_across, op: '==', bound: 0, blocking: false}\n"
    loose += "      - {metric: m, op: '>', bound: 1}\n"
    spec = parse_project(HEAD + "added_stages:\n" + stage("x", more=REWRITES) + stage("y", "x/samples.parquet"))
    judged = {c.metric: c.blocking for c in spec.criteria("x")}
    assert judged == dict.fromkeys(
        ("exact_duplicate_leakage", "near_duplicate_leakage", "parent_leakage", "samples_across"), True
    )
    assert spec.criteria("y") == []
    spec = parse_project(HEAD + "added_stages:\n" + stage("x", more=REWRITES + loose))
    assert {c.metric: c.blocking for c in spec.criteria("x")} == {**judged, "samples_across": False, "m": True}


def test_the_table_that_was_made_last_is_the_one_that_is_rewritten():
    both = "    after: [one]\n" + REWRITES
    text = stage("one", more=REWRITES) + stage("two", more=both).replace("{samples: ", "{a: one/samples.parquet, z: ")
    added = parse_project(HEAD + "added_stages:\n" + text).added_stages
    assert rewritten_input(added["one"], added) == "samples"
    assert rewritten_input(added["two"], added) == "a"


@pytest.mark.parametrize(
    ("written", "english", "chinese"),
    [
        ("{en: samples seen, zh: 看过的样本}", "samples seen", "看过的样本"),
        ("{zh: 看过的样本}", "看过的样本", "看过的样本"),
        ("samples seen", "samples seen", "samples seen"),
        ("null", "m n", "m n"),
    ],
)
def test_a_metric_is_called_what_the_stage_calls_it(written, english, chinese):
    text = stage("x").replace("m: {", f"m_n: {{title: {written}, ")
    (found,) = parse_project(HEAD + "added_stages:\n" + text).metrics_of("x")
    assert found.title == {"en": english, "zh": chinese}
