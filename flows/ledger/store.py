"""The ledger's operations. Each is one transaction: what it says happened, happened wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, RowMapping, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from flows import folding
from flows.ledger.chain import Stored, genesis, opened, seal, timestamp
from flows.ledger.engine import connect, reading, writing
from flows.ledger.lease import Holding, Lease, Owner, this_process
from flows.ledger.rows import RunRow, run_row
from flows.ledger.schema import decisions, events, gates, leases, runs
from flows.run_state import RunState
from specs.decisions import Decision
from specs.errors import DecisionRefused, InputError, LeaseHeld, Refused, RunOpen
from specs.events import (
    TERMINAL_KINDS,
    DecisionRecorded,
    Event,
    GateOpened,
    LeaseTaken,
    Payload,
    RunCreated,
)

Clock = Callable[[], datetime]
Judge = Callable[[RunState, datetime], tuple[Payload, str]]
OWN_ACTOR = "gatewright"


class MovedError(Exception):
    """Something was recorded in between: whoever was about to record something looks again."""


class Ledger:
    """Events, gates, decisions and leases of every run of a project, or of a team's projects."""

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self.engine = engine
        self._clock = clock

    @classmethod
    def open(cls, url_or_path: str | Path, clock: Clock | None = None) -> Ledger:
        """Open or create a ledger and bring its tables up to date. `clock` replaces the database's, for tests."""
        return cls(connect(url_or_path), clock)

    def close(self) -> None:
        """Give the database's handles back."""
        self.engine.dispose()

    def now(self) -> datetime:
        """The database's clock; SQLite runs in this process, so that its clock is this machine's."""
        with reading(self.engine) as connection:
            return self.now_in(connection)

    def now_in(self, connection: Connection) -> datetime:
        """The same inside a transaction."""
        if self._clock:
            return self._clock()
        if connection.dialect.name == "sqlite":
            return datetime.now(UTC)
        now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return now

    # ---- reading

    def events(self, run: str) -> list[Event]:
        """Every event of a run in order. Raises `InputError` for a run that this ledger does not know."""
        return [opened(row) for row in self.stored(run)]

    def stored(self, run: str) -> list[Stored]:
        """The rows of a run's events as they are stored, for verification."""
        with reading(self.engine) as connection:
            self._row(connection, run)
            rows = connection.execute(select(events).where(events.c.run == run).order_by(events.c.sequence))
            return [_stored(row) for row in rows]

    def runs(
        self, project: str | None = None, *, states: Collection[str] | None = None, limit: int | None = None
    ) -> list[RunRow]:
        """The runs, newest first; of one project or of all, in some states, the newest `limit` of them."""
        query = select(runs).order_by(runs.c.created_at.desc(), runs.c.run.desc()).limit(limit)
        if project is not None:
            query = query.where(runs.c.project == project)
        if states is not None:
            query = query.where(runs.c.state.in_(states))
        with reading(self.engine) as connection:
            return [run_row(dict(row)) for row in connection.execute(query).mappings()]

    def knows(self, run: str) -> bool:
        """Whether this ledger records a run."""
        with reading(self.engine) as connection:
            return connection.execute(select(runs.c.run).where(runs.c.run == run)).first() is not None

    def run(self, run: str) -> RunRow:
        """One run. Raises `InputError` for a run that this ledger does not know."""
        with reading(self.engine) as connection:
            return run_row(dict(self._row(connection, run)))

    def head(self, run: str) -> str:
        """The hash of the newest event."""
        with reading(self.engine) as connection:
            return str(self._row(connection, run)["head"])

    def rows_beside(self, run: str) -> dict[str, list[dict[str, object]]]:
        """What the tables beside the chain say of a run: `runs`, `gates`, `decisions`, `leases`."""
        with reading(self.engine) as connection:
            return {
                table.name: [
                    dict(row) for row in connection.execute(select(table).where(table.c.run == run)).mappings()
                ]
                for table in (runs, gates, decisions, leases)
            }

    # ---- appending

    def create_run(self, run: str, payload: RunCreated, project_dir: Path, actor: str) -> Event:
        """The first event of a run. Raises `RunOpen` when the project has an open run.

        A rehearsal does not stand in the way of a run in earnest, and begins beside one: it is not the open run.
        """
        with writing(self.engine) as connection:
            now = self.now_in(connection)
            if connection.execute(select(runs.c.run).where(runs.c.run == run)).first():
                raise RunOpen(f"run {run} exists already", "choose another --run-id, or go on with `gatewright resume`")
            row = {
                "run": run,
                "project": payload.project,
                "state": folding.moved("running", payload),
                "stage": folding.stage_after("", payload),
                "created_at": timestamp(now),
                "project_dir": str(project_dir),
                "sequence": 0,
                "head": genesis(run),
                "open": payload.rehearsal is None,
                "terminal": False,
            }
            try:
                with connection.begin_nested():
                    connection.execute(insert(runs).values(row))
            except IntegrityError as error:
                raise self._open_run(connection, payload.project) from error
            return self._append(connection, run, payload, actor, now)

    def _open_run(self, connection: Connection, project: str) -> RunOpen:
        query = select(runs.c.run, runs.c.state).where(runs.c.project == project, runs.c.open)
        found = connection.execute(query).first()
        which = f"{found.run} ({found.state})" if found else "another"
        name = found.run if found else "RUN"
        return RunOpen(
            f"project {project} has an open run: {which}",
            f"go on with `gatewright resume {name}`, or end it with `gatewright reject {name}` at its gate",
        )

    def append(self, run: str, payload: Payload, actor: str, fence: int | None = None) -> Event:
        """One more event. Raises `LeaseHeld` for a stale fence and `Refused` after the run's end."""
        return self.append_all(run, [payload], actor, fence)[0]

    def append_all(self, run: str, payloads: Sequence[Payload], actor: str, fence: int | None = None) -> list[Event]:
        """Several events at once: all of them are recorded, or none."""
        for payload in payloads:
            if isinstance(payload, RunCreated | GateOpened | DecisionRecorded | LeaseTaken):
                raise TypeError(f"{payload.kind} has a method of its own")
        with writing(self.engine) as connection:
            self._check_fence(connection, run, fence)
            return [self._append(connection, run, payload, actor, self.now_in(connection)) for payload in payloads]

    def open_gate(
        self, run: str, payload: GateOpened, fence: int | None = None, actor: str = OWN_ACTOR, after: str | None = None
    ) -> Event:
        """Open a gate for a round; opening it again with the same digest returns the first event.

        `after` is the hash of the event that the gate's document names as the newest one. Raises `MovedError` when
        there is a newer one, `Refused` when this round has another digest, or a gate waits that it has to wait for.
        """
        key = {"run": run, "gate": payload.gate, "round": payload.round}
        with writing(self.engine) as connection:
            self._check_fence(connection, run, fence)
            row = self._row(connection, run, lock=True)
            found = connection.execute(select(gates).filter_by(**key)).first()
            if found:
                if found.digest != payload.digest:
                    raise Refused(
                        f"gate {payload.gate} round {payload.round} is open with another content",
                        "gate.json must not change once it is shown; rework opens a new round",
                    )
                return self._event(connection, run, found.sequence)
            decided = select(decisions.c.sequence).where(
                decisions.c.run == gates.c.run, decisions.c.gate == gates.c.gate, decisions.c.round == gates.c.round
            )
            waiting = connection.execute(select(gates).where(gates.c.run == run, ~decided.exists())).first()
            goal = self._fold(connection, run).goals.get(payload.gate) if waiting else None
            if waiting and (goal is None or goal.round != payload.round):
                raise Refused(f"gate {waiting.gate} round {waiting.round} still waits for a decision")
            if after is not None and row["head"] != after:
                raise MovedError(f"run {run} moved while gate {payload.gate} was opened")
            event = self._append(connection, run, payload, actor, self.now_in(connection))
            values = {**key, "digest": payload.digest, "sequence": row["sequence"] + 1}
            connection.execute(insert(gates).values(values))
            return event

    def record_decision(self, decision: Decision, actor: str) -> Event:
        """Record the one decision of a gate's round. Raises `DecisionRefused` when early, late, stale or second.

        The decision, and for a rework the attempts it makes obsolete, are one transaction.
        """
        run, key = decision.run, {"run": decision.run, "gate": decision.gate, "round": decision.round}
        where = f"gate {decision.gate} round {decision.round} of {run}"
        with writing(self.engine) as connection:
            row = self._row(connection, run, lock=True)
            first = connection.execute(select(decisions).filter_by(**key)).first()
            if first:
                raise DecisionRefused(
                    f"{where} was decided already: {first.choice} by {first.actor} at {first.at}",
                    "one decision per gate and round; `gatewright status` shows what comes next",
                )
            if row["terminal"] or row["state"] == "rejected":  # rejected or expired, its terminal record still to come
                raise DecisionRefused(f"run {run} has ended ({row['state']}); it takes no decision", "start a new run")
            gate = connection.execute(select(gates).filter_by(**key)).first()
            if not gate:
                raise DecisionRefused(f"{where} is not open", "wait until it opens: `gatewright status`")
            if gate.digest != decision.digest:
                raise DecisionRefused(
                    f"{where} shows {gate.digest[:12]}, this decision was made on {decision.digest[:12]}",
                    "look at the gate again with `gatewright review`, then decide",
                )
            return self._decide(connection, DecisionRecorded(decision=decision), actor, self.now_in(connection))

    def settle(self, run: str, judge: Judge) -> Event:
        """Record what `judge` makes of the run as it stands and of the clock; nobody writes in between.

        It returns the payload and who says it: a decision that closes the gate, an approval of several, an edit, or
        that the gate expired. What it raises leaves everything as it was.
        """
        with writing(self.engine) as connection:
            self._row(connection, run, lock=True)
            now = self.now_in(connection)
            payload, actor = judge(self._fold(connection, run), now)
            if isinstance(payload, DecisionRecorded):
                return self._decide(connection, payload, actor, now)
            return self._append(connection, run, payload, actor, now)

    def _decide(self, connection: Connection, payload: DecisionRecorded, actor: str, now: datetime) -> Event:
        """The event, its row, which the database takes once, and for a rework what it makes obsolete."""
        decision = payload.decision
        event = self._append(connection, decision.run, payload, actor, now)
        values = {
            "run": decision.run,
            "gate": decision.gate,
            "round": decision.round,
            "digest": decision.digest,
            "choice": decision.choice,
            "actor": actor,
            "at": timestamp(now),
            "sequence": event.sequence,
        }
        connection.execute(insert(decisions).values(values))
        if decision.choice == "rework":
            obsolete = folding.superseded_by(self._fold(connection, decision.run), decision)
            if obsolete:
                self._append(connection, decision.run, obsolete, OWN_ACTOR, now)
        return event

    def _fold(self, connection: Connection, run: str) -> RunState:
        rows = connection.execute(select(events).where(events.c.run == run).order_by(events.c.sequence))
        return folding.fold([opened(_stored(row)) for row in rows])

    def _append(self, connection: Connection, run: str, payload: Payload, actor: str, now: datetime) -> Event:
        row = self._row(connection, run, lock=True)
        if row["terminal"]:
            raise Refused(f"run {run} has ended ({row['state']}); nothing can be added to it", "start a new run")
        if not actor.strip():
            raise InputError("an event needs an actor")
        body = payload.model_dump(mode="json")
        stored = seal(run, row["sequence"] + 1, payload.kind, actor, now, body, row["head"])
        connection.execute(insert(events).values(vars(stored)))
        state = folding.moved(row["state"], payload)
        changes = {
            "sequence": stored.sequence,
            "head": stored.hash,
            "state": state,
            "stage": folding.stage_after(row["stage"], payload),
            "open": bool(row["open"]) and state not in ("finished", "rejected"),
            "terminal": payload.kind in TERMINAL_KINDS,
        }
        connection.execute(update(runs).where(runs.c.run == run).values(changes))
        return opened(stored)

    # ---- lease

    def take_lease(self, run: str, force_dead: bool = True, owner: Owner | None = None, take_over: str = "") -> Lease:
        """Become the one process that works on the run. Raises `LeaseHeld` while another one lives.

        A holder that is gone is taken over and named in the event; `force_dead=False` leaves it. One on another host
        that is silent is taken over only with a reason, `take_over`, which is recorded.
        A process that holds the lease already gets a new fence; its old one is stale from then on.
        """
        owner = owner or this_process()
        with writing(self.engine) as connection:
            row = self._row(connection, run, lock=True)
            if row["terminal"]:
                raise Refused(f"run {run} has ended ({row['state']})", "start a new run")
            held = connection.execute(select(leases).where(leases.c.run == run)).first()
            now = self.now_in(connection)
            before = ""
            if held and not held.released:
                holding = _holding(held)
                if holding.owner != owner:
                    holding.require_gone(now, force_dead, take_over)
                before = str(holding.owner)
            fence = held.fence + 1 if held else 1
            at = timestamp(now)
            values = {**vars(owner), "fence": fence, "taken_at": at, "seen_at": at, "released": False}
            if held:
                connection.execute(update(leases).where(leases.c.run == run).values(values))
            else:
                connection.execute(insert(leases).values({"run": run, **values}))
            reason = take_over if before and before != str(owner) else ""
            taken = LeaseTaken(fence=fence, owner=str(owner), taken_over_from=before, reason=reason)
            self._append(connection, run, taken, OWN_ACTOR, now)
            return Lease(self, run, fence, owner, at, before)

    def lease_holder(self, run: str) -> tuple[Owner, bool] | None:
        """Who holds the run and whether that process may still live; None when nobody does."""
        with reading(self.engine) as connection:
            held = connection.execute(select(leases).where(leases.c.run == run)).first()
            now = self.now_in(connection)
        if not held or held.released:
            return None
        holding = _holding(held)
        return holding.owner, holding.lives(now)

    def renew_lease(self, run: str, fence: int) -> bool:
        """Note that the holder lives. False when the lease was released or another process has taken it."""
        with writing(self.engine) as connection:
            mine = (leases.c.run == run) & (leases.c.fence == fence) & ~leases.c.released
            seen = timestamp(self.now_in(connection))
            return connection.execute(update(leases).where(mine).values(seen_at=seen)).rowcount == 1

    def moved_to(self, project_dir: Path) -> None:
        """Every run of this ledger lies below another folder now, and no process of the old place holds one."""
        with writing(self.engine) as connection:
            connection.execute(update(runs).values(project_dir=str(project_dir)))
            connection.execute(update(leases).values(released=True))

    def check_fence(self, run: str, fence: int) -> None:
        """Raises `LeaseHeld` when `fence` is not the newest of the run, or was released."""
        with reading(self.engine) as connection:
            self._check_fence(connection, run, fence)

    def release_lease(self, run: str, fence: int) -> None:
        """Mark the lease free. Does nothing when another process has taken it."""
        with writing(self.engine) as connection:
            mine = (leases.c.run == run) & (leases.c.fence == fence)
            connection.execute(update(leases).where(mine).values(released=True))

    def _check_fence(self, connection: Connection, run: str, fence: int | None) -> None:
        if fence is None:
            return
        held = connection.execute(select(leases).where(leases.c.run == run).with_for_update()).first()
        if held is None or held.fence != fence or held.released:
            who = (
                f"process {held.pid} on {held.host} took it over" if held and held.fence != fence else "it was released"
            )
            raise LeaseHeld(
                f"this process no longer holds run {run}: {who}", "its work since then is not recorded; see `status`"
            )

    # ---- rows

    def _row(self, connection: Connection, run: str, lock: bool = False) -> RowMapping:
        query = select(runs).where(runs.c.run == run)
        row = connection.execute(query.with_for_update() if lock else query).mappings().first()
        if row is None:
            known = connection.execute(select(runs.c.run).order_by(runs.c.created_at.desc()).limit(5)).scalars().all()
            hint = f"the newest runs are {', '.join(known)}" if known else "start one with `gatewright run`"
            raise InputError(f"there is no run {run!r} in this ledger", hint)
        return row

    def _event(self, connection: Connection, run: str, sequence: int) -> Event:
        query = select(events).where(events.c.run == run, events.c.sequence == sequence)
        return opened(_stored(connection.execute(query).one()))


def _holding(held: Row[Any]) -> Holding:
    """Who holds a lease. Ledgers from before heartbeats know only when it was taken, not when it was last heard of."""
    owner = Owner(held.host, held.boot, held.pid, held.process_start)
    return Holding(held.run, owner, held.taken_at, datetime.fromisoformat(held.seen_at or held.taken_at))


def _stored(row: Row[tuple[object, ...]]) -> Stored:
    return Stored(row.run, row.sequence, row.kind, row.actor, row.at, bytes(row.body), row.hash)
