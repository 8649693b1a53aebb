"""Runs, events, gates, decisions and leases; triggers that refuse to change what was appended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = ("events", "gates", "decisions")


def _run() -> sa.Column[str]:
    return sa.Column("run", sa.String(128), sa.ForeignKey("runs.run"), nullable=False)


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "runs",
        sa.Column("run", sa.String(128), primary_key=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("project_dir", sa.String(4096), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("terminal", sa.Boolean, nullable=False),
    )
    op.create_index("runs_by_project", "runs", ["project", "created_at"])
    op.create_index(
        "one_open_run_per_project",
        "runs",
        ["project"],
        unique=True,
        sqlite_where=sa.text("open = 1"),
        postgresql_where=sa.text("open"),
    )
    op.create_table(
        "events",
        _run(),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("run", "sequence"),
    )
    op.create_table(
        "gates",
        _run(),
        sa.Column("gate", sa.String(64), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run", "gate", "round"),
    )
    op.create_table(
        "decisions",
        _run(),
        sa.Column("gate", sa.String(64), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("choice", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run", "gate", "round"),
    )
    op.create_table(
        "leases",
        sa.Column("run", sa.String(128), sa.ForeignKey("runs.run"), primary_key=True),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("host", sa.String(256), nullable=False),
        sa.Column("boot", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_start", sa.String(64), nullable=False),
        sa.Column("taken_at", sa.String(32), nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        _sqlite_triggers()
    else:
        _postgresql_triggers()


def _sqlite_triggers() -> None:
    for table in APPEND_ONLY:
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def _postgresql_triggers() -> None:
    op.execute(
        "CREATE FUNCTION gatewright_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION gatewright_append_only()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION gatewright_append_only()"
        )
