"""What a person sees at a gate, as Markdown: the finished stage, the proposal for the next, the task sheet."""

from __future__ import annotations

from collections.abc import Sequence

from agents.blocks import Block, Bullets, Cell, Document, Heading, Paragraph, Table, code, to_html, to_markdown
from agents.draft import default
from agents.report_texts import stage_title, t
from agents.stage_report import (
    busy_line,
    expected_table,
    metric_title,
    operator_sign,
    parent_line,
    pieces_line,
    plain_value,
    rehearsal_line,
    verdict_line,
    verdict_table,
    whence,
    where_failed,
)
from agents.subtasks import title as subtask_title
from agents.task_sheet import ExpectedRow
from specs.base import Language
from specs.bilingual import Texts
from specs.criteria import Criterion
from specs.parameters import PARAMETERS, leaves, resolve
from specs.phrases import Phrases
from specs.project import Project
from specs.proposals import UNKNOWN_LICENCE, Proposal, SheetStage, TaskSheet
from specs.results import Evidence
from specs.units import human, with_interval

_BY_HAND = Phrases({"set by {who}": "由 {who} 设定"})
"""What a proposal says of a value that a person changed without a word of their own."""


def gate_page(
    *,
    gate: str,
    round: int,
    proposal: Proposal,
    previous: Proposal | None,
    finished: Evidence | None,
    expected: Sequence[ExpectedRow],
    spec: Project,
    report: str | None = None,
    approvals: str = "",
    also: Sequence[tuple[Evidence, str]] = (),
) -> str:
    """The page of an open gate. How to decide is said by whoever shows it; `approvals` is what the policy waits for.

    `also` are further finished stages, each with the place of its report, where the gate waited for several.
    """
    language = spec.language
    key = "gate_title_release" if gate == "release" else "gate_title"
    title = t(language, key, stage=stage_title(language, gate)) if key == "gate_title" else t(language, key)
    document = Document(f"{title} · {t(language, 'gate_round', round=round)} · {spec.project}", language)
    document.add(*rehearsal_line(spec), *parent_line(spec), *_model_line(proposal, spec))
    for evidence, place in [*([(finished, report)] if finished is not None else []), *also]:
        document.add(*_finished(evidence, place, spec))
    if proposal.task_sheet is not None:
        document.add(Heading(t(language, "sheet")), *sheet_blocks(proposal.task_sheet, spec))
    document.add(Heading(t(language, "proposal", stage=stage_title(language, gate))))
    document.add(*proposal_blocks(proposal, previous, language))
    if expected:
        document.add(Heading(t(language, "expected")), expected_table(expected, spec, with_stage=True))
    if approvals:
        document.add(Heading(t(language, "approvals")), Paragraph(approvals))
    return to_markdown(document)


_MODEL = Texts(
    {
        "line": (
            "Base model: {model}, revision {revision}. Licence: {licence}.",
            "基座模型：{model}，版本 {revision}。许可证：{licence}。",
        ),
        "unknown": (
            "not stated by the model; find out before you build on it",
            "模型未注明；使用前请自行确认",
        ),
    }
)


def _model_line(proposal: Proposal, spec: Project) -> list[Block]:
    """Which base model, at which revision, under which licence; as a warning where none is stated."""
    facts = proposal.base_model
    if facts is None:
        return []
    unknown = facts.licence == UNKNOWN_LICENCE
    licence = _MODEL(spec.language, "unknown") if unknown else code(facts.licence)
    values = {"model": code(spec.base_model), "revision": code(facts.revision), "licence": licence}
    return [Paragraph(_MODEL(spec.language, "line", **values), "warn" if unknown else "")]


