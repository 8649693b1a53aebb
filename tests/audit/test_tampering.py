"""A catalogue of manipulations: each is found, in the part and by the check that it belongs to."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.audit import anchor, read_anchor, verify
from flows.gatefiles import attempt_folder, gate_folder
from flows.ledger import Ledger
from flows.ledger.chain import genesis, seal
from specs.canonical import canonical_bytes, sha256_bytes
from specs.policy import Approver, Policy
from tests.support.run_maker import RunMaker

Manipulation = Callable[["Target"], None]


class Target:
    """A copy of a finished run and what a manipulator can do to it: edit files, edit rows, build the chain anew."""

    def __init__(self, project_dir: Path) -> None:
        self.run_dir = project_dir / "runs" / "r1"
        self.database = project_dir / ".gatewright" / "gatewright.db"

    def ledger(self) -> Ledger:
        """The ledger as it is after the manipulation."""
        return Ledger.open(self.database)

    def sql(self, statement: str, *values: Any) -> None:
        """Change the database as its owner can: triggers away, then anything."""
        self.statements((statement, values))

    def statements(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        """Several changes at once."""
        connection = sqlite3.connect(self.database)
        connection.execute("PRAGMA synchronous = OFF")
        names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            connection.execute(f"DROP TRIGGER {name}")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.commit()
        connection.close()

    def event(self, kind: str, index: int = 0) -> tuple[int, dict[str, Any]]:
        """Sequence and hashed fields of the index-th event of a kind."""
        connection = sqlite3.connect(self.database)
        query = "SELECT sequence, body FROM events WHERE kind = ? ORDER BY sequence"
        rows = connection.execute(query, (kind,)).fetchall()
        connection.close()
        return rows[index][0], json.loads(rows[index][1])

    def rebuild(self, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        """Change the events and compute every hash anew, the run's row and tables included: only authority is left."""
        connection = sqlite3.connect(self.database)
        bodies = [json.loads(b) for (b,) in connection.execute("SELECT body FROM events ORDER BY sequence")]
        connection.close()
        bodies = change(bodies)
        previous = genesis("r1")
        statements: list[tuple[str, tuple[Any, ...]]] = [("DELETE FROM events", ())]
        for number, body in enumerate(bodies, start=1):
            at = datetime.fromisoformat(body["at"])
            row = seal("r1", number, body["kind"], body["actor"], at, body["payload"], previous)
            previous = row.hash
            values = (row.run, row.sequence, row.kind, row.actor, row.at, row.body, row.hash)
            statements.append(("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", values))
            if body["kind"] == "gate.opened":
                gate = body["payload"]
                new = (number, gate["digest"], gate["gate"], gate["round"])
                statements.append(("UPDATE gates SET sequence = ?, digest = ? WHERE gate = ? AND round = ?", new))
            if body["kind"] == "decision.recorded":
                made = body["payload"]["decision"]
                new = (number, made["digest"], made["actor"], made["choice"], made["gate"], made["round"])
                names = "sequence = ?, digest = ?, actor = ?, choice = ?"
                statements.append((f"UPDATE decisions SET {names} WHERE gate = ? AND round = ?", new))
        statements.append(("UPDATE runs SET sequence = ?, head = ?", (len(bodies), previous)))
        self.statements(*statements)

    def attempt(self, stage: str, number: int = 1) -> Path:
        return attempt_folder(self.run_dir, stage, number)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    """A finished run with two policies' worth of people, an edit, a rework, a failed attempt and an override."""
    policy = Policy(solo=False, approvers=[Approver(id="me", may_override=True), Approver(id="you")])
    maker = RunMaker(tmp_path_factory.mktemp("finished") / "project", policy=policy).start().until_gate("train")
    maker.decide("rework", comment="lower lr")
    maker.until_gate("train")
    maker.decide(edits={"lr": "1e-4"}, actor="you")
    maker.decide(expected_digest=maker.shown)
    maker.work(fail="out of memory")
    maker.work(loss=2.0)
    maker.until_gate("evaluate")
    maker.decide(override=True, comment="known")
    return maker.to_the_end()


@pytest.fixture
def target(finished: RunMaker, tmp_path: Path) -> Target:
    finished.ledger.close()
    shutil.copytree(finished.project_dir, tmp_path / "project")
    return Target(tmp_path / "project")


