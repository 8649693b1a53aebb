"""Verify a run offline: integrity, completeness and authority apart, in numbered steps."""

from __future__ import annotations

from pathlib import Path

from flows.audit.authority import authority
from flows.audit.bundle import Anchor
from flows.audit.completeness import completeness
from flows.audit.history import read_history
from flows.audit.integrity import integrity
from flows.audit.report import AuditReport
from flows.ledger import Ledger


def verify(ledger: Ledger, run: str, run_dir: Path, anchor: Anchor | None = None) -> AuditReport:
    """Recompute everything that the ledger and the run's folder allow. Faults are findings, never exceptions."""
    history = read_history(ledger, run, run_dir)
    complete = completeness(history, anchor)
    anchored = ""
    if anchor is not None and complete.steps[-1].ok:
        anchored = f"self-consistent, and unchanged up to event {anchor.sequence} since the anchor was written"
    parts = integrity(history, anchored), complete, authority(history)
    return AuditReport(integrity=parts[0], completeness=parts[1], authority=parts[2], ok=all(part.ok for part in parts))
