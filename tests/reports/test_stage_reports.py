"""Reports say every verdict, cite only what was measured, and open anywhere."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agents.citations import numbers_in, uncited_numbers
from agents.report_texts import stage_title
from agents.reporter import sheet_page, write_stage_report
from agents.sheet_file import to_yaml
from agents.stage_report import expected_rows, whole_sheet
from agents.task_sheet import ExpectedRow, sheet_of
from specs.added import SELF_REPORTED
from specs.criteria import Metric, judge
from specs.decisions import Decision
from specs.metrics import definitions
from specs.proposals import Expectation
from tasks.plots import draw
from tests.agents.proposer_cases import context
from tests.reports.report_attempts import WRITERS, evidence, project

EXPECTED = [Expectation(metric="rows_total", value=1300, unit="rows", why="probe")]


def publish(stage: str, folder: Path, language: str = "en", decisions=(), expected=(), **values: float | None):
    WRITERS[stage](folder)
    draw(stage, folder, language)  # type: ignore[arg-type]
    spec = project(language)
    found = evidence(stage, folder, spec, **values)
    write_stage_report(folder, found, expected, spec, decisions)
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("report.md", "report.html")]
    return found, texts[0], texts[1]


def artifact_numbers(folder: Path) -> list[float]:
    """Numbers that a report may take from artifacts, counted here with code of its own."""
    artifacts = folder / "artifacts"
    facts: list[float] = [0]
    if (path := artifacts / "row_ledger.parquet").exists():
        rows = pq.read_table(path).to_pylist()
        keys = ("source", "fate", "reason")
        for size in range(len(keys) + 1):
            counts: dict[tuple[str, ...], int] = {}
            for row in rows:
                for chosen in {tuple(row[k] for k in keys[:size]), (row["fate"],), (row["source"], row["fate"])}:
                    counts[chosen] = counts.get(chosen, 0) + 1
            facts += [sum(1 for r in rows if all(v in r.values() for v in key)) for key in counts]
    if (path := artifacts / "samples.parquet").exists():
        samples = pq.read_table(path).to_pylist()
        facts += [s["n_tokens"] for s in samples]
        for split in ("train", "eval"):
            facts.append(sum(s["split"] == split for s in samples))
            for column in ("fault_type", "device_model", "source"):
                for kind in {s[column] for s in samples}:
                    facts.append(sum(s["split"] == split and s[column] == kind for s in samples))
    if (path := artifacts / "masked.parquet").exists():
        shown = [m for m in pq.read_table(path).to_pylist() if m["place"] == "sample"]
        facts += [sum(m["kind"] == kind for m in shown) for kind in {m["kind"] for m in shown}]
    if (path := artifacts / "account.json").exists():
        account = json.loads(path.read_bytes())
        facts += [value + account["framework_bytes"] for value in account["phases"].values()]
    for path in sorted(artifacts.glob("*.json*")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [numbers_in(json.loads(line)) for line in lines if line.strip()]
        facts += [n for line in found for n in line]
        if path.name == "metrics.jsonl":
            facts.append(sum(json.loads(line)["tokens"] for line in lines))
    return facts


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("stage", sorted(WRITERS))
def test_every_verdict_is_in_the_report_in_the_projects_language(stage, language, tmp_path):
    found, markdown, html = publish(stage, tmp_path / "a", language)
    titles = {d.name: d.title[language] for d in definitions(stage)}
    for verdict in found.verdicts:
        assert titles[verdict.metric] in markdown
        assert titles[verdict.metric] in unescape(html)
    assert stage_title(language, stage) in markdown
    if language == "zh":
        assert not re.search(r"\b(Acceptance|Measured|Required|Notes|Plots)\b", markdown)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("stage", sorted(WRITERS))
def test_only_numbers_of_evidence_and_artifacts_are_cited(stage, language, tmp_path):
    folder = tmp_path / "a"
    found, markdown, _ = publish(stage, folder, language, expected=EXPECTED if stage == "data" else ())
    rows = expected_rows(EXPECTED, found) if stage == "data" else []
    more = [*artifact_numbers(folder), *numbers_in([r.model_dump() for r in rows]), *(r.difference or 0 for r in rows)]
    more.append((found.ended_at - found.started_at).total_seconds())
    assert uncited_numbers(markdown, found, more) == []
    assert uncited_numbers(markdown + "\nThe loss fell by 17.31 %.", found, more) == ["17.31"]


class References(HTMLParser):
    """Everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "object", "embed", "img", "base", "form"):
            self.found.append(tag)
        for name, value in attrs:
            text = value or ""
            outside = name in ("src", "href", "xlink:href", "action", "data") and not text.startswith("#")
            if outside or name.startswith("on") or re.search(r"url\((?!['\"]?#)", text):
                self.found.append(f"{tag} {name}={text}")


