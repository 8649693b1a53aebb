"""Integrity: nothing recorded was changed. Recomputes the chain and every digest from the bytes that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from flows.audit.files import Comparison
from flows.audit.history import History
from flows.audit.report import Checks, Part
from flows.audit.unpacking import BundleFacts
from flows.gatefiles import attempt_folder, gate_folder, load_proposal, proposal_path, read_gate, shown
from flows.ledger.chain import FaultKind
from flows.workspace import frozen_graph
from specs.canonical import digest, sha256_file
from specs.criteria import Criterion, Verdict, judge
from specs.errors import GatewrightError
from specs.events import (
    AttemptPublished,
    AttemptReserved,
    DecisionRecorded,
    GateAmended,
    GateOpened,
    ProposalMade,
    ReleasePublished,
    RunCreated,
    SpecAmended,
    TranscriptStored,
    VerdictsRecorded,
    WorkHandedIn,
    WorkHandedOut,
)
from specs.parameters import leaves
from specs.proposals import Proposal
from specs.stage_graph import StageGraph

MANIFEST = "manifest.json"


def integrity(history: History, anchored: str, bundle: BundleFacts | None = None) -> Part:
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
    _removed(checks, history)
    _handed_over(checks, bundle)
    without = "self-consistent; no anchor was given, so that a history rebuilt as a whole would look the same"
    checks.add("what this proves", [], anchored or without)
    return checks.part()


def _chain(checks: Checks, history: History) -> None:
    chain = history.chain

    def of(*kinds: FaultKind) -> list[str]:
        return [f"event {f.sequence}: {f.what}" for f in chain.faults if f.kind in kinds]

    seen = f"{chain.count} events"
    more = [f"{chain.more_faults} more faults of the chain"] if chain.more_faults else []
    clock = f"; the clock ran backwards {chain.backwards} times, which proves nothing" if chain.backwards else ""
    checks.add("each event's stored bytes hash to its recorded hash", of("hash", "unreadable") + more, seen)
    checks.add("each event names the hash of the one before", of("link"), seen + clock)
    columns = "the columns of each event repeat its hashed bytes"
    if history.beside is None:
        faults = [fault for fault in of("column") if "it belongs to run" in fault]
        checks.add(columns, faults, f"{seen} of run {history.run}; a bundle has no columns besides the hashed bytes")
    else:
        checks.add(columns, of("column"), seen)
    unknown = history.state.unknown
    said = [f"{unknown} events of a kind that this version does not know"] if unknown else []
    checks.add("each event reads as its kind", history.unreadable, seen, said)


def _beside(checks: Checks, history: History) -> None:
    check = "the tables beside the chain repeat it"
    if history.beside is None:
        checks.skip(check, "a bundle holds no database")
        return
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
        for key in sorted({*rows, *found}, key=repr):
            if rows.get(key) != found.get(key):
                faults.append(f"table {table}: {key[0]} round {key[1]} is not what the events say")
    decided = {p.decision.gate: p.decision for _, p in history.of(DecisionRecorded)}
    by_key = {(p.decision.gate, p.decision.round): p.decision for _, p in history.of(DecisionRecorded)}
    for row in history.beside["decisions"]:
        decision = by_key.get((row["gate"], row["round"]))
        if decision and (row["choice"], row["actor"]) != (decision.choice, decision.actor):
            faults.append(f"table decisions: {row['gate']} round {row['round']} names another choice or person")
    checks.add(check, faults, f"{len(decided)} gates decided")


def _frozen(checks: Checks, history: History) -> None:
    compared = Comparison()
    amended = [payload for _, payload in history.of(SpecAmended)]
    for _, created in history.of(RunCreated):
        digests = {f"{name}.json": getattr(created, name) for name in ("spec", "policy", "environment")}
        for change in amended:
            digests |= {"spec.json": change.spec, f"specs/{change.before}.json": change.before}
            digests[f"specs/{change.spec}.json"] = change.spec
        for name, sha256 in digests.items():
            history.files.compare(name, sha256, compared)
        recorded, frozen = StageGraph.recorded(created.stages, created.edges), frozen_graph(history.run_dir)
        if not compared.faults and (recorded.order, recorded.edges) != (frozen.order, frozen.edges):
            compared.faults.append("the first event names other stages than the spec, or another order")
    checks.add("spec, policy and environment are those the run began with", compared.faults, "3 files")


def _attempts(checks: Checks, history: History) -> None:
    documents, artifacts, unlisted = Comparison(), Comparison(), []
    orders = _Orders(history)
    for (stage, number), published in sorted(history.published().items()):
        below = attempt_folder(history.run_dir, stage, number).relative_to(history.run_dir).as_posix()
        history.files.compare(f"{below}/evidence.json", published.evidence, documents)
        history.files.compare(f"{below}/report.md", published.report, documents)
        if published.report_html:
            history.files.compare(f"{below}/report.html", published.report_html, documents)
        documents.faults += orders.faults(stage, number)
        evidence = history.evidence(stage, number)
        if evidence is None:
            artifacts.faults.append(f"{stage} {number}: its evidence cannot be read, so are its artifacts unverifiable")
            continue
        if (evidence.run, evidence.stage, evidence.attempt) != (history.run, stage, number):
            said = f"{evidence.run} {evidence.stage} {evidence.attempt}"
            documents.faults.append(f"{stage} {number}: the evidence is of {said}")
        for artifact in evidence.artifacts:
            history.files.compare(f"{below}/{artifact.path}", artifact.sha256, artifacts)
        unlisted += history.files.unlisted(stage, number, [a.path for a in evidence.artifacts])
    seen = f"{len(history.published())} attempts"
    check = "evidence and reports are those that were published"
    checks.add(check, documents.faults, f"{seen}, {documents.compared} files", documents.unverified)
    check = "artifacts are those the evidence lists"
    checks.add(check, artifacts.faults, f"{artifacts.compared} files", _counted(artifacts.unverified))
    check = "no file lies among the artifacts that nobody listed"
    if history.files.whole:
        checks.add(check, unlisted, seen)
    else:
        checks.add(check, unlisted, "only plots are in the bundle as files", ["the folders of the artifacts"])


def _counted(texts: list[str]) -> list[str]:
    """Few as they are; many by their number and the first."""
    return texts if len(texts) <= 3 else [f"{len(texts)} files, such as {texts[0]}"]


class _Orders:
    """The order that lies in an attempt's folder: the gate it was opened by and the proposal it ran with."""

    def __init__(self, history: History) -> None:
        self.run_dir = history.run_dir
        self.parameters = {(p.stage, p.attempt): p.parameters for _, p in history.of(AttemptReserved)}
        self.gates = {(p.gate, p.digest) for _, p in history.of(GateOpened)}
        self.gates |= {(p.decision.gate, p.digest) for _, p in history.of(GateAmended)}

    def faults(self, stage: str, number: int) -> list[str]:
        """What is wrong with the order of one attempt; attempts without such files have none."""
        folder, faults = attempt_folder(self.run_dir, stage, number), []
        if (folder / "proposal.json").is_file():
            try:
                ran_with = Proposal.model_validate_json((folder / "proposal.json").read_bytes()).parameters
                right = digest(ran_with) == self.parameters.get((stage, number))
            except (OSError, ValueError):
                right = False
            if not right:
                faults.append(f"{stage} {number}: proposal.json beside it is not what it ran with")
        if (folder / "gate.json").is_file() and (stage, sha256_file(folder / "gate.json")) not in self.gates:
            faults.append(f"{stage} {number}: gate.json beside it is not one of this run's gates")
        return faults


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
            judged = judge([given_by(v) for v in evidence.verdicts], evidence.metrics)
            faults += [
                f"{where}: {v.metric} {v.op} {v.bound:g} does not follow from the metrics"
                for v, again in zip(evidence.verdicts, judged, strict=True)
                if (v.passed, v.value, v.applies) != (again.passed, again.value, again.applies)
            ]
    checks.add(
        "verdicts follow from the metrics in the evidence",
        faults,
        "metrics themselves are recomputed from the artifacts by `gatewright verify`",
    )


