"""The tables. `events`, `gates`, `decisions` and `upkeep` are append-only by trigger; `runs` and `leases` change."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)

from flows.ledger.rows import HEAD

__all__ = ["APPEND_ONLY", "HEAD", "decisions", "events", "gates", "leases", "metadata", "runs", "upkeep"]

APPEND_ONLY = ("events", "gates", "decisions", "upkeep")

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("run", String(128), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("stage", String(64), nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("project_dir", String(4096), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("head", String(64), nullable=False),
    Column("open", Boolean, nullable=False),
    Column("terminal", Boolean, nullable=False),
)
Index("runs_by_project", runs.c.project, runs.c.created_at)
Index("runs_by_state", runs.c.state)
Index(
    "one_open_run_per_project",
    runs.c.project,
    unique=True,
    sqlite_where=text("open = 1"),
    postgresql_where=text("open"),
)

events = Table(
    "events",
    metadata,
    Column("run", String(128), ForeignKey("runs.run"), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("actor", String(256), nullable=False),
    Column("at", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("run", "sequence"),
)

gates = Table(
    "gates",
    metadata,
    Column("run", String(128), ForeignKey("runs.run"), nullable=False),
    Column("gate", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("sequence", Integer, nullable=False),
    PrimaryKeyConstraint("run", "gate", "round"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("run", String(128), ForeignKey("runs.run"), nullable=False),
    Column("gate", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("choice", String(16), nullable=False),
    Column("actor", String(256), nullable=False),
    Column("at", String(32), nullable=False),
    Column("sequence", Integer, nullable=False),
    PrimaryKeyConstraint("run", "gate", "round"),
)

leases = Table(
    "leases",
    metadata,
    Column("run", String(128), ForeignKey("runs.run"), primary_key=True),
    Column("fence", Integer, nullable=False),
    Column("host", String(256), nullable=False),
    Column("boot", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_start", String(64), nullable=False),
    Column("taken_at", String(32), nullable=False),
    Column("released", Boolean, nullable=False),
    Column("seen_at", String(32), nullable=True),
)

upkeep = Table(
    "upkeep",
    metadata,
    Column("chain", String(128), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("actor", String(256), nullable=False),
    Column("at", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("hash", String(64), nullable=False),
    PrimaryKeyConstraint("chain", "sequence"),
)