@pytest.mark.parametrize("stage", sorted(WRITERS))
def test_the_html_is_one_file_that_fetches_and_runs_nothing(stage, tmp_path):
    _, _, html = publish(stage, tmp_path / "a")
    parser = References()
    parser.feed(html)
    assert parser.found == []
    assert "@import" not in html
    assert not re.search(r"url\((?!['\"]?#)", html)
    assert html.count("<svg") == len(list((tmp_path / "a" / "plots").glob("*.svg")))


def test_failures_come_first_and_block_in_words(tmp_path):
    _, markdown, html = publish("data", tmp_path / "a", rows_unaccounted=3.0, smallest_fault_type=1.0)
    table = markdown[markdown.index("## Acceptance") :]
    assert table.index("rows without exactly one fate") < table.index("smallest fault type") < table.index("✓")
    assert "Blocked by: rows without exactly one fate" in markdown
    assert '<p class="bad">Blocked by' in html


def test_a_warning_is_not_a_pass(tmp_path):
    _, markdown, _ = publish("data", tmp_path / "a", smallest_fault_type=1.0)
    assert "Passed, with warnings: samples of the smallest fault type" in markdown


def test_a_metric_that_could_not_be_measured_says_so(tmp_path):
    _, markdown, _ = publish("train", tmp_path / "a", adapter_change=None)
    assert "not measured" in markdown
    assert "Blocked by: size of the learnt change" in markdown


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_failed_verdict_says_where_to_look_and_a_passed_one_does_not(language, tmp_path):
    WRITERS["data"](tmp_path)
    spec = project(language)
    found = evidence("data", tmp_path, spec, rows_unaccounted=2.0)
    verdicts = [v.model_copy(update={"reason": f"orders.csv row 7 of {v.metric}"}) for v in found.verdicts]
    write_stage_report(tmp_path, found.model_copy(update={"verdicts": verdicts}), (), spec, ())
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "orders.csv row 7 of rows_unaccounted" in markdown
    assert markdown.count("orders.csv row 7") == sum(not v.passed for v in verdicts)


def test_notes_and_expectations_and_decisions_are_shown(tmp_path):
    decision = Decision(
        run="r", gate="data", round=1, digest="0" * 64, choice="approve", actor="me", authentication="terminal",
        comment="fine | really", self_approved=True,
    )  # fmt: skip
    _, markdown, html = publish("data", tmp_path / "a", decisions=[decision], expected=EXPECTED)
    assert "7 rows left out: greeting" in markdown
    assert "1,300 rows" in markdown
    assert "self-approved" in markdown
    assert "`fine \\| really`" in markdown
    assert "fine | really" in html


def test_what_people_wrote_cannot_become_markup(tmp_path):
    _, markdown, html = publish("evaluate", tmp_path / "a")
    assert "<b>call</b>" not in html
    assert "&lt;b&gt;call&lt;/b&gt;" in html
    row = next(line for line in markdown.splitlines() if "AL-001" in line)
    assert row.count(" | ") == 3


def test_samples_are_shown_with_what_is_learnt(tmp_path):
    _, markdown, html = publish("data", tmp_path / "a")
    assert html.count("<mark>") == 3
    assert markdown.count("learnt:") >= 3


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_data_report_shows_distributions_with_their_smallest_class_personal_data_logs_and_joins(language, tmp_path):
    _, markdown, _ = publish("data", tmp_path, language)
    samples = pq.read_table(tmp_path / "artifacts" / "samples.parquet").to_pylist()
    for column in ("fault_type", "device_model", "source"):
        train = {s[column]: 0 for s in samples if s[column]}
        for s in samples:
            if s[column] and s["split"] == "train":
                train[s[column]] += 1
        smallest = min(train, key=lambda name: (train[name], name))
        word = "smallest class" if language == "en" else "最小的一类"
        line = next(row for row in markdown.split("\n") if word in row and smallest in row)
        assert str(train[smallest]) in line
    masked = next(row for row in markdown.split("\n") if "raw/work" in row.replace("\\", "") and "| 2 | 1 |" in row)
    assert masked
    assert "AL-777 (2)" in markdown.replace("\\", "")
    assert any("raw/spindle.csv" in row and "1,200" in row for row in markdown.replace("\\", "").split("\n"))