def given_by(verdict: Verdict) -> Criterion:
    """What a verdict was given by. One that says that it does not apply follows from a metric that does not."""
    return Criterion(
        metric=verdict.metric,
        op=verdict.op,
        bound=verdict.bound,
        blocking=verdict.blocking,
        where_applicable=not verdict.applies,
    )


def _inputs(checks: Checks, history: History) -> None:
    faults, before = list(history.inputs.faults), history.inputs.before
    for (stage, number), _ in sorted(history.published().items()):
        evidence = history.evidence(stage, number)
        if evidence and (stage, number) in before and evidence.inputs != before[stage, number]:
            faults.append(f"{stage} {number}: the evidence names other inputs than were hashed before it ran")
    faults += _work(history)
    checks.add("inputs did not change while a stage ran", faults, f"{len(before)} attempts with hashed inputs")


def _work(history: History) -> list[str]:
    """Work of people: what an attempt ran on is what was handed out and in, by whom the record says."""
    faults = []
    handed = {(p.stage, e.actor, p.sha256) for e, p in history.of(WorkHandedIn)}
    sheets = [(p.stage, dict(p.files)) for _, p in history.of(WorkHandedOut)]
    for (stage, number), _ in sorted(history.published().items()):
        evidence = history.evidence(stage, number)
        if evidence is None or stage not in history.state.by_person:
            continue
        kinds = [(name.partition(":"), sha256) for name, sha256 in sorted(evidence.inputs.items())]
        came = [(stage, name, sha256) for (kind, _, name), sha256 in kinds if kind == "handed_in"]
        out = {name: sha256 for (kind, _, name), sha256 in kinds if kind == "handed_out"}
        if len(came) != 1 or came[0] not in handed or (stage, out) not in sheets:
            faults.append(f"{stage} {number}: it ran on other work than was handed out and in")
    return faults


