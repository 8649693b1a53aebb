"""The history of a run for somebody who was not there: list it, tell it, compare it, verify it offline."""

from flows.audit.anchors import Anchor, anchor, read_anchor
from flows.audit.bundle import export
from flows.audit.diff import RunDiff, diff
from flows.audit.history import History, read_history
from flows.audit.report import AuditReport, Part, Step
from flows.audit.story import list_events, show
from flows.audit.verify import verify, verify_bundle

__all__ = [
    "Anchor",
    "AuditReport",
    "History",
    "Part",
    "RunDiff",
    "Step",
    "anchor",
    "diff",
    "export",
    "list_events",
    "read_anchor",
    "read_history",
    "show",
    "verify",
    "verify_bundle",
]
