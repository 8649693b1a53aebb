"""Migrations of the ledger's tables, run at opening; named, ordered, recorded in `alembic_version`."""