def _finished(finished: Evidence, report: str | None, spec: Project) -> list[Block]:
    """A finished stage: what its criteria said, what it says itself, and where its report lies."""
    language = spec.language
    blocks: list[Block] = [Heading(t(language, "finished", stage=stage_title(language, finished.stage)))]
    blocks.append(verdict_line(finished, spec))
    if finished.verdicts:
        blocks.append(pieces_line(finished, language))
    blocks += [*busy_line(finished, language), verdict_table(finished, spec), *where_failed(finished, spec)]
    if finished.notes:
        blocks.append(Bullets(finished.notes, data=True))
    if report:
        colon = "：" if language == "zh" else ": "
        blocks.append(Paragraph(f"{t(language, 'full_report')}{colon}{code(report)}"))
    return blocks


def proposal_blocks(proposal: Proposal, previous: Proposal | None, language: Language) -> list[Block]:
    """Who proposes what and why; warnings, memory, the answer to the feedback, and what changed."""
    blocks: list[Block] = [Paragraph(t(language, "proposed_by", proposer=proposal.proposer), "quiet")]
    if proposal.edited_by:
        blocks.append(Paragraph(t(language, "edited_by", person=proposal.edited_by), "warn"))
    for warning in proposal.warnings:
        blocks.append(Paragraph(warning, "warn"))
    if proposal.answers_feedback:
        blocks += [Heading(t(language, "answer"), 3), *_answers(proposal, language)]
    if previous is not None and (changed := _changes(previous, proposal)):
        header = [t(language, key) for key in ("parameter", "before", "after")]
        blocks += [Heading(t(language, "changed"), 3), Table(header, changed)]
    blocks += _parameters(proposal, language)
    if proposal.memory is not None:
        check = proposal.memory
        values = {
            "peak": human(check.peak_bytes, "bytes", language),
            "usable": human(check.usable_bytes, "bytes", language),
            "device": check.device,
        }
        line = t(language, "memory_fits" if check.fits else "memory_not", **values)
        how = f"account_{check.method}"
        note = t(language, "method", method=t(language, how) if how in t else check.method)
        before = check.account_bytes
        if check.calibration is not None and before is not None and before != check.peak_bytes:
            account = human(before, "bytes", language)
            ratio = human(check.calibration.ratio, "share", language)
            note += ("；" if language == "zh" else "; ") + t(
                language, "memory_calibrated", account=account, ratio=ratio
            )
        said = f"{line}（{note}）" if language == "zh" else f"{line} ({note})"
        blocks.append(Paragraph(said, "" if check.fits else "bad"))
    return blocks


def _answers(proposal: Proposal, language: Language) -> list[Block]:
    """What was asked for beside what was done with it; the words alone where they cannot be told apart."""
    if not proposal.answers:
        return [Bullets(proposal.answers_feedback.split("\n"))]
    rows = [
        [Cell(a.asked, data=True), Cell(t(language, f"outcome_{a.outcome}")), Cell(a.text)] for a in proposal.answers
    ]
    return [Table([t(language, key) for key in ("asked", "outcome", "answered")], rows)]


def _parameters(proposal: Proposal, language: Language) -> list[Block]:
    """Values with a reason in a table; values at their default in one line."""
    reasons = {reason.parameter: reason for reason in proposal.reasons}
    rows, defaults = [], []
    for path, value in leaves(proposal.parameters).items():
        reason = reasons.get(path)
        known = proposal.stage in PARAMETERS
        if reason is None and known and default(proposal.stage, path) == value:
            last = path.rpartition(".")[2]
            name = last if resolve(proposal.parameters, last) == path else path
            defaults.append(f"{name} {plain_value(value)}")
            continue
        why = f"{_BY_HAND(language, reason.text)} [{reason.source}]" if reason else ""
        rows.append([Cell(path, data=True), Cell(plain_value(value), data=True), Cell(why)])
    blocks: list[Block] = []
    if rows:
        blocks.append(Table([t(language, key) for key in ("parameter", "proposed", "because")], rows))
    if defaults:
        blocks.append(Paragraph(t(language, "unchanged_defaults", names=", ".join(defaults)), "quiet"))
    return blocks