def failed(target: Target, anchor_file: Path | None = None) -> set[tuple[str, str]]:
    """Part and check of every step that failed."""
    ledger = target.ledger()
    try:
        report = verify(ledger, "r1", target.run_dir, read_anchor(anchor_file) if anchor_file else None)
    finally:
        ledger.close()
    found = {(name, step.check) for name, part in report.parts.items() for step in part.steps if not step.ok}
    assert report.ok is not bool(found)
    return found


def touch_body(target: Target, kind: str, change: Callable[[dict[str, Any]], None], index: int = 0) -> None:
    sequence, body = target.event(kind, index)
    change(body)
    target.sql("UPDATE events SET body = ? WHERE sequence = ?", canonical_bytes(body), sequence)


def forge_body(target: Target, kind: str, change: Callable[[dict[str, Any]], None], index: int = 0) -> None:
    """As above, with the event's own hash made anew."""
    sequence, body = target.event(kind, index)
    change(body)
    data = canonical_bytes(body)
    target.sql("UPDATE events SET body = ?, hash = ? WHERE sequence = ?", data, sha256_bytes(data), sequence)


def rebuilt(kind: str, change: Callable[[dict[str, Any]], None], index: int = 0) -> Manipulation:
    """Change one event's payload and build the chain anew."""

    def manipulate(target: Target) -> None:
        def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
            change([b for b in bodies if b["kind"] == kind][index])
            return bodies

        target.rebuild(edit)

    return manipulate


def without(kind: str, index: int = 0) -> Manipulation:
    """Leave one event out and build the chain anew."""

    def manipulate(target: Target) -> None:
        def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
            bodies.remove([b for b in bodies if b["kind"] == kind][index])
            return bodies

        target.rebuild(edit)

    return manipulate


