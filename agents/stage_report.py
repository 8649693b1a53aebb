"""The report of a stage: a template filled from evidence and artifacts. No number comes from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.blocks import (
    Block,
    Bullets,
    Cell,
    Document,
    Heading,
    Paragraph,
    Picture,
    Table,
    Tone,
    code,
    to_html,
    to_markdown,
)
from agents.metric_reasons import in_words, said_after
from agents.report_stages import stage_blocks
from agents.report_texts import stage_title, t
from agents.subtasks import subtasks
from agents.subtasks import title as subtask_title
from agents.task_sheet import ExpectedRow, alone_of, expected_row, with_actual
from specs.added import SELF_REPORTED
from specs.base import Language
from specs.costs import STAGE_SECONDS, TITLES
from specs.criteria import Outcome, Verdict, blocked
from specs.decisions import Decision
from specs.files import write_bytes
from specs.metrics import definitions
from specs.project import Project
from specs.proposals import Expectation
from specs.results import BUSY, Evidence
from specs.units import duration, human, significant, with_interval

_MARKS: dict[Outcome, str] = {"passed": "✓", "failed": "✗", "warning": "!", "not_applicable": "–"}
_ORDER: tuple[Outcome, ...] = ("failed", "warning", "passed", "not_applicable")
_TONES: dict[Outcome, Tone] = {"passed": "good", "failed": "bad", "warning": "warn", "not_applicable": "quiet"}


def write_stage_report(
    folder: Path,
    evidence: Evidence,
    expected: Sequence[Expectation | ExpectedRow],
    spec: Project,
    decisions: Sequence[Decision] = (),
) -> None:
    """Write `report.md` and `report.html` of an attempt into its folder, in the language of the project."""
    document = stage_document(folder, evidence, expected, spec, decisions)
    write_bytes(folder / "report.md", to_markdown(document).encode())
    write_bytes(folder / "report.html", to_html(document).encode())


def stage_document(
    folder: Path,
    evidence: Evidence,
    expected: Sequence[Expectation | ExpectedRow],
    spec: Project,
    decisions: Sequence[Decision] = (),
) -> Document:
    """The report of an attempt: verdicts first, then expected beside actual, what was dropped, pictures, details.

    `expected` with rows of other stages is a whole sheet, which the report of a last stage shows beside its own.
    """
    language = spec.language
    title = f"{stage_title(language, evidence.stage)} · {t(language, 'attempt', attempt=evidence.attempt)}"
    document = Document(f"{title} · {spec.project}", language)
    document.add(*rehearsal_line(spec), *parent_line(spec))
    document.add(verdict_line(evidence, spec))
    if evidence.verdicts:
        document.add(pieces_line(evidence, language))
    if not evidence.gated:
        document.add(Paragraph(t(language, "ungated"), "warn"))
    if spec.policy.solo:
        document.add(Paragraph(t(language, "solo"), "quiet"))
    document.add(*busy_line(evidence, language), _facts(evidence, spec))
    document.add(Heading(t(language, "verdicts")), verdict_table(evidence, spec), *where_failed(evidence, spec))
    if other := _unjudged(evidence, spec):
        document.add(Heading(t(language, "measured"), 3), other)
    rows = expected_rows(expected, evidence)
    if rows:
        document.add(Heading(t(language, "expected")), expected_table(rows, spec))
    if whole := whole_sheet(expected, evidence):
        document.add(Heading(t(language, "whole_sheet")), expected_table(whole, spec, with_stage=True))
    document.add(Heading(t(language, "notes")))
    document.add(Bullets(evidence.notes, data=True) if evidence.notes else Paragraph(t(language, "no_notes"), "quiet"))
    _add_plots(document, folder, evidence.stage, language)
    document.add(*stage_blocks(evidence.stage, folder / "artifacts", language))
    if decisions:
        document.add(Heading(t(language, "decisions")), decision_table(decisions, language))
    _add_details(document, evidence, spec)
    return document


def rehearsal_line(spec: Project) -> list[Block]:
    """That this is a rehearsal, on how many of the samples; nothing for a run in earnest."""
    if spec.rehearsal is None:
        return []
    return [Paragraph(t(spec.language, "rehearsal", share=significant(100 * spec.rehearsal)), "warn")]


def parent_line(spec: Project) -> list[Block]:
    """Which earlier training this run goes on from, by the digest of its weights; nothing for a run of its own."""
    parent = spec.parent_record
    if parent is None:
        return []
    of = t(spec.language, "parent_run", run=parent.run) if parent.run and parent.run != parent.named else ""
    values = {"named": code(parent.named), "of": of, "sha": code(parent.weights_sha256[:16])}
    return [Paragraph(t(spec.language, "parent", **values))]


def verdict_line(evidence: Evidence, spec: Project) -> Paragraph:
    """Passed, passed with warnings, or blocked, and by what; and what does not apply to this project."""
    language = spec.language
    by: dict[Outcome, list[Verdict]] = {}
    for verdict in evidence.verdicts:
        by.setdefault(verdict.outcome, []).append(verdict)
    names = {outcome: _titles(found, evidence.stage, spec) for outcome, found in by.items()}
    besides = t(language, "not_judged", names=names["not_applicable"]) if "not_applicable" in names else ""
    if not evidence.verdicts:
        return Paragraph(t(language, "no_criteria"), "warn")
    if "failed" in names:
        return Paragraph(t(language, "blocked", names=names["failed"]) + besides, "bad")
    if "warning" in names:
        return Paragraph(t(language, "passed_with_warnings", names=names["warning"]) + besides, "warn")
    return Paragraph(t(language, "all_passed") + besides, "good")


def pieces_line(evidence: Evidence, language: Language) -> Paragraph:
    """Per sub-task how many of its criteria passed, so that which piece failed is one look."""
    verdicts = evidence.verdicts
    said = []
    for piece in subtasks(evidence.stage, [], [v.metric for v in verdicts]):
        own = [v for v in verdicts if v.metric in piece.metrics and v.applies]
        passed = sum(v.passed for v in own)
        outcome: Outcome = "passed" if passed == len(own) else "failed" if blocked(own) else "warning"
        mark = _MARKS[outcome if own else "not_applicable"]
        said.append(f"{mark} {subtask_title(evidence.stage, piece.name, language)} {passed}/{len(own)}")
    return Paragraph(said_after(language, t(language, "subtasks"), " · ".join(said)), "quiet")


def _titles(verdicts: Sequence[Verdict], stage: str, spec: Project) -> str:
    titles = (metric_title(stage, v.metric, spec.language, spec) for v in verdicts)
    return ("、" if spec.language == "zh" else ", ").join(titles)


def metric_title(stage: str, metric: str, language: Language, spec: Project | None) -> str:
    """The title of a metric, as the spec has it where the stage is one of its own; its name where nothing says more.

    Without a spec, such as of a run whose spec cannot be read, only those of built-in stages are known.
    """
    if metric in TITLES:
        return TITLES[metric][language]
    known = definitions(stage) if spec is None else spec.metrics_of(stage)
    return next((d.title[language] for d in known if d.name == metric), metric.replace("_", " "))


def busy_line(evidence: Evidence, language: Language) -> list[Block]:
    """That other programs kept the machine so busy that times say little of a quiet one; nothing otherwise."""
    share = evidence.others_cpu_share
    if share is None or share < BUSY:
        return []
    said = t(language, "others_busy", share=significant(100 * share))
    whole = next((took.wall_s for took in evidence.took if took.kind == "stage"), None)
    own = alone_of(evidence, STAGE_SECONDS)
    if whole and own is not None and own < whole:
        lost = significant(round(100 * (1 - own / whole)))
        said += t(language, "others_took", share=lost, alone=duration(own), took=duration(whole))
    return [Paragraph(said, "quiet")]


def _facts(evidence: Evidence, spec: Project) -> Table:
    language = spec.language
    whole = evidence.measured(STAGE_SECONDS)  # by a clock that nobody sets
    took = (evidence.ended_at - evidence.started_at).total_seconds() if whole is None else whole.value or 0.0
    rows = [
        [Cell(t(language, "project")), Cell(spec.project, data=True)],
        [Cell(t(language, "run")), Cell(evidence.run, data=True)],
        [Cell(t(language, "base_model")), Cell(spec.base_model, data=True)],
        [Cell(t(language, "started")), Cell(evidence.started_at.strftime("%Y-%m-%d %H:%M:%S %Z"), data=True)],
        [Cell(t(language, "took")), Cell(duration(took), data=True)],
    ]
    if computed := next((took.cpu_s for took in evidence.took if took.kind == "stage"), None):
        rows.append([Cell(t(language, "cpu_time")), Cell(duration(computed), data=True)])
    if evidence.others_cpu_share is not None:
        share = significant(100 * evidence.others_cpu_share)
        rows.append([Cell(t(language, "other_programs")), Cell(t(language, "others_share", share=share))])
    return Table(["", ""], rows)


def verdict_table(evidence: Evidence, spec: Project) -> Table:
    """Every verdict, failures first; each with its value, its bound, and whether it blocks."""
    language = spec.language
    order = sorted(evidence.verdicts, key=lambda v: (_ORDER.index(v.outcome), not v.blocking))
    rows = []
    for verdict in order:
        outcome = verdict.outcome
        value = human(verdict.value, verdict.unit, language)
        if outcome == "not_applicable":
            value = in_words(language, verdict.reason)
        elif verdict.value is None and verdict.reason:
            value = said_after(language, value, verdict.reason)
        rows.append(
            [
                Cell(f"{_MARKS[outcome]} {t(language, outcome)}", tone=_TONES[outcome]),
                Cell(_said_by(metric_title(evidence.stage, verdict.metric, language, spec), verdict.reason, language)),
                Cell(value, number=True),
                Cell(f"{operator_sign(verdict.op)} {human(verdict.bound, verdict.unit, language)}", number=True),
                Cell(t(language, "blocking" if verdict.blocking else "warns") if verdict.applies else "", tone="quiet"),
            ]
        )
    return Table([t(language, k) for k in ("result", "metric", "value", "bound", "kind")], rows)


def where_failed(evidence: Evidence, spec: Project) -> list[Block]:
    """The first places behind each failed verdict that has a value and names some; nothing when none does."""
    language = spec.language
    rows = [
        [Cell(metric_title(evidence.stage, v.metric, language, spec)), Cell(in_words(language, v.reason), data=True)]
        for v in evidence.verdicts
        if v.outcome in ("failed", "warning") and v.value is not None and v.reason and v.reason != SELF_REPORTED
    ]
    if not rows:
        return []
    return [Heading(t(language, "where_failed"), 3), Table([t(language, "metric"), t(language, "places")], rows)]


def _said_by(title: str, reason: str, language: Language) -> str:
    """The title of a metric, marked where it is the stage's own word."""
    return t(language, "self_reported", title=title) if reason == SELF_REPORTED else title