def _gates(checks: Checks, history: History) -> None:
    compared, contents, count = Comparison(), [], 0
    created = history.state.created
    published: dict[tuple[str, int], AttemptPublished] = history.published()
    proposals = {(p.gate, p.round): p.proposal for _, p in history.of(ProposalMade)}
    for event, gate in history.of(GateOpened):
        where, count = f"gate {gate.gate} round {gate.round}", count + 1
        below = gate_folder(history.run_dir, gate.gate, gate.round).relative_to(history.run_dir).as_posix()
        found = Comparison()
        history.files.compare(f"{below}/gate.json", gate.digest, found)
        try:
            document = read_gate(history.run_dir, gate.gate, gate.round)
            files = shown(history.run_dir, document)
        except (GatewrightError, ValueError, KeyError, OSError) as error:
            compared.faults.append(f"{where}: {error}")
            continue
        if not found.faults:  # a changed gate.json vouches for nothing
            for name, sha256 in sorted(files.items()):
                history.files.compare(name, sha256, found)
        compared.faults += [f"{where} showed {fault}" for fault in found.faults]
        compared.unverified += [f"{where}: {text}" for text in found.unverified]
        compared.compared += found.compared
        if (document.run, document.gate, document.round) != (history.run, gate.gate, gate.round):
            contents.append(f"{where}: gate.json is of {document.run} {document.gate} {document.round}")
        if document.proposal != proposals.get((gate.gate, gate.round)):
            contents.append(f"{where}: it showed another proposal than was made for it")
        if created and (document.spec, document.policy) != (_spec_at(history, event.sequence), created.policy):
            contents.append(f"{where}: it showed another spec or policy than the run's")
        if created and document.identity != created.identity:
            contents.append(f"{where}: it showed another run of this id")
        if document.after not in (None, event.previous):
            contents.append(f"{where}: it was not made after the event before it")
        shows: list[tuple[str, int, str | None, str | None]] = []
        shows += [(d.stage, d.attempt, d.evidence, d.report) for d in document.also]
        if document.finished_stage is not None and document.finished_attempt is not None:
            stage, attempt = document.finished_stage, document.finished_attempt
            shows.append((stage, attempt, document.evidence, document.report))
        for stage, attempt, evidence, report in shows:
            there = published.get((stage, attempt))
            if there is None or (there.evidence, there.report) != (evidence, report):
                contents.append(f"{where}: it showed evidence that was not published")
    check = "what each gate showed is unchanged"
    checks.add(check, compared.faults, f"{count} gates, {compared.compared} files", _counted(compared.unverified))
    checks.add("each gate showed this run's own evidence, proposal, spec and policy", contents, f"{count} gates")


def _spec_at(history: History, sequence: int) -> str:
    """Digest of the spec that a run had at an event."""
    began = [(event.sequence, payload.spec) for event, payload in history.of(RunCreated)]
    amended = [(event.sequence, payload.spec) for event, payload in history.of(SpecAmended)]
    return next((spec for at, spec in reversed([*began, *amended]) if at < sequence), "")