def decision(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        body["payload"]["decision"].update(changes)
        if "actor" in changes:
            body["actor"] = changes["actor"]

    return change


def payload(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["payload"].update(changes)


def append_bytes(path: Path, data: bytes = b" ") -> None:
    path.write_bytes(path.read_bytes() + data)


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def double(target: Target) -> None:
    def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = next(i for i, b in enumerate(bodies) if b["kind"] == "decision.recorded")
        return [*bodies[: first + 1], json.loads(json.dumps(bodies[first])), *bodies[first + 1 :]]

    target.rebuild(edit)


def reorder(target: Target) -> None:
    def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first = next(i for i, b in enumerate(bodies) if b["kind"] == "gate.opened")
        bodies[first], bodies[first + 1] = bodies[first + 1], bodies[first]
        return bodies

    target.rebuild(edit)


def truncate(target: Target, rows_too: bool) -> None:
    sequence, _ = target.event("release.published")
    target.sql("DELETE FROM events WHERE sequence >= ?", sequence)
    if rows_too:
        connection = sqlite3.connect(target.database)
        (head,) = connection.execute("SELECT hash FROM events WHERE sequence = ?", (sequence - 1,)).fetchone()
        connection.close()
        target.sql(
            "UPDATE runs SET sequence = ?, head = ?, state = 'decided', terminal = 0, open = 1", sequence - 1, head
        )


def widen_policy(target: Target) -> None:
    path = target.run_dir / "policy.json"
    policy = json.loads(path.read_bytes())
    policy["approvers"].append({"id": "intruder", "may_override": True})
    path.write_bytes(canonical_bytes(policy))


def widen_policy_and_chain(target: Target) -> None:
    widen_policy(target)
    digest = sha256_bytes((target.run_dir / "policy.json").read_bytes())
    rebuilt("run.created", payload(policy=digest))(target)


def end_first(target: Target) -> None:
    def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [*bodies[:-2], bodies[-1], bodies[-2]]

    target.rebuild(edit)


def twice(kind: str) -> Manipulation:
    """Record an event a second time at the end and build the chain anew."""

    def manipulate(target: Target) -> None:
        target.rebuild(lambda bodies: [*bodies, next(b for b in bodies if b["kind"] == kind)])

    return manipulate


def rebuilt_at(at: str) -> Manipulation:
    """Give one event a time that is none, with a hash that fits."""

    def manipulate(target: Target) -> None:
        sequence, body = target.event("run.finished")
        body["at"] = at
        data = canonical_bytes(body)
        values = (data, sha256_bytes(data), at, sequence)
        target.sql("UPDATE events SET body = ?, hash = ?, at = ? WHERE sequence = ?", *values)

    return manipulate


def forge_evidence(target: Target) -> None:
    path = target.attempt("train", 2) / "evidence.json"
    evidence = json.loads(path.read_bytes())
    evidence["metrics"]["loss"]["value"] = 0.1
    path.write_bytes(canonical_bytes(evidence))


def forge_evidence_and_chain(target: Target) -> None:
    forge_evidence(target)
    digest = sha256_bytes((target.attempt("train", 2) / "evidence.json").read_bytes())
    rebuilt("attempt.published", payload(evidence=digest), index=-2)(target)


def relink(path: Path) -> None:
    """The same bytes, somewhere else."""
    outside = path.parents[4] / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)


def relink_folder(path: Path) -> None:
    """The same folder, somewhere else."""
    outside = path.parents[4] / "outside"
    path.rename(outside)
    path.symlink_to(outside, target_is_directory=True)


def link(target: Target) -> None:
    path = target.attempt("data") / "artifacts" / "result.txt"
    data = path.read_bytes()
    outside = target.run_dir.parent / "outside.txt"
    outside.write_bytes(data)
    path.unlink()
    path.symlink_to(outside)


HASHES = ("integrity", "each event's stored bytes hash to its recorded hash")
LINKS = ("integrity", "each event names the hash of the one before")
COLUMNS = ("integrity", "the columns of each event repeat its hashed bytes")
READS = ("integrity", "each event reads as its kind")
TABLES = ("integrity", "the tables beside the chain repeat it")
FROZEN = ("integrity", "spec, policy and environment are those the run began with")
DOCUMENTS = ("integrity", "evidence and reports are those that were published")
ARTIFACTS = ("integrity", "artifacts are those the evidence lists")
UNLISTED = ("integrity", "no file lies among the artifacts that nobody listed")
VERDICTS = ("integrity", "verdicts follow from the metrics in the evidence")
INPUTS = ("integrity", "inputs did not change while a stage ran")
SHOWN = ("integrity", "what each gate showed is unchanged")
OWN = ("integrity", "each gate showed this run's own evidence, proposal, spec and policy")
PROPOSALS = ("integrity", "proposals, edits and transcripts are unchanged")
RELEASED = ("integrity", "released files are those the manifest lists")
MANIFEST = ("integrity", "the release manifest is the one that was published")
GAPS = ("completeness", "events are numbered from 1 without a gap")
BEGINS = ("completeness", "the run begins once, with its first event")
ROW = ("completeness", "the run's row agrees with its events")
TERMINAL = ("completeness", "a run that ended has its terminal record, last")
ATTEMPTS = ("completeness", "every attempt that began has an end, and every published one its verdicts")
FOLDERS = ("completeness", "folders of attempts and events name each other")
GATES = ("completeness", "every gate that opened was decided, except the one that waits")
WHOLE = ("completeness", "a finished run went through every stage")
POLICY = ("authority", "the policy is the one that the run began with")
NAMED = ("authority", "each decision names a gate that was open, with the digest of what it showed")
ONCE = ("authority", "each gate and round was decided once")
ALLOWED = ("authority", "each decision was allowed by the policy")
SIGNED = ("authority", "each signature is by a key of its person, over exactly what was decided")
BLOCKED = ("authority", "each gate said truly whether a blocking criterion had failed")
ORDER = ("authority", "nothing ran, was released or ended without its decision")

CATALOGUE: dict[str, tuple[Manipulation, tuple[str, str]]] = {
    # rows of the database, chain left as it is
    "an event's bytes changed": (lambda t: touch_body(t, "proposal.made", payload(proposer="llm")), HASHES),
    "an event's bytes and hash changed": (lambda t: forge_body(t, "proposal.made", payload(proposer="llm")), LINKS),
    "an event's bytes replaced by noise": (
        lambda t: t.sql("UPDATE events SET body = ? WHERE sequence = 5", b"\x00noise"),
        HASHES,
    ),
    "an event's bytes replaced by a text": (
        lambda t: t.sql("UPDATE events SET body = replace(body, 'demo', 'dema') WHERE sequence = 1"),
        HASHES,
    ),
    "an event's bytes replaced by a number": (lambda t: t.sql("UPDATE events SET body = 7 WHERE sequence = 5"), HASHES),
    "an event's number made a word": (lambda t: t.sql("UPDATE events SET sequence = 'x' WHERE sequence = 5"), GAPS),
    "an event's actor made a number": (lambda t: t.sql("UPDATE events SET actor = 7 WHERE sequence = 5"), COLUMNS),
    "a gate's round made a word": (lambda t: t.sql("UPDATE gates SET round = 'x' WHERE gate = 'data'"), TABLES),
    "a decision's row added": (
        lambda t: t.sql(
            "INSERT INTO decisions SELECT run, gate, 9, digest, choice, actor, at, sequence FROM decisions LIMIT 1"
        ),
        TABLES,
    ),
    "a gate's row removed": (lambda t: t.sql("DELETE FROM gates WHERE gate = 'train'"), TABLES),
    "every event gone": (lambda t: t.sql("DELETE FROM events"), GAPS),
    "two events' bytes swapped": (
        lambda t: t.statements(
            ("UPDATE events SET sequence = 99999 WHERE sequence = 5", ()),
            ("UPDATE events SET sequence = 5 WHERE sequence = 6", ()),
            ("UPDATE events SET sequence = 6 WHERE sequence = 99999", ()),
        ),
        LINKS,
    ),
    "the run's count raised": (lambda t: t.sql("UPDATE runs SET sequence = sequence + 1"), ROW),
    "an event dropped": (lambda t: t.sql("DELETE FROM events WHERE sequence = 7"), GAPS),
    "the first event dropped": (lambda t: t.sql("DELETE FROM events WHERE sequence = 1"), BEGINS),
    "the tail cut": (lambda t: truncate(t, rows_too=False), ROW),
    "an event copied to the end": (
        lambda t: t.sql(
            "INSERT INTO events SELECT run, (SELECT max(sequence) + 1 FROM events), kind, actor, at, body, hash "
            "FROM events WHERE kind = 'decision.recorded' ORDER BY sequence LIMIT 1"
        ),
        LINKS,
    ),
    "a column's actor changed": (
        lambda t: t.sql("UPDATE events SET actor = 'you' WHERE kind = 'decision.recorded'"),
        COLUMNS,
    ),
    "a column's time changed": (lambda t: t.sql("UPDATE events SET at = '2020-01-01T00:00:00.000000Z'"), COLUMNS),
    "a column's kind changed": (
        lambda t: t.sql("UPDATE events SET kind = 'run.stopped' WHERE kind = 'attempt.failed'"),
        COLUMNS,
    ),
    "a decision's row changed": (lambda t: t.sql("UPDATE decisions SET actor = 'intruder'"), TABLES),
    "a decision's row removed": (lambda t: t.sql("DELETE FROM decisions WHERE gate = 'train'"), TABLES),
    "a gate's row changed": (lambda t: t.sql("UPDATE gates SET digest = ?", "b" * 64), TABLES),
    "the run's state changed": (lambda t: t.sql("UPDATE runs SET state = 'rejected'"), ROW),
    "the run's head changed": (lambda t: t.sql("UPDATE runs SET head = ?", "b" * 64), ROW),
    "the run moved to another project": (lambda t: t.sql("UPDATE runs SET project = 'other'"), ROW),
    # files
    "the policy widened": (widen_policy, FROZEN),
    "the policy gone": (lambda t: (t.run_dir / "policy.json").unlink(), POLICY),
    "the spec changed": (lambda t: append_bytes(t.run_dir / "spec.json"), FROZEN),
    "the environment changed": (lambda t: append_bytes(t.run_dir / "environment.json"), FROZEN),
    "a metric in the evidence changed": (forge_evidence, DOCUMENTS),
    "evidence gone": (lambda t: (t.attempt("data") / "evidence.json").unlink(), DOCUMENTS),
    "a report changed": (lambda t: append_bytes(t.attempt("train", 2) / "report.md"), DOCUMENTS),
    "evidence of another attempt": (
        lambda t: shutil.copy(t.attempt("data") / "evidence.json", t.attempt("train", 2) / "evidence.json"),
        DOCUMENTS,
    ),
    "an artifact changed": (lambda t: append_bytes(t.attempt("data") / "artifacts" / "result.txt"), ARTIFACTS),
    "an artifact gone": (lambda t: (t.attempt("data") / "artifacts" / "more.txt").unlink(), ARTIFACTS),
    "two artifacts swapped": (
        lambda t: swap(t.attempt("data") / "artifacts" / "more.txt", t.attempt("data") / "artifacts" / "result.txt"),
        ARTIFACTS,
    ),
    "artifacts of two stages swapped": (
        lambda t: swap(t.attempt("data") / "artifacts" / "more.txt", t.attempt("dry_run") / "artifacts" / "more.txt"),
        ARTIFACTS,
    ),
    "an artifact replaced by a link": (link, ARTIFACTS),
    "a file added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / "new.txt").write_text("x"),
        UNLISTED,
    ),
    "a file added in a new folder among the artifacts": (
        lambda t: shutil.copytree(t.attempt("data") / "plots", t.attempt("data") / "artifacts" / "deep"),
        UNLISTED,
    ),
    "a plot added": (lambda t: (t.attempt("data") / "plots" / "new.svg").write_text("<svg/>"), UNLISTED),
    "a plot changed": (lambda t: append_bytes(t.attempt("data") / "plots" / "loss.svg"), SHOWN),
    "gate.json changed": (lambda t: append_bytes(gate_folder(t.run_dir, "train", 1) / "gate.json"), SHOWN),
    "gate.json gone": (lambda t: (gate_folder(t.run_dir, "train", 2) / "gate.json").unlink(), SHOWN),
    "gate.json of another round": (
        lambda t: swap(
            gate_folder(t.run_dir, "train", 1) / "gate.json", gate_folder(t.run_dir, "train", 2) / "gate.json"
        ),
        SHOWN,
    ),
    "every proposal changed": (
        lambda t: [append_bytes(p) for p in sorted((t.run_dir / "proposals").iterdir())],
        PROPOSALS,
    ),
    "a released file changed": (lambda t: append_bytes(t.run_dir / "release" / "weights.bin"), RELEASED),
    "a released file gone": (lambda t: (t.run_dir / "release" / "weights.bin").unlink(), RELEASED),
    "a released file added": (lambda t: (t.run_dir / "release" / "extra.py").write_text("x"), RELEASED),
    "an attempt's proposal changed": (
        lambda t: (t.attempt("data") / "proposal.json").write_bytes(
            next(iter(sorted((t.run_dir / "proposals").iterdir()))).read_bytes().replace(b'"seed"', b'"sead"')
        ),
        DOCUMENTS,
    ),
    "an attempt's gate of another gate": (
        lambda t: shutil.copy(gate_folder(t.run_dir, "train", 2) / "gate.json", t.attempt("data") / "gate.json"),
        DOCUMENTS,
    ),
    "the reports of two stages swapped": (
        lambda t: swap(t.attempt("data") / "report.md", t.attempt("train", 2) / "report.md"),
        DOCUMENTS,
    ),
    "the evidence of two stages swapped": (
        lambda t: swap(t.attempt("data") / "evidence.json", t.attempt("dry_run") / "evidence.json"),
        DOCUMENTS,
    ),
    "a hidden file added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / ".hidden").write_text("x"),
        UNLISTED,
    ),
    "a dangling link added among the artifacts": (
        lambda t: (t.attempt("data") / "artifacts" / "link").symlink_to("/nowhere"),
        UNLISTED,
    ),
    "gate.json made a link": (
        lambda t: relink(gate_folder(t.run_dir, "train", 1) / "gate.json"),
        SHOWN,
    ),
    "the artifacts' folder made a link": (lambda t: relink_folder(t.attempt("data") / "artifacts"), ARTIFACTS),
    "an attempt's folder made a link": (lambda t: relink_folder(t.attempt("data")), DOCUMENTS),
    "an attempt's folder renumbered": (
        lambda t: t.attempt("dry_run").rename(t.attempt("dry_run", 7)),
        FOLDERS,
    ),
    "the release manifest changed": (lambda t: append_bytes(t.run_dir / "release" / "manifest.json"), MANIFEST),
    "an attempt's folder gone": (lambda t: shutil.rmtree(t.attempt("dry_run")), FOLDERS),
    "an attempt's folder added": (lambda t: shutil.copytree(t.attempt("data"), t.attempt("data", 2)), FOLDERS),
    "a gate's folder added": (
        lambda t: shutil.copytree(gate_folder(t.run_dir, "train", 2), gate_folder(t.run_dir, "train", 3)),
        GATES,
    ),
    # the chain built anew, with everything beside it
    "rebuilt: a decision by somebody else": (rebuilt("decision.recorded", decision(actor="intruder")), ALLOWED),
    "rebuilt: a decision by the agent": (rebuilt("decision.recorded", decision(actor="agent")), ALLOWED),
    "rebuilt: a homoglyph of an approver": (rebuilt("decision.recorded", decision(actor="m\u0435")), ALLOWED),
    "rebuilt: recorded by one, decided by another": (
        rebuilt("decision.recorded", lambda b: b.update(actor="you")),
        ALLOWED,
    ),
    "rebuilt: an unauthenticated decision without solo": (
        rebuilt("decision.recorded", decision(authentication="unauthenticated")),
        ALLOWED,
    ),
    "rebuilt: an override taken out": (rebuilt("decision.recorded", decision(override=False), index=-2), ALLOWED),
    "rebuilt: an override by who may not": (rebuilt("decision.recorded", decision(actor="you"), index=-2), ALLOWED),
    "rebuilt: self-approval hidden": (rebuilt("decision.recorded", decision(self_approved=True)), ALLOWED),
    "rebuilt: a decision on another digest": (rebuilt("decision.recorded", decision(digest="b" * 64)), NAMED),
    "rebuilt: a decision of another run": (rebuilt("decision.recorded", decision(run="r0")), NAMED),
    "rebuilt: a decision before its gate": (reorder, NAMED),
    "rebuilt: a decision replayed": (double, ONCE),
    "rebuilt: a decision left out": (without("decision.recorded"), ORDER),
    "rebuilt: a gate left out": (without("gate.opened"), ORDER),
    "rebuilt: a rework made an approval": (
        rebuilt("decision.recorded", decision(choice="approve"), index=3),
        ORDER,
    ),
    "rebuilt: a reject at the end": (rebuilt("decision.recorded", decision(choice="reject"), index=-1), ORDER),
    "rebuilt: other parameters ran": (rebuilt("attempt.reserved", payload(parameters="b" * 64)), ORDER),
    "rebuilt: a failure left out": (without("attempt.failed"), ORDER),
    "rebuilt: a reservation left out": (without("attempt.reserved"), ATTEMPTS),
    "rebuilt: verdicts left out": (without("verdicts.recorded"), ATTEMPTS),
    "rebuilt: a publication left out": (without("attempt.published"), FOLDERS),
    "rebuilt: the release left out": (without("release.published"), WHOLE),
    "rebuilt: the end left out": (without("run.finished"), TERMINAL),
    "rebuilt: a failed criterion made to pass": (
        rebuilt(
            "verdicts.recorded",
            lambda b: b["payload"]["verdicts"][0].update(passed=True),
            index=-2,
        ),
        VERDICTS,
    ),
    "rebuilt: a gate's warning taken off": (rebuilt("gate.opened", payload(blocked=False), index=-2), BLOCKED),
    "rebuilt: evidence changed together with its event": (forge_evidence_and_chain, VERDICTS),
    "rebuilt: another proposal under the gate": (rebuilt("proposal.made", payload(proposal="b" * 64)), OWN),
    "rebuilt: inputs after differ": (
        rebuilt("inputs.hashed", payload(inputs={"raw:orders.csv": "b" * 64}), index=1),
        INPUTS,
    ),
    "rebuilt: edits changed": (
        rebuilt("decision.recorded", decision(edits={"training.lr": 0.9}), index=4),
        PROPOSALS,
    ),
    "rebuilt: an event of a stage that leads elsewhere": (
        rebuilt("attempt.failed", payload(stage="../../elsewhere")),
        READS,
    ),
    "rebuilt: a decision moved to another gate": (
        rebuilt("decision.recorded", decision(gate="release"), index=0),
        NAMED,
    ),
    "rebuilt: a decision moved to another round": (rebuilt("decision.recorded", decision(round=9)), NAMED),
    "rebuilt: the approver's name in capitals": (rebuilt("decision.recorded", decision(actor="Me")), ALLOWED),
    "rebuilt: the approver's name with a space": (rebuilt("decision.recorded", decision(actor="me ")), ALLOWED),
    "rebuilt: the approver's name with something unseen": (
        rebuilt("decision.recorded", decision(actor="me\u200b")),
        ALLOWED,
    ),
    "rebuilt: the approver's name in fullwidth letters": (
        rebuilt("decision.recorded", decision(actor="\uff4d\uff45")),
        ALLOWED,
    ),
    "rebuilt: a rework without its reason": (
        rebuilt("decision.recorded", decision(comment=""), index=3),
        ALLOWED,
    ),
    "rebuilt: an override without its reason": (rebuilt("decision.recorded", decision(comment=""), index=-2), ALLOWED),
    "rebuilt: a signature claimed": (
        rebuilt("decision.recorded", decision(authentication="ssh_signature")),
        SIGNED,
    ),
    "rebuilt: another policy": (rebuilt("run.created", payload(policy="b" * 64)), POLICY),
    "rebuilt: another spec": (rebuilt("run.created", payload(spec="b" * 64)), FROZEN),
    "rebuilt: another beginning": (without("run.created"), BEGINS),
    "rebuilt: the policy widened with its event": (widen_policy_and_chain, OWN),
    "rebuilt: a gate opened on another digest": (rebuilt("gate.opened", payload(digest="b" * 64)), SHOWN),
    "rebuilt: another manifest": (rebuilt("release.published", payload(manifest="b" * 64)), MANIFEST),
    "rebuilt: other evidence": (rebuilt("attempt.published", payload(evidence="b" * 64)), DOCUMENTS),
    "rebuilt: another report": (rebuilt("attempt.published", payload(report="b" * 64)), DOCUMENTS),
    "rebuilt: a stage published that never ran": (
        rebuilt("attempt.published", payload(attempt=9)),
        ATTEMPTS,
    ),
    "rebuilt: an end before the release": (end_first, TERMINAL),
    "rebuilt: a second beginning": (twice("run.created"), BEGINS),
    "rebuilt: an event of no kind": (rebuilt("attempt.failed", lambda b: b["payload"].pop("error")), READS),
    "rebuilt: a time that is none": (rebuilt_at("yesterday"), READS),
    "rebuilt: a release from elsewhere": (rebuilt("release.published", payload(folder="../../other")), MANIFEST),
}


