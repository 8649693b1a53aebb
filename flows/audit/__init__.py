"""The history of a run for somebody who was not there: list it, tell it, verify it offline."""

from flows.audit.bundle import anchor, export, read_anchor
from flows.audit.report import AuditReport, Part, Step
from flows.audit.story import list_events, show
from flows.audit.verify import verify

__all__ = ["AuditReport", "Part", "Step", "anchor", "export", "list_events", "read_anchor", "show", "verify"]
