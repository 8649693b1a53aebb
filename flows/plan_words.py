"""A plan search in words for a terminal and as a document, in both languages. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.plan_data import RunData
from specs.base import Language
from tasks.planning.machine import Machine
from tasks.planning.measured import Measured, Peak
from tasks.planning.plans import Limits, Plan, PlanSearch
from tasks.planning.search import best_of_each, kind_of
from tasks.planning.texts import lacking, placed, short, text, ways_out
from tasks.planning.weighing import BAND
from tasks.planning.workload import Workload

SHOWN, REFUSED_SHOWN = 10, 5


@dataclass(frozen=True)
class Answer:
    """A search, what it was asked with, and what of the run's stress test it used."""

    found: PlanSearch
    machine: Machine
    workload: Workload
    limits: Limits
    positions: int | None = None
    given: RunData | None = None
    measured: Measured | None = None
    unused: str | None = None
    """Why what the stress test measured is not used, by its key in the texts."""


def document(answer: Answer, language: Language) -> dict[str, Any]:
    """The search as JSON: all plans without the residents of every phase, the run that was read, and the notes."""
    briefly = {"__all__": {"account": {"residents_by_phase", "notes"}}}
    found = answer.found.model_dump(mode="json", exclude={"plans": briefly, "refused": briefly})
    return {**found, "data": _data(answer), "notes": notes(answer, language)}


def _data(answer: Answer) -> dict[str, Any] | None:
    given = answer.given
    if given is None:
        return None
    return {
        "run": given.run,
        "project": given.project,
        "samples": len(given.lengths),
        "held_out": len(given.evaluation_lengths),
        "longest": max(given.lengths, default=0),
        "stress_test_used": answer.measured is not None,
    }


def lines_before(answer: Answer, language: Language) -> list[str]:
    """Which run was read."""
    given = answer.given
    if given is None:
        return []
    counts = {"samples": len(given.lengths), "longest": max(given.lengths, default=0)}
    return [text(language, "data", run=given.run, held_out=len(given.evaluation_lengths), **counts)]


def lines_after(answer: Answer, language: Language) -> list[str]:
    """The preferred plan, the notes, and the refused plans with what would make them fit."""
    found = answer.found
    shared = any(p.configuration.data_ranks > 1 for p in best_of_each((*found.plans, *found.refused), SHOWN))
    ranks = text(language, "legend.ranks") if shared else ""
    lines = [text(language, "legend", ranks=ranks)]
    lines += [preferred(found, found.plans[0], language) if found.plans else text(language, "none")]
    lines += [f"  {note}" for note in notes(answer, language)]
    nearest = refused_kinds(found)
    for refused in nearest[:REFUSED_SHOWN]:
        lines += _refused(refused, language)
    if any(p.account is not None for p in found.refused):
        lines.append(text(language, "all_refused"))
    return lines


def refused_kinds(found: PlanSearch) -> list[Plan]:
    """Of every method and placement without a feasible plan the one that is nearest to fitting."""
    feasible = {kind_of(plan) for plan in found.plans}
    missing = (p for p in found.refused if p.account is not None and kind_of(p) not in feasible)
    return best_of_each(missing, len(found.refused))


def preferred(found: PlanSearch, best: Plan, language: Language) -> str:
    """The plan to take, in a line."""
    usable, share = f"{found.usable_bytes / 2**30:.1f}", f"{best.utilisation:.0%}"
    values = {"plan": short(best, language), "where": placed(best, language)}
    return text(language, "preferred", share=share, usable=usable, **values)


def _refused(plan: Plan, language: Language) -> list[str]:
    lines = [text(language, "refused", plan=short(plan, language), where=placed(plan, language))]
    if plan.refused is not None:
        lines += [f"    {lacking(lack, language)}" for lack in plan.refused.lacks]
        lines.append(f"    {text(language, 'ways')}")
        lines += [f"      {line}" for line in ways_out(plan.refused.way_out, language)]
    return lines


def notes(answer: Answer, language: Language) -> list[str]:
    """Everything that was counted, assumed, left out, or not used."""
    found = answer.found
    counts = {"candidates": found.candidates, "feasible": len(found.plans), "refused": len(found.refused)}
    lines = [*_of_the_best(answer, language), text(language, "counted", **counts, batch=found.effective_batch)]
    lines += list(_unrecorded(found, language))
    if found.indivisible_ranks:
        ranks = ", ".join(map(str, found.indivisible_ranks))
        lines.append(text(language, "indivisible", ranks=ranks, batch=found.effective_batch))
    lines += [text(language, f"left_out.{one.reason}", **one.values) for one in found.left_out]
    given = answer.given
    if given is not None:
        lines += [text(language, note) for note in given.notes if answer.unused is None or note == "changed_records"]
    if given is not None and answer.unused:
        values = {"was": given.measured_on[1] or "?", "base": given.base_model}
        lines.append(text(language, answer.unused, **values, device=found.device, model=found.model))
    if past := answer.workload.left_out(answer.positions):
        lengths = ", ".join(map(str, past))
        lines.append(text(language, "past_positions", lengths=lengths, positions=answer.positions))
    return lines