def _proposals(checks: Checks, history: History) -> None:
    compared = Comparison()
    below = proposal_path(history.run_dir, "").parent.relative_to(history.run_dir).as_posix()
    proposals = {(p.gate, p.round): p.proposal for _, p in history.of(ProposalMade)}
    for _, made in history.of(ProposalMade):
        history.files.compare(f"{below}/{made.proposal}.json", made.proposal, compared)
    for _, recorded in history.of(DecisionRecorded):
        decision = recorded.decision
        where = f"decision on {decision.gate} round {decision.round}"
        if decision.edited_proposal is None:
            compared.faults += [f"{where}: edits without an edited proposal"] if decision.edits else []
            continue
        found = Comparison()
        history.files.compare(f"{below}/{decision.edited_proposal}.json", decision.edited_proposal, found)
        original = proposals.get((decision.gate, decision.round))
        if not found.faults and original:
            try:
                base = load_proposal(history.run_dir, original)
                kept = load_proposal(history.run_dir, decision.edited_proposal)
            except (GatewrightError, ValueError) as error:
                found.faults = [f"{where}: {error}"]
            else:
                if kept.edited_by != decision.actor or not _only_edited(base, decision.edits, kept):
                    found.faults = [f"{where}: the edited proposal is not the proposal with these edits"]
        compared.faults += found.faults
        compared.compared += found.compared
    for _, stored in history.of(TranscriptStored):
        history.files.compare(f"transcripts/{stored.transcript}.json", stored.transcript, compared)
    check = "proposals, edits and transcripts are unchanged"
    checks.add(check, compared.faults, f"{compared.compared} files", _counted(compared.unverified))


def _only_edited(base: Proposal, edits: Mapping[str, Any], kept: Proposal) -> bool:
    """Whether `kept` differs from `base` in these parameters alone, as both are stored.

    The models of today are not asked: they may know parameters that these proposals were made without.
    """
    before, after = leaves(base.parameters), leaves(kept.parameters)
    return after == {**before, **edits}


def _release(checks: Checks, history: History) -> None:
    manifest, released, seen = Comparison(), Comparison(), "no release yet"
    unlisted: list[str] = []
    for _, made in history.of(ReleasePublished):
        history.files.compare(f"{made.folder}/{MANIFEST}", made.manifest, manifest)
        seen = f"{made.folder}/{MANIFEST}"
        if manifest.faults:
            continue
        listed = _manifest_files(history, made.folder)
        for name, sha256 in listed.items():
            history.files.compare(f"{made.folder}/{name}", sha256, released)
        folder = history.run_dir / made.folder
        there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()}
        unlisted += [f"{made.folder}/{name} is not listed" for name in sorted(there - set(listed) - {MANIFEST})]
    checks.add("the release manifest is the one that was published", manifest.faults, seen)
    check = "released files are those the manifest lists"
    if manifest.faults:
        checks.skip(check, "the manifest is not the one that was published")
    else:
        faults = released.faults + unlisted
        checks.add(check, faults, f"{released.compared} files", _counted(released.unverified))


def _manifest_files(history: History, folder: str) -> dict[str, str]:
    """The files of a release by its manifest. A published manifest has the right form, or else lists nothing."""
    try:
        listed: Any = from_json((history.run_dir / folder / MANIFEST).read_bytes())["files"]
        return {str(entry["path"]): str(entry["sha256"]) for entry in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _removed(checks: Checks, history: History) -> None:
    """Removals stand in the chain of the project, because runs that have ended take no event."""
    reasons = sorted({reason for _, reason in history.files.removed.values()})
    seen = f"{len(reasons)} requests, {len(history.files.removed)} files" if reasons else "nothing was removed"
    check = "the project's own chain, which records what was removed on request, is consistent"
    checks.add(check, history.upkeep, seen + "".join(f"; {reason}" for reason in reasons))


def _handed_over(checks: Checks, bundle: BundleFacts | None) -> None:
    check = "what was handed over is whole"
    if bundle is None:
        checks.add(check, [], "read from the ledger and the run's folder themselves")
        return
    listed = bundle.listed
    unverified = [] if isinstance(listed.files, dict) else ["a list of version 1 holds no digests"]
    left_out = ", ".join(f"{count} {what}" for what, count in sorted(listed.left_out.items()))
    seen = f"{bundle.entries} entries, bundle version {listed.version}"
    seen += f"; left out: {left_out}" if left_out else ""
    checks.add(check, bundle.faults, seen, unverified)
