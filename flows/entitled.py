"""Before a run moves: is everything recorded so far whole, and was each step decided by who was allowed?

Deciding asks the policy before it writes. Whoever writes into the database by hand is asked by nobody, so that the
same rules are asked again of what is written, before a stage runs, a release is made, or somebody decides on top.
"""

from __future__ import annotations

from flows.ledger import Ledger
from flows.workspace import Workspace
from specs.errors import Refused

_SHOWN = 3


def require_entitled(ledger: Ledger, workspace: Workspace) -> None:
    """Raises `Refused` when the chain of a run is broken, or holds what its policy did not allow."""
    faults = not_entitled(ledger, workspace)
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise Refused(
            f"the history of run {workspace.run} does not allow it to go on: {'; '.join(faults[:_SHOWN])}{more}",
            "`gatewright audit verify` says all of it; restore the ledger from a backup, or `gatewright close` the run",
        )


def not_entitled(ledger: Ledger, workspace: Workspace) -> list[str]:
    """Every fault of the chain, and of the steps of authority. Files of stages are compared where they are used."""
    from flows.audit.authority import authority
    from flows.audit.history import read_history
    from flows.audit.report import visible

    history = read_history(ledger, workspace.run, workspace.folder)
    faults = [f"event {fault.sequence}: {fault.what}" for fault in history.chain.faults] + history.unreadable
    steps = authority(history).steps
    return [visible(fault) for fault in faults] + [step.detail for step in steps if not step.ok]
