"""The advice in words for a terminal, in both languages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flows.advising import Document
from specs.base import Language
from tasks.advising.cards import Row
from tasks.advising.costs import THROTTLING_HOURS, Way
from tasks.advising.texts import reason, text
from tasks.planning.texts import short


def lines_before(d: Document, project: str, language: Language) -> list[str]:
    """Route, model, warnings, peak, card, trial, delivery: in this order."""
    t = partial(text, language)
    a = d.advice
    lines = [t("title", project=d.project), t("route", route=t(f"route.name.{a.route}"))]
    lines += [f"   {reason(language, r)}" for r in a.reasons if r.key.startswith("route.")]
    lines += [t("model", model=a.model)]
    lines += [f"   {reason(language, r)}" for r in a.reasons if not r.key.startswith("route.")]
    lines += [t("warning", text=reason(language, w)) for w in a.warnings]
    source = t("lengths.run", run=d.lengths_of_run) if d.lengths_of_run else t("lengths.given", length=d.longest)
    lines += ["   " + t("lengths", source=source)]
    if d.measured_run is not None:
        taken = any(r.measured for r in d.survey.rows)
        key = "measured" if taken else "measured.elsewhere"
        lines += ["   " + t(key, run=d.measured_run, device=d.measured_on)]
    row = d.chosen
    if row is None or row.plan is None or row.plan.account is None:
        lines.append(t("card_none"))
    else:
        needed = f"{row.plan.utilisation * row.usable_bytes / 2**30:.1f}"
        lines.append(t("peak", needed=needed, plan=short(row.plan, language)))
        usable, share = f"{row.usable_bytes / 2**30:.1f}", f"{row.plan.utilisation:.0%}"
        lines.append(t("card", cards=row.cards, gpu=row.gpu, share=share, usable=usable, time=_time(d, row, language)))
        lines += [f"   {line}" for line in (*_at_hand(d, row, language), *_verdict(d, row, language))]
    lines.append(t("trial" if d.lengths_of_run else "trial_first", project=project))
    return [*lines, t("delivery")]


def _time(d: Document, row: Row, language: Language) -> str:
    if row.hours is None:
        why = "why.samples" if d.samples is None else "why.rates"
        return text(language, "time_unknown", why=text(language, why))
    return text(language, "time", low=f"{row.hours.low:.3g}", high=f"{row.hours.high:.3g}")


def _at_hand(d: Document, chosen: Row, language: Language) -> list[str]:
    """Why the card that is there or named is not the one to take."""
    own = next((r for r in d.survey.rows if r.gpu == d.here), None)
    if d.here is None or own is chosen or d.here == chosen.gpu:
        return []
    if own is None:
        return [text(language, "at_hand.unseen", gpu=d.here)]
    if not own.fits:
        return [text(language, "at_hand.small", gpu=d.here)]
    hours = f"{own.hours.expected:.3g}" if own.hours else "?"
    return [text(language, "at_hand.slow", gpu=d.here, hours=hours, limit=f"{d.hours_limit:g}")]


def _verdict(d: Document, row: Row, language: Language) -> list[str]:
    v = row.verdict
    if v is None:
        return []
    lines = [text(language, f"verdict.{v.reason}")]
    if v.break_even_hours is not None and row.hours is not None:
        worked = f"{row.hours.expected * d.use.runs:.3g}"
        hours = f"{v.break_even_hours:.0f}"
        lines.append(text(language, "break_even", hours=hours, worked=worked, load=f"{v.load:.1%}"))
    return lines


def table_cells(d: Document, rows: Sequence[Row], language: Language) -> tuple[str, list[str], list[list[str]]]:
    """Title, head and cells of the cards that fit; prices only where some are known."""
    ways: list[Way] = ["rent", "own", "host"]
    priced = [w for w in ways if any(c.way == w and c.money is not None for r in rows for c in r.costs)]
    names = ["gpu", "memory", "plan", "hours", *priced, "way"]
    title = text(language, "table", model=d.advice.model, method=text(language, f"route.name.{d.advice.route}"))
    return title, [text(language, f"col.{n}") for n in names], [_cells(r, priced, language) for r in rows]


def _cells(row: Row, priced: Sequence[Way], language: Language) -> list[str]:
    money = {c.way: "" if c.money is None else f"{c.money:.2f}" for c in row.costs}
    marks = [text(language, "laptop")] if row.laptop else []
    marks += [text(language, "oversized")] if row.oversized else []
    way = row.verdict.way if row.verdict else None
    marks = [*([text(language, f"way.{way}")] if way else []), *marks]
    share = f"{row.plan.utilisation:.0%}" if row.plan else ""
    hours = f"{row.hours.expected:.3g} ({row.hours.low:.3g}-{row.hours.high:.3g})" if row.hours else ""
    return [
        f"{row.cards} x {row.gpu}",
        f"{share} / {row.usable_bytes / 2**30:.1f} GiB",
        short(row.plan, language) if row.plan else "",
        hours,
        *(money.get(w, "") for w in priced),
        ", ".join(marks),
    ]


def lines_after(d: Document, shown: Sequence[Row], nearest: int, language: Language) -> list[str]:
    """What was assumed, left out and not shown."""
    t = partial(text, language)
    rows = d.survey.rows
    fitting, others = [r for r in rows if r.fits], [r for r in rows if not r.fits]
    lines = [t("more", count=len(fitting) - len(shown))] if len(fitting) > len(shown) else []
    if others:
        closest = sorted(others, key=lambda r: (r.over_bytes, -r.usable_bytes))[:nearest]
        names = ", ".join(f"{r.gpu} (+{r.over_bytes / 2**30:.1f} GiB)" if r.over_bytes else r.gpu for r in closest)
        lines.append(t("none_fit", count=len(others), names=names))
    if d.survey.left_out:
        lines.append(t("left_out", count=len(d.survey.left_out)))
    large = [r.gpu for r in shown if r.oversized]
    if large:
        lines.append(t("oversized_note", names=", ".join(large)))
    if any(r.laptop for r in shown):
        lines.append(t("laptop_note", hours=f"{THROTTLING_HOURS:g}"))
    use = d.use
    lines.append(
        t(
            "assumed",
            setup=f"{use.setup_hours:g}",
            transfer=use.transfer_hours,
            gb=use.transfer_bytes / 1e9,
            rate=use.upload_mb_s,
            runs=use.runs,
        )
    )
    unknown = ", ".join(t(f"unknown.{name}") for name in d.unknown)
    return [*lines, *([t("unknown", names=unknown)] if unknown else [])]
