"""Verify a run or a bundle offline: integrity, completeness and authority apart, in numbered steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows.audit.anchors import Anchor, check_signature
from flows.audit.authority import authority
from flows.audit.completeness import completeness
from flows.audit.history import History, read_history
from flows.audit.integrity import integrity
from flows.audit.report import AuditReport, Checks, Part
from flows.audit.unpacking import BundleFacts, unpacked
from flows.ledger import Ledger


def verify(
    ledger: Ledger, run: str, run_dir: Path, anchor: Anchor | None = None, signers: Sequence[str] = ()
) -> AuditReport:
    """Recompute everything that the ledger and the run's folder allow. Faults are findings, never exceptions.

    `signers` are public keys one of which must have signed the anchor; without them the policy's keys are tried.
    """
    history = read_history(ledger, run, run_dir, anchored_at=anchor.sequence if anchor else 0)
    return judged(history, None, anchor, signers)


def verify_bundle(path: Path, anchor: Anchor | None = None, signers: Sequence[str] = ()) -> AuditReport:
    """The same from a bundle alone: no project, no database, no network.

    Raises `InputError` where there is no bundle, `VerificationFailed` for one that is cut or unsafe to unpack.
    """
    with unpacked(path, anchored_at=anchor.sequence if anchor else 0) as (history, bundle):
        return judged(history, bundle, anchor, signers)


def judged(history: History, bundle: BundleFacts | None, anchor: Anchor | None, signers: Sequence[str]) -> AuditReport:
    """The report on a history that was read."""
    complete = completeness(history, anchor, bundle)
    anchored = ""
    if anchor is not None and complete.steps[-1].ok:
        anchored = f"self-consistent, and unchanged up to event {anchor.sequence} since the anchor was written"
    rights = Checks()
    rights.steps = list(authority(history).steps)
    check_signature(rights, anchor, signers, history.policy())
    parts = [_relative(part, history) for part in (integrity(history, anchored, bundle), complete, rights.part())]
    return AuditReport(integrity=parts[0], completeness=parts[1], authority=parts[2], ok=all(part.ok for part in parts))


def _relative(part: Part, history: History) -> Part:
    """The part with paths as the run has them, wherever its files lie just now."""
    here = f"{history.run_dir}/"
    steps = [step.model_copy(update={"detail": step.detail.replace(here, "")}) for step in part.steps]
    return part.model_copy(update={"steps": steps})
