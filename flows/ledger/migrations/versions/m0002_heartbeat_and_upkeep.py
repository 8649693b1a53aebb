"""When a lease's holder was last heard of; what was cleaned up or removed, in a chain of its own per project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, the table and an index for lists of open gates."""
    op.add_column("leases", sa.Column("seen_at", sa.String(32), nullable=True))
    op.create_index("runs_by_state", "runs", ["state"])
    op.create_table(
        "upkeep",
        sa.Column("chain", sa.String(128), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("chain", "sequence"),
    )
    if op.get_bind().dialect.name == "sqlite":
        for action in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER upkeep_no_{action.lower()} BEFORE {action} ON upkeep "
                "BEGIN SELECT RAISE(ABORT, 'upkeep is append-only'); END"
            )
        return
    op.execute(
        "CREATE TRIGGER upkeep_no_change BEFORE UPDATE OR DELETE ON upkeep "
        "FOR EACH ROW EXECUTE FUNCTION gatewright_append_only()"
    )
    op.execute(
        "CREATE TRIGGER upkeep_no_truncate BEFORE TRUNCATE ON upkeep "
        "FOR EACH STATEMENT EXECUTE FUNCTION gatewright_append_only()"
    )
