"""Integrity: nothing recorded was changed. Recomputes the chain and every digest from the bytes that are stored."""

from __future__ import annotations

from pathlib import Path

from flows.audit.history import History
from flows.audit.report import Checks, Part
from flows.decide import edited
from flows.gatefiles import attempt_folder, changed_files, load_proposal, proposal_path, read_gate
from flows.ledger.chain import FaultKind, verify_chain
from specs.canonical import digest, sha256_file
from specs.criteria import Criterion, judge
from specs.errors import GatewrightError
from specs.events import (
    AttemptPublished,
    CheckpointSaved,
    DecisionRecorded,
    GateOpened,
    InputsHashed,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    TranscriptStored,
    VerdictsRecorded,
)

MANIFEST = "manifest.json"


def integrity(history: History, anchored: str) -> Part:
    """The steps of integrity. `anchored` says what an anchor proved; empty without one."""
    checks = Checks()
    _chain(checks, history)
    _beside(checks, history)
    _frozen(checks, history)
    _attempts(checks, history)
    _verdicts(checks, history)
    _inputs(checks, history)
    _gates(checks, history)
    _proposals(checks, history)
    _release(checks, history)
    without = "self-consistent; no anchor was given, so that a history rebuilt as a whole would look the same"
    checks.add("what this proves", [], anchored or without)
    return checks.part()


def _chain(checks: Checks, history: History) -> None:
    faults = verify_chain(history.run, history.rows)

    def of(*kinds: FaultKind) -> list[str]:
        return [f"event {f.sequence}: {f.what}" for f in faults if f.kind in kinds]

    seen = f"{len(history.rows)} events"
    back = sum(later.at < earlier.at for earlier, later in zip(history.rows, history.rows[1:], strict=False))
    clock = f"; the clock ran backwards {back} times, which proves nothing" if back else ""
    checks.add("each event's stored bytes hash to its recorded hash", of("hash", "unreadable"), seen)
    checks.add("each event names the hash of the one before", of("link"), seen + clock)
    checks.add("the columns of each event repeat its hashed bytes", of("column"), seen)
    unknown = f"; {history.state.unknown} of a kind that this version does not know, not verified further"
    checks.add("each event reads as its kind", history.unreadable, seen + (unknown if history.state.unknown else ""))


def _beside(checks: Checks, history: History) -> None:
    faults = []
    for table, rows in (
        ("gates", {(p.gate, p.round): (p.digest, e.sequence) for e, p in history.of(GateOpened)}),
        (
            "decisions",
            {
                (p.decision.gate, p.decision.round): (p.decision.digest, e.sequence)
                for e, p in history.of(DecisionRecorded)
            },
        ),
    ):
        found = {(r["gate"], r["round"]): (r["digest"], r["sequence"]) for r in history.beside[table]}
        for key in sorted({*rows, *found}):
            if rows.get(key) != found.get(key):
                faults.append(f"table {table}: {key[0]} round {key[1]} is not what the events say")
    decided = {p.decision.gate: p.decision for _, p in history.of(DecisionRecorded)}
    by_key = {(p.decision.gate, p.decision.round): p.decision for _, p in history.of(DecisionRecorded)}
    for row in history.beside["decisions"]:
        decision = by_key.get((row["gate"], row["round"]))
        if decision and (row["choice"], row["actor"]) != (decision.choice, decision.actor):
            faults.append(f"table decisions: {row['gate']} round {row['round']} names another choice or person")
    checks.add("the tables beside the chain repeat it", faults, f"{len(decided)} gates decided")


def _frozen(checks: Checks, history: History) -> None:
    faults = []
    for _, created in history.of(RunCreated):
        for name in ("spec", "policy", "environment"):
            faults += _differs(history.run_dir / f"{name}.json", getattr(created, name), history.run_dir)
    checks.add("spec, policy and environment are those the run began with", faults, "3 files")