def test_the_untouched_run_passes(target: Target):
    assert failed(target) == set()


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_manipulation_is_found_where_it_belongs(target: Target, name: str):
    manipulate, expected = CATALOGUE[name]
    manipulate(target)
    assert expected in failed(target)


@pytest.mark.parametrize(
    "manipulate",
    [
        lambda t: truncate(t, rows_too=True),
        rebuilt("decision.recorded", decision(comment="I never said this")),
        rebuilt("run.created", lambda b: b.update(at=str(datetime.fromisoformat(b["at"]) - timedelta(days=1)))),
    ],
    ids=["the tail cut and the run's row with it", "a comment put into a mouth", "an earlier beginning"],
)
def test_what_is_consistent_in_itself_is_found_by_the_anchor_alone(
    finished: RunMaker, target: Target, tmp_path: Path, manipulate: Manipulation
):
    kept = tmp_path / "elsewhere" / "anchor.json"
    anchor(finished.ledger, "r1", kept)
    assert failed(target, kept) == set()
    manipulate(target)
    if (target.run_dir / "release").exists() and "release.published" not in kinds(target):
        shutil.rmtree(target.run_dir / "release")
    assert failed(target) == set()
    assert failed(target, kept) == {("completeness", "the head equals the anchor")}


def kinds(target: Target) -> set[str]:
    connection = sqlite3.connect(target.database)
    found = {kind for (kind,) in connection.execute("SELECT kind FROM events")}
    connection.close()
    return found