def test_side_by_side_answers_and_predicted_against_measured(tmp_path):
    _, markdown, _ = publish("evaluate", tmp_path / "e")
    assert "| Question | Reference | Base model | Adapter |" in markdown
    _, markdown, _ = publish("stress_test", tmp_path / "s")
    assert "| whole step | 2.19 GiB | 2.13 GiB |" in markdown


def test_plots_that_could_not_be_drawn_are_named(tmp_path):
    folder = tmp_path / "a"
    WRITERS["evaluate"](folder)
    (folder / "artifacts" / "eval_losses.parquet").unlink()
    spec = project()
    write_stage_report(folder, evidence("evaluate", folder, spec), [], spec)
    assert (
        "Not drawn: Held-out loss by fault type, for lack of eval_losses.parquet" in (folder / "report.md").read_text()
    )


def test_equal_attempts_give_equal_reports(tmp_path):
    publish("data", tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "artifacts", tmp_path / "b" / "artifacts")
    draw("data", tmp_path / "b", "en")
    spec = project()
    write_stage_report(tmp_path / "b", evidence("data", tmp_path / "b", spec), [], spec)
    for name in ("report.md", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_stage_that_a_person_added_gets_a_report_too(tmp_path):
    folder = tmp_path / "a"
    (folder / "artifacts").mkdir(parents=True)
    spec = project()
    found = evidence("data", folder, spec).model_copy(update={"stage": "expert_labelling"})
    write_stage_report(folder, found, [], spec)
    assert "rows unaccounted" in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("language", "title"), [("en", "words counted"), ("zh", "数出的词")])
def test_a_metric_of_an_added_stage_is_called_what_the_stage_calls_it_on_every_page(tmp_path, language, title):
    look = {
        "command": ["count"],
        "metrics": {
            "words": {"unit": "words", "self_reported": True, "title": {"en": "words counted", "zh": "数出的词"}},
            "lines": {"unit": "lines", "self_reported": True},
        },
        "criteria": [{"metric": "words", "op": ">", "bound": 0}],
        "expected": {"words": 50},
    }
    spec = project(language, added_stages={"look": look})
    values = {"words": -1, "lines": 3}
    metrics = {name: Metric(value=value, unit=name, reason=SELF_REPORTED) for name, value in values.items()}
    found = evidence("data", tmp_path, project()).model_copy(
        update={"stage": "look", "metrics": metrics, "verdicts": judge(spec.criteria("look"), metrics)}
    )
    write_stage_report(tmp_path, found, [], spec)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert report.count(title) == 2  # what blocks, and the verdict
    assert "lines" in report
    sheet = sheet_of(context("data", spec))
    (stage,) = [s for s in sheet.stages if s.name == "look"]
    assert stage.expected[0].unit == "words"
    page = sheet_page(sheet, spec)
    assert page.count(title) == 2  # criterion and expected number
    assert title in to_yaml(sheet, spec)


def test_the_report_of_the_last_stage_shows_the_whole_sheet(tmp_path):
    spec = project()
    found = evidence("evaluate", tmp_path, spec)
    name, metric = next((name, metric) for name, metric in found.metrics.items() if metric.value)
    row = ExpectedRow(stage="data", metric="rows_total", expected=400, actual=398, unit="rows", signed=412)
    own = row.model_copy(update={"stage": "evaluate", "metric": name, "unit": metric.unit, "actual": None})
    assert whole_sheet([row, own], found) == [row, own.model_copy(update={"actual": metric.value, "finished": True})]
    assert whole_sheet([own], found) == []
    write_stage_report(tmp_path, found, [row, own], spec)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| Data \| rows found in the sources \| 412 rows \| 400 rows \| 398 rows \|", report)
