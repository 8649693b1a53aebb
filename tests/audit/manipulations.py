"""What somebody with the files and the database of a run in his hands can do to it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.audit import read_anchor, verify
from flows.gatefiles import attempt_folder
from flows.ledger import Ledger
from flows.ledger.chain import genesis, seal
from specs.canonical import canonical_bytes, sha256_bytes

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