def _changes(previous: Proposal, proposal: Proposal) -> list[list[Cell]]:
    before, now = leaves(previous.parameters), leaves(proposal.parameters)
    return [
        [Cell(path, data=True), Cell(plain_value(before.get(path)), data=True), Cell(plain_value(now[path]), data=True)]
        for path in now
        if before.get(path) != now[path]
    ]


def sheet_page(sheet: TaskSheet, spec: Project) -> str:
    """A task sheet as Markdown."""
    return to_markdown(_sheet(sheet, spec))


def sheet_html(sheet: TaskSheet, spec: Project) -> str:
    """A task sheet as one HTML page."""
    return to_html(_sheet(sheet, spec))


def _sheet(sheet: TaskSheet, spec: Project) -> Document:
    document = Document(t(spec.language, "sheet"), spec.language)
    document.add(*sheet_blocks(sheet, spec))
    return document


def sheet_blocks(sheet: TaskSheet, spec: Project) -> list[Block]:
    """The goal, and per stage: inputs, expected numbers, blocking criteria, budget, signers, failure."""
    language = spec.language
    comma, separator, colon = ("、", "；", "：") if language == "zh" else (", ", "; ", ": ")
    blocks: list[Block] = [Paragraph(f"{t(language, 'goal')}{colon}{sheet.goal}")]
    for stage in sheet.stages:
        criteria = separator.join(_criterion(stage.name, c, spec) for c in stage.criteria if c.blocking)
        budget = human(stage.budget_hours, "h", language) if stage.budget_hours else t(language, "no_budget")
        facts = [
            ("inputs", comma.join(stage.inputs) or t(language, "nothing")),
            ("criteria", criteria or t(language, "nothing")),
            ("budget", budget),
            ("signed_by", comma.join(stage.signed_by) or t(language, "nothing")),
            ("on_failure", stage.on_failure),
        ]
        if stage.runs:
            facts.insert(0, ("runs", stage.runs))
        if stage.subtasks:
            pieces = separator.join(subtask_title(stage.name, s.name, language) for s in stage.subtasks)
            facts.insert(1, ("subtasks", pieces))
        blocks += [
            Heading(stage_title(language, stage.name), 3),
            Bullets([f"{t(language, key)}{colon}{value}" for key, value in facts], data=True),
            _expected_numbers(stage, spec),
        ]
    return [*blocks, *_findings(sheet, language)]


def _expected_numbers(stage: SheetStage, spec: Project) -> Block:
    """What a stage should bring, with where each number comes from."""
    language = spec.language
    if not stage.expected:
        return Paragraph(f"{t(language, 'expected_value')}{'：' if language == 'zh' else ': '}{t(language, 'nothing')}")
    rows = []
    for e in stage.expected:
        value = Cell(with_interval(e.value, e.low, e.high, e.unit, language), number=True)
        rows.append(
            [Cell(metric_title(stage.name, e.metric, language, spec)), value, Cell(whence(e, language), tone="quiet")]
        )
    return Table([t(language, key) for key in ("metric", "expected_value", "why")], rows)


def _findings(sheet: TaskSheet, language: Language) -> list[Block]:
    """What the completeness check found, each with the sentence that closes it."""
    if not sheet.findings:
        return []
    rows = [
        [
            Cell(f.text, data=True, tone="bad" if f.blocking else "warn"),
            Cell(t(language, "finding_blocks") if f.blocking else t(language, "warning")),
            Cell(f.sentence, data=True),
        ]
        for f in sheet.findings
    ]
    header = ["", "", t(language, "finding_write")]
    return [Heading(t(language, "findings"), 3), Table(header, rows)]


def _criterion(stage: str, criterion: Criterion, spec: Project) -> str:
    unit = next((d.unit for d in spec.metrics_of(stage) if d.name == criterion.metric), "")
    bound = human(criterion.bound, unit, spec.language)
    title = metric_title(stage, criterion.metric, spec.language, spec)
    said = f"{title} {operator_sign(criterion.op)} {bound}"
    return t(spec.language, "where_applicable", said=said) if criterion.where_applicable else said