def _of_the_best(answer: Answer, language: Language) -> Iterator[str]:
    """Where times and memory come from, what they assume, and what the length limit leaves out."""
    best = next(iter(answer.found.plans), None)
    if best is None:
        yield from _memory(answer, None, language)
        return
    machine, limits = answer.machine, answer.limits
    if best.utilisation > BAND[1]:
        yield text(language, "tight", bound=f"{BAND[1]:.0%}")
    yield from _memory(answer, best, language)
    if best.seconds is None:
        yield text(language, "no_time", device=machine.device.name)
    else:
        link = f"{machine.link_gb_s:g} GB/s" if machine.link_gb_s else "?"
        rates = {"host": machine.host_memory_gb_s, "disk": machine.disk_gb_s, "node": machine.node_link_gb_s}
        yield text(language, f"source.{best.seconds.source}")
        times = answer.measured.times if answer.measured else None
        if times is not None and times.buckets_without_time and best.seconds.source != "predicted":
            yield text(language, "buckets_without_time", count=times.buckets_without_time)
        yield text(language, "assumed", link=link, **rates)
        if best.configuration.offload != "none":
            host = best.seconds.parts.get("host", 0.0)
            share = f"{host / best.seconds.expected:.0%}"
            yield text(language, "offload_time", seconds=f"{host:.3g}", share=share)
    if best.configuration.divides_layers:
        yield text(language, "not_run")
    if best.seconds is not None and best.duration is None:
        yield text(language, "no_hours")
    if best.duration is None and (limits.hours is not None or limits.money is not None):
        yield text(language, "limits_unknown")
    if best.duration is not None and answer.workload.share(best.configuration.seq_len) < 1:
        yield text(language, "max_steps", steps=answer.workload.max_steps)
    if best.samples_over_length:
        limit = best.configuration.seq_len
        yield text(language, "over_long", count=best.samples_over_length, limit=limit)


def _memory(answer: Answer, best: Plan | None, language: Language) -> Iterator[str]:
    """What the measured peak of the stress test does to the memory of the preferred plan, and of what ran."""
    peak = answer.measured.peak if answer.measured else None
    if answer.measured is None or peak is None:
        return
    if best is not None:
        yield _memory_of(answer.measured, peak, best, language)
    ran = next((p for p in (*answer.found.plans, *answer.found.refused) if p.memory_source == "measured"), None)
    if ran is not None and ran is not best:
        yield text(language, "ran", plan=short(ran, language), share=f"{ran.utilisation:.0%}")


def _memory_of(measured: Measured, peak: Peak, best: Plan, language: Language) -> str:
    if best.memory_source == "measured":
        account = best.account_bytes or peak.predicted_bytes
        sizes = {"measured": f"{peak.process_bytes / 2**30:.2f}", "account": f"{account / 2**30:.2f} GiB"}
        return text(language, "memory.measured", times=f"{peak.process_bytes / account:.0%}", **sizes)
    times = f"{peak.process_bytes / peak.predicted_bytes:.0%}"
    if best.memory_source == "calibrated":
        return text(language, "memory.calibrated", times=times)
    if measured.is_kin_of(best.configuration):
        return text(language, "memory.confirmed", times=times)
    t = measured.training
    return text(language, "memory.other_kind", kind=f"{t.method} {t.weights}, {t.compute}, {t.attention}")


def _unrecorded(found: PlanSearch, language: Language) -> Iterator[str]:
    """Families of candidates that the model code cannot run, each with its reason."""
    reasons: dict[str, Counter[str]] = {}
    for plan in found.refused:
        if plan.refused is not None and plan.refused.unrecorded:
            c = plan.configuration
            more = ", " + text(language, "checkpointing") if c.activation_checkpointing else ""
            reasons.setdefault(plan.refused.unrecorded, Counter())[f"{c.method} {c.weights}{more}"] += 1
    for why, kinds in reasons.items():
        yield text(language, "unrecorded", count=kinds.total(), kinds="; ".join(kinds), why=why)


def table_cells(found: PlanSearch, language: Language) -> tuple[str, list[str], list[list[str]]]:
    """Title, head and rows of the best plan of every kind; prices only where some are known."""
    plans = best_of_each(found.plans, SHOWN)
    title = text(language, "title", model=found.model, cards=found.cards, device=found.device)
    priced = any(p.duration and p.duration.money is not None for p in plans)
    names = ["plan", "placement", "memory", "step", "hours", *(["money"] if priced else []), "binds"]
    return title, names, [[_cells(plan, language)[name] for name in names] for plan in plans]


def _cells(plan: Plan, language: Language) -> dict[str, str]:
    s, d = plan.seconds, plan.duration
    return {
        "plan": short(plan, language),
        "placement": placed(plan, language),
        "memory": f"{plan.utilisation:.0%}",
        "step": _interval(s.expected, s.low, s.high) if s else "",
        "hours": _interval(d.hours, d.low, d.high) if d else "",
        "money": f"{d.money:.2f}" if d and d.money is not None else "",
        "binds": ", ".join(text(language, f"bind.{b}") for b in plan.binds),
    }


def _interval(expected: float, low: float, high: float) -> str:
    return f"{expected:.3g} ({low:.3g}-{high:.3g})"