def operator_sign(op: str) -> str:
    """A comparison as people write it."""
    return {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥"}.get(op, op)


def _unjudged(evidence: Evidence, spec: Project) -> Table | None:
    language = spec.language
    judged = {v.metric for v in evidence.verdicts}
    known = [d.name for d in spec.metrics_of(evidence.stage)]
    names = [n for n in known if n in evidence.metrics and n not in judged]
    names += sorted(n for n in evidence.metrics if n not in judged and n not in known)
    rows = []
    for name in names:
        metric = evidence.metrics[name]
        value = human(metric.value, metric.unit, language)
        if metric.value is None and metric.reason:
            value = said_after(language, value, metric.reason)
        title = _said_by(metric_title(evidence.stage, name, language, spec), metric.reason, language)
        rows.append([Cell(title), Cell(value, number=True)])
    return Table([t(language, "metric"), t(language, "value")], rows) if rows else None


def expected_rows(expected: Sequence[Expectation | ExpectedRow], evidence: Evidence) -> list[ExpectedRow]:
    """Expectations of this stage beside what its evidence measured."""
    rows = []
    for item in expected:
        if isinstance(item, Expectation):
            rows.append(expected_row(item, evidence.stage, evidence))
        elif item.stage == evidence.stage:
            rows.append(with_actual(item, evidence))
    return rows


def whole_sheet(expected: Sequence[Expectation | ExpectedRow], evidence: Evidence) -> list[ExpectedRow]:
    """All rows of a sheet in its order, this stage's with what it measured; empty where only this stage has some."""
    rows = [item for item in expected if isinstance(item, ExpectedRow)]
    if all(row.stage == evidence.stage for row in rows):
        return []
    own = iter(expected_rows(rows, evidence))
    return [next(own) if row.stage == evidence.stage else row for row in rows]


def expected_table(rows: Sequence[ExpectedRow], spec: Project, with_stage: bool = False) -> Table:
    """Expected and actual numbers with their relative difference; over several stages with what the sheet said."""
    language = spec.language
    table = []
    for row in rows:
        difference = row.difference
        shown = _difference(difference)
        cells = [
            Cell(metric_title(row.stage, row.metric, language, spec)),
            Cell(with_interval(row.expected, row.low, row.high, row.unit, language), number=True),
            Cell(_came(row, language), number=True),
            Cell(shown, number=True, tone="warn" if difference is not None and abs(difference) > 0.2 else ""),
            Cell(whence(row, language), tone="quiet"),
        ]
        if with_stage:
            signed = "" if row.signed is None else human(row.signed, row.unit, language)
            cells = [Cell(stage_title(language, row.stage)), cells[0], Cell(signed, number=True), *cells[1:]]
        table.append(cells)
    keys = ("metric", "expected_value", "actual_value", "difference", "why")
    header = [t(language, key) for key in keys]
    return (
        Table([t(language, "stage"), header[0], t(language, "signed_value"), *header[1:]], table)
        if with_stage
        else Table(header, table)
    )


def whence(of: Expectation | ExpectedRow, language: Language) -> str:
    """Where an expected number comes from: its rule, or a person, with what the rules had said."""
    if not of.set_by:
        return of.why
    if of.by_rule is None:
        return t(language, "set_by_person_alone")
    return t(language, "set_by_person", value=human(of.by_rule, of.unit, language))


def _came(row: ExpectedRow, language: Language) -> str:
    """The number that came; of a time on a busy machine also what it would have been without other programs."""
    if row.actual is None and not row.finished:
        return t(language, "pending")
    shown = human(row.actual, row.unit, language)
    return shown if row.alone is None else t(language, "alone", value=shown, alone=human(row.alone, row.unit, language))


def _difference(difference: float | None) -> str:
    """As per cent; from three times on as a factor."""
    if difference is None:
        return ""
    return f"{difference * 100:+.1f} %" if difference < 2 else f"× {significant(difference + 1)}"


def _add_plots(document: Document, folder: Path, stage: str, language: Language) -> None:
    from tasks.plots import drawn, missing, title_of

    pictures = [
        Picture(f"plots/{path.name}", path.read_text(encoding="utf-8"), title_of(path.stem, language))
        for path in drawn(stage, folder)
    ]
    lacking = missing(stage, folder, language)
    if pictures or lacking:
        document.add(Heading(t(language, "plots")), *pictures)
    if lacking:
        document.add(Bullets([t(language, "not_drawn", title=title, what=what) for title, what in lacking]))


def decision_table(decisions: Sequence[Decision], language: Language) -> Table:
    """Who decided what at which gate, and how sure we are that it was that person."""
    rows = []
    for decision in decisions:
        marks = [t(language, "self_approved")] if decision.self_approved else []
        marks += [t(language, "override")] if decision.override else []
        choice = t(language, f"choice.{decision.choice}")
        rows.append(
            [
                Cell(stage_title(language, decision.gate)),
                Cell(str(decision.round), number=True),
                Cell(f"{choice} ({', '.join(marks)})" if marks else choice),
                Cell(decision.actor, data=True),
                Cell(decision.authentication, data=True),
                Cell(decision.comment, data=True),
            ]
        )
    return Table([t(language, k) for k in ("gate", "round", "choice", "actor", "authentication", "comment")], rows)


def _add_details(document: Document, evidence: Evidence, spec: Project) -> None:
    """Folded: how every metric is recomputed, and every file with its digest."""
    language = spec.language
    recomputed = [
        [Cell(d.title[language]), Cell(d.recomputed, data=evidence.stage in spec.added_stages)]
        for d in spec.metrics_of(evidence.stage)
        if d.name in evidence.metrics
    ]
    if recomputed:
        document.add(Table([t(language, "metric"), ""], recomputed, folded=t(language, "recomputed")))
    files: list[list[Cell]] = [
        [Cell(a.path, data=True), Cell(human(a.bytes, "bytes", language), number=True), Cell(a.sha256, data=True)]
        for a in evidence.artifacts
    ]
    if files:
        header = [t(language, "file"), t(language, "size"), "SHA-256"]
        document.add(Table(header, files, folded=t(language, "files")))


def plain_value(value: Any) -> str:
    """A parameter value as people write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return significant(value, 6) if abs(value) >= 1e-4 or value == 0 else f"{value:g}"
    return (", ".join(map(str, value)) or "[]") if isinstance(value, list) else str(value)