def _differs(path: Path, expected: str, below: Path) -> list[str]:
    if ".." in path.parts or not path.is_relative_to(below):
        return [f"{path.name}: its path leads out of the run's folder"]
    name = path.relative_to(below).as_posix()
    if path.is_symlink() or not path.is_file():
        return [f"{name} is missing" if not path.is_symlink() else f"{name} is a link"]
    return [] if sha256_file(path) == expected else [f"{name} was changed"]


def _attempts(checks: Checks, history: History) -> None:
    documents, artifacts, unlisted, count = [], [], [], 0
    for (stage, number), published in sorted(history.published().items()):
        folder = attempt_folder(history.run_dir, stage, number)
        documents += _differs(folder / "evidence.json", published.evidence, history.run_dir)
        documents += _differs(folder / "report.md", published.report, history.run_dir)
        if published.report_html:
            documents += _differs(folder / "report.html", published.report_html, history.run_dir)
        evidence = history.evidence(stage, number)
        if evidence is None:
            artifacts.append(f"{stage} {number}: its evidence cannot be read, so its artifacts cannot be verified")
            continue
        if (evidence.run, evidence.stage, evidence.attempt) != (history.run, stage, number):
            documents.append(f"{stage} {number}: the evidence is of {evidence.run} {evidence.stage} {evidence.attempt}")
        listed = {a.path for a in evidence.artifacts}
        for artifact in evidence.artifacts:
            artifacts += _differs(folder / artifact.path, artifact.sha256, history.run_dir)
        count += len(listed)
        tops = {"artifacts", *(path.split("/")[0] for path in listed)}
        for path in sorted(p for top in sorted(tops) for p in (folder / top).rglob("*")):
            if (path.is_symlink() or path.is_file()) and path.relative_to(folder).as_posix() not in listed:
                unlisted.append(path.relative_to(history.run_dir).as_posix())
    seen = f"{len(history.published())} attempts"
    checks.add("evidence and reports are those that were published", documents, seen)
    checks.add("artifacts are those the evidence lists", artifacts, f"{count} files")
    checks.add("no file lies among the artifacts that nobody listed", unlisted, seen)


def _verdicts(checks: Checks, history: History) -> None:
    faults = []
    for event, recorded in history.of(VerdictsRecorded):
        evidence = history.evidence(recorded.stage, recorded.attempt)
        where = f"event {event.sequence}: {recorded.stage} {recorded.attempt}"
        if evidence is None:
            faults.append(f"{where}: no evidence to compare with")
        elif recorded.verdicts != evidence.verdicts:
            faults.append(f"{where}: the recorded verdicts are not those of the evidence")
        else:
            criteria = [
                Criterion(metric=v.metric, op=v.op, bound=v.bound, blocking=v.blocking) for v in evidence.verdicts
            ]
            judged = judge(criteria, evidence.metrics)
            faults += [
                f"{where}: {v.metric} {v.op} {v.bound:g} does not follow from the metrics"
                for v, again in zip(evidence.verdicts, judged, strict=True)
                if (v.passed, v.value) != (again.passed, again.value)
            ]
    checks.add(
        "verdicts follow from the metrics in the evidence",
        faults,
        "metrics themselves are recomputed from the artifacts by `gatewright verify`",
    )


def _inputs(checks: Checks, history: History) -> None:
    faults, before = [], {}
    for event, hashed in history.of(InputsHashed):
        key = (hashed.stage, hashed.attempt)
        if hashed.moment == "before":
            before[key] = hashed.inputs
        elif before.get(key) != hashed.inputs:
            faults.append(f"event {event.sequence}: inputs of {hashed.stage} {hashed.attempt} changed while it ran")
    for (stage, number), _ in sorted(history.published().items()):
        evidence = history.evidence(stage, number)
        if evidence and (stage, number) in before and evidence.inputs != before[stage, number]:
            faults.append(f"{stage} {number}: the evidence names other inputs than were hashed before it ran")
    checks.add("inputs did not change while a stage ran", faults, f"{len(before)} attempts with hashed inputs")


