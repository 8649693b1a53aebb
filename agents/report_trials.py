"""What a report shows of small trials: each setting with its trend and noise, and the confirmation."""

from __future__ import annotations

from pathlib import Path

from agents.blocks import Block, Cell, Heading, Paragraph, Table, Tone
from agents.report_texts import t
from specs.base import Language
from specs.trials import Confirmation, Outcome, TrialsReport
from specs.units import human, significant
from tasks.training.trial_words import changes, measured_on, setting, setting_tried, why

_TONES: dict[str, Tone] = {"lower": "good", "higher": "warn", "diverged": "bad", "died": "bad"}


def trials(artifacts: Path, language: Language) -> list[Block]:
    """The trials of `trials.json`; nothing where none were made."""
    path = artifacts / "trials.json"
    if not path.is_file():
        return []
    report = TrialsReport.model_validate_json(path.read_bytes())
    values = {
        "model": report.model,
        "steps": report.steps,
        "seeds": len(report.seeds),
        "samples": report.samples,
        "on": measured_on(language, report.measured_on),
        "fall": human(report.base_fall, "nats/token", language),
        "level": significant(100 * report.level, 4),
        "together": significant(100 * report.together),
    }
    rows = [_row(outcome, language) for outcome in report.outcomes]
    header = [t(language, key) for key in ("trial", "trial_change", "trial_share", "trial_trend")]
    blocks: list[Block] = [Heading(t(language, "trials"))]
    if any(setting_tried(o) for o in report.outcomes):
        blocks.append(Paragraph(t(language, "trials_legend", **values), "quiet"))
        if report.measured_on == "training":
            blocks.append(Paragraph(t(language, "trials_training"), "warn"))
    else:
        blocks.append(Paragraph(t(language, "trials_none"), "warn"))
    blocks.append(Table(header, rows))
    if report.confirmation is not None:
        blocks.append(_confirmation(report.confirmation, report, language))
    return blocks


def _row(outcome: Outcome, language: Language) -> list[Cell]:
    reason = why(language, outcome)
    trend = t(language, f"trend_{outcome.trend.replace(' ', '_')}")
    share = "—" if outcome.share is None else human(outcome.share, "share", language)
    return [
        Cell(setting(language, outcome)),
        Cell(_with_noise(outcome, language), number=True),
        Cell(share, number=True),
        Cell(
            t(language, "trend_because", trend=trend, reason=reason) if reason else trend,
            tone=_TONES.get(outcome.trend, ""),
        ),
    ]


def _with_noise(found: Outcome | Confirmation, language: Language) -> str:
    """A change and the half width of its interval."""
    if found.change is None or found.half_width is None:
        return "—"
    sign = "+" if found.change > 0 else ""
    return f"{sign}{significant(found.change)} ± {human(found.half_width, 'nats/token', language)}"


def _confirmation(of: Confirmation, report: TrialsReport, language: Language) -> Paragraph:
    """Whether the base model shows it too, in one sentence."""
    key = f"confirmation_{of.status.replace(' ', '_')}"
    tone: Tone = "good" if of.status in ("confirmed", "same model") else "warn"
    values = {
        "names": changes(language, report, of.changes),
        "on": measured_on(language, of.measured_on),
        "said": _with_noise(of, language),
        "reason": why(language, of),
    }
    return Paragraph(t(language, key, **values), tone)
