"""The ledger: append-only, hash-chained record of every run, in SQLite or PostgreSQL. It decides; Prefect mirrors."""

from flows.ledger.lease import Lease, Owner
from flows.ledger.store import Ledger, RunRow

__all__ = ["Lease", "Ledger", "Owner", "RunRow"]