def _gates(checks: Checks, history: History) -> None:
    files, contents, count = [], [], 0
    created = history.state.created
    published: dict[tuple[str, int], AttemptPublished] = history.published()
    proposals = {(p.gate, p.round): p.proposal for _, p in history.of(ProposalMade)}
    for _, gate in history.of(GateOpened):
        where, count = f"gate {gate.gate} round {gate.round}", count + 1
        try:
            changed = changed_files(history.run_dir, gate.gate, gate.round, gate.digest)
            document = read_gate(history.run_dir, gate.gate, gate.round)
        except (GatewrightError, ValueError) as error:
            files.append(f"{where}: {error}")
            continue
        files += [f"{where} showed {name}, which was changed" for name in changed]
        if (document.run, document.gate, document.round) != (history.run, gate.gate, gate.round):
            contents.append(f"{where}: gate.json is of {document.run} {document.gate} {document.round}")
        if document.proposal != proposals.get((gate.gate, gate.round)):
            contents.append(f"{where}: it showed another proposal than was made for it")
        if created and (document.spec, document.policy) != (created.spec, created.policy):
            contents.append(f"{where}: it showed another spec or policy than the run's")
        if document.finished_stage is not None and document.finished_attempt is not None:
            shown = published.get((document.finished_stage, document.finished_attempt))
            if shown is None or (shown.evidence, shown.report) != (document.evidence, document.report):
                contents.append(f"{where}: it showed evidence that was not published")
    checks.add("what each gate showed is unchanged", files, f"{count} gates")
    checks.add("each gate showed this run's own evidence, proposal, spec and policy", contents, f"{count} gates")


def _proposals(checks: Checks, history: History) -> None:
    faults, count = [], 0
    for _, made in history.of(ProposalMade):
        count += 1
        faults += _differs(proposal_path(history.run_dir, made.proposal), made.proposal, history.run_dir)
    proposals = {(p.gate, p.round): p.proposal for _, p in history.of(ProposalMade)}
    for _, recorded in history.of(DecisionRecorded):
        decision = recorded.decision
        where = f"decision on {decision.gate} round {decision.round}"
        if decision.edited_proposal is None:
            faults += [f"{where}: edits without an edited proposal"] if decision.edits else []
            continue
        path = proposal_path(history.run_dir, decision.edited_proposal)
        broken, count = _differs(path, decision.edited_proposal, history.run_dir), count + 1
        original = proposals.get((decision.gate, decision.round))
        if not broken and original:
            try:
                base = load_proposal(history.run_dir, original)
                again, _ = edited(base, decision.edits, decision.actor, decision.comment)
                kept = load_proposal(history.run_dir, decision.edited_proposal)
            except GatewrightError as error:
                broken = [f"{where}: {error}"]
            else:
                if digest(again.parameters) != digest(kept.parameters) or kept.edited_by != decision.actor:
                    broken = [f"{where}: the edited proposal is not the proposal with these edits"]
        faults += broken
    for _, stored in history.of(TranscriptStored):
        path = history.run_dir / "transcripts" / f"{stored.transcript}.json"
        faults += _differs(path, stored.transcript, history.run_dir)
    checks.add("proposals, edits and transcripts are unchanged", faults, f"{count} proposals")


def _release(checks: Checks, history: History) -> None:
    faults, seen = [], "no release yet"
    for _, released in history.of(ReleasePublished):
        faults += _differs(history.run_dir / released.folder / MANIFEST, released.manifest, history.run_dir)
        seen = f"{released.folder}/{MANIFEST}; `gatewright release verify` checks the bundle against it"
    if any(True for _ in history.of(CheckpointSaved)):
        seen += "; checkpoints are not verified here: they may be deleted"
    checks.add("the release manifest is the one that was published", faults, seen)
