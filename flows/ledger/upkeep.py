"""What was cleaned up, removed or moved: a hash chain per project, beside the chains of its runs.

Runs that have ended take no event; what happens to their files afterwards is recorded here.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select

from flows.ledger.chain import Stored, as_stored, genesis, opened, seal
from flows.ledger.engine import reading, writing
from flows.ledger.schema import upkeep
from flows.ledger.store import Ledger
from specs.errors import InputError
from specs.events import Event, Payload


def chain_of(project: str) -> str:
    """The name of a project's chain; it stands where a run's id stands in the chain of a run."""
    return f"upkeep of {project}"


def record_upkeep(ledger: Ledger, project: str, payload: Payload, actor: str) -> Event:
    """One more entry of a project. Raises `InputError` without an actor."""
    if not actor.strip():
        raise InputError("an event needs an actor")
    chain = chain_of(project)
    with writing(ledger.engine) as connection:
        if connection.dialect.name == "postgresql":  # SQLite's writers wait for each other already
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(chain))))
        last = connection.execute(
            select(upkeep).where(upkeep.c.chain == chain).order_by(upkeep.c.sequence.desc()).limit(1)
        ).first()
        sequence, head = (last.sequence + 1, last.hash) if last else (1, genesis(chain))
        now = ledger.now_in(connection)
        stored = seal(chain, sequence, payload.kind, actor, now, payload.model_dump(mode="json"), head)
        fields = vars(stored) | {"chain": stored.run}
        fields.pop("run")
        connection.execute(insert(upkeep).values(fields))
        return opened(stored)


def stored_upkeep(ledger: Ledger, project: str) -> list[Stored]:
    """The rows of a project's chain as they are stored, for verification."""
    with reading(ledger.engine) as connection:
        return _rows(connection, chain_of(project))


def upkeep_of(ledger: Ledger, project: str) -> list[Event]:
    """Every entry of a project in order."""
    return [opened(row) for row in stored_upkeep(ledger, project)]


def _rows(connection: Connection, chain: str) -> list[Stored]:
    query = select(upkeep).where(upkeep.c.chain == chain).order_by(upkeep.c.sequence)
    return [
        as_stored(row.chain, row.sequence, row.kind, row.actor, row.at, row.body, row.hash)
        for row in connection.execute(query)
    ]
