"""What differs between two runs: spec, parameters, data, metrics, decisions, versions. Only what differs is listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.report_texts import stage_title
from agents.stage_report import metric_title
from flows.audit.history import History
from flows.audit.words import word
from flows.gatefiles import attempt_folder, load_proposal
from specs.base import Language, Strict
from specs.errors import GatewrightError
from specs.units import human

SECTIONS = ("spec", "parameters", "data", "metrics", "decisions", "versions")


class Fact(Strict):
    """One thing that can be compared: `value` for machines, `shown` for people."""

    title: str
    value: Any
    shown: str


class Difference(Strict):
    """One fact that the two runs do not share; a side that lacks it is None."""

    name: str
    title: str
    one: Any
    other: Any
    one_shown: str
    other_shown: str


class RunDiff(Strict):
    """Per section what differs, and how many facts are the same. `unread` says what could not be compared."""

    runs: tuple[str, str]
    equal: bool
    differences: dict[str, list[Difference]]
    same: dict[str, int]
    unread: list[str]


Facts = Mapping[str, Mapping[str, Fact]]


def diff(one: History, other: History, language: Language = "en") -> RunDiff:
    """Compare two runs; each may come from a ledger or from a bundle."""
    unread: list[str] = []
    facts = [facts_of(history, language, unread) for history in (one, other)]
    return compare((one.run, other.run), facts[0], facts[1], unread)


def compare(runs: tuple[str, str], one: Facts, other: Facts, unread: list[str]) -> RunDiff:
    """Compare the facts of two runs. Pure."""
    differences: dict[str, list[Difference]] = {}
    same: dict[str, int] = {}
    for section in SECTIONS:
        left, right = one.get(section, {}), other.get(section, {})
        names = [*left, *(name for name in right if name not in left)]
        found = [_difference(name, left.get(name), right.get(name)) for name in names if not _same(name, left, right)]
        differences[section] = found
        same[section] = len(names) - len(found)
    equal = not any(differences.values()) and not unread
    return RunDiff(runs=runs, equal=equal, differences=differences, same=same, unread=unread)


def _same(name: str, left: Mapping[str, Fact], right: Mapping[str, Fact]) -> bool:
    return name in left and name in right and left[name].value == right[name].value


def _difference(name: str, one: Fact | None, other: Fact | None) -> Difference:
    return Difference(
        name=name,
        title=next(fact.title for fact in (one, other) if fact is not None),
        one=one.value if one else None,
        other=other.value if other else None,
        one_shown=one.shown if one else "-",
        other_shown=other.shown if other else "-",
    )


def facts_of(history: History, language: Language, unread: list[str]) -> dict[str, dict[str, Fact]]:
    """Everything of a run that can be compared; what cannot be read is named in `unread`."""
    spec = _document(history, history.run_dir / "spec.json", unread)
    return {
        "spec": _leaves(spec),
        "parameters": _parameters(history, unread),
        "data": _data(history, unread),
        "metrics": _metrics(history, language, unread),
        "decisions": _decisions(history, language),
        "versions": _versions(history, unread),
    }


def _document(history: History, path: Path, unread: list[str]) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        unread.append(f"{history.run}: {path.relative_to(history.run_dir).as_posix()} cannot be read")
        return {}


def _leaves(value: Any, path: str = "") -> dict[str, Fact]:
    """Dotted path to every leaf of a document; a list of plain values is one leaf."""
    if isinstance(value, dict) and value:
        parts = [_leaves(item, f"{path}.{key}" if path else str(key)) for key, item in sorted(value.items())]
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        parts = [_leaves(item, f"{path}.{number}") for number, item in enumerate(value, start=1)]
    else:
        return {path: _plain(path, value)} if path else {}
    return {name: fact for part in parts for name, fact in part.items()}


def _plain(name: str, value: Any) -> Fact:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Fact(title=name, value=value, shown=shown)


def _parameters(history: History, unread: list[str]) -> dict[str, Fact]:
    """What each gate approved, edits included, and what training said it took effect as."""
    found: dict[str, Fact] = {}
    for gate in history.state.order:
        digest = history.state.approved_proposal(gate)
        if not digest:
            continue
        try:
            found.update(_leaves(load_proposal(history.run_dir, digest).parameters, gate))
        except (GatewrightError, ValueError) as error:
            unread.append(f"{history.run}: the approved proposal of {gate}: {error}")
    for stage in history.state.stages:
        attempt = history.state.current(stage)
        if attempt is None or attempt.state != "published":
            continue
        settings = attempt_folder(history.run_dir, stage, attempt.number) / "artifacts" / "settings.json"
        if settings.is_file():
            document = _document(history, settings, unread)
            effective = document.get("effective", {}) if isinstance(document, dict) else {}
            found.update(_leaves(effective, f"{stage} effective"))
    return found


def _data(history: History, unread: list[str]) -> dict[str, Fact]:
    """Digest of every raw file, of general text and of the base model, as the stages that count read them."""
    found: dict[str, Fact] = {}
    for stage, evidence in _evidence(history, unread).items():
        for name, sha256 in sorted(evidence.inputs.items()):
            if name.startswith(("raw:", "general:")) or name == "base_model":
                title = name.removeprefix("raw:")
                found.setdefault(f"{stage}.{name}", Fact(title=title, value=sha256, shown=sha256[:12]))
    distinct: dict[str, Fact] = {}
    for fact in found.values():  # the base model is read by several stages; one line unless they differ
        distinct.setdefault(fact.title, fact)
    return distinct


def _metrics(history: History, language: Language, unread: list[str]) -> dict[str, Fact]:
    return {
        f"{stage}.{name}": Fact(
            title=f"{stage_title(language, stage)}: {metric_title(stage, name, language, history.spec)}",
            value=metric.value,
            shown=human(metric.value, metric.unit, language),
        )
        for stage, evidence in _evidence(history, unread).items()
        for name, metric in sorted(evidence.metrics.items())
    }


def _evidence(history: History, unread: list[str]) -> dict[str, Any]:
    """The evidence of every attempt that counts."""
    found = {}
    for stage, attempt in history.state.inputs(history.state.stages).items():
        evidence = history.evidence(stage, attempt.number)
        if evidence is None:
            said = f"{history.run}: the evidence of {stage} {attempt.number} cannot be read"
            unread += [said] if said not in unread else []
        else:
            found[stage] = evidence
    return found


def _decisions(history: History, language: Language) -> dict[str, Fact]:
    """Each round of each gate: what was decided, by whom and how. Times differ always and are left out."""
    found: dict[str, Fact] = {}
    order = {gate: place for place, gate in enumerate(history.state.order)}
    for (gate, round_), opened in sorted(history.state.gates.items(), key=lambda g: (order.get(g[0][0], 99), g[0][1])):
        name, decision = f"{gate} round {round_}", opened.decision
        title = word(language, "round", gate=stage_title(language, gate), round=round_)
        if decision is None:
            found[name] = Fact(title=title, value=None, shown=word(language, "waits"))
            continue
        value = decision.model_dump(mode="json", include={"choice", "actor", "authentication", "comment", "edits"})
        value |= {"override": decision.override, "rework_stage": decision.rework_stage}
        choice = word(language, "rework_choice" if decision.choice == "rework" else decision.choice)
        how = word(language, decision.authentication)
        said = word(language, "decided_by", choice=choice, actor=decision.actor, how=how)
        said += f"; {word(language, 'overridden')}" if decision.override else ""
        said += "".join(f"; {path} = {new}" for path, new in sorted(decision.edits.items()))
        said += f"; “{decision.comment}”" if decision.comment else ""
        found[name] = Fact(title=title, value=value, shown=said)
    return found


def _versions(history: History, unread: list[str]) -> dict[str, Fact]:
    """The code, and what of the machine may matter to a result."""
    found = _leaves(_document(history, history.run_dir / "environment.json", unread))
    created = history.state.created
    return {"code": _plain("code", created.code if created else None), **found}
