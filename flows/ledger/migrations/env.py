"""Alembic's entry: runs the migrations in the transaction that the ledger opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
