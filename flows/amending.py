"""Take project.yaml in anew while a run stands at its first gate: nothing has run, and nothing was approved.

What changed is shown by a new round of that gate and decided there. Policy, stages and names stay as the run began:
whoever edits project.yaml must not make himself approver of a run that is open.
"""

from __future__ import annotations

from typing import Any

from flows.folding import may_amend
from flows.ledger import Ledger
from flows.parents import with_parent
from flows.run_state import RunState
from flows.state import fold
from flows.tokens import account
from flows.workspace import Workspace, frozen_policy, frozen_spec
from specs.added import by_person
from specs.canonical import canonical_bytes, plain, sha256_bytes
from specs.credentials import without_secrets
from specs.errors import InputError, Refused, SpecError
from specs.events import SpecAmended
from specs.files import write_bytes
from specs.loading import load_project
from specs.project import Project
from tasks.models.resolve import with_commit

FIXED = ("project", "ledger", "rehearsal", "parent", "parent_record")
"""Keys that a run keeps, beside its policy and its stages: its first event names them."""


def can_amend(state: RunState) -> bool:
    """Whether a run stands where its spec can be taken in anew: at its first gate, undecided."""
    waits = [gate.name for gate in state.open_gates]
    rehearsed = state.created is not None and state.created.rehearsal is not None
    return bool(waits) and may_amend(state) and not rehearsed and not any(state.graph.before[name] for name in waits)


def amend(workspace: Workspace, ledger: Ledger) -> list[str]:
    """Record the project's spec as the run's, and leave the open gate; returns what changed, as dotted paths.

    Raises `SpecError` with what is wrong in project.yaml, `Refused` for a change that a run cannot take in.
    """
    from tasks.check import check_project

    loaded = load_project(workspace.project_dir)
    report = check_project(loaded, with_model=True)
    if report.problems:
        raise SpecError(report.problems)
    old = frozen_spec(workspace)
    spec = with_commit(with_parent(loaded.spec, workspace.project_dir, ledger), workspace.project_dir, old)
    new = without_secrets(spec)
    changes = differences(plain(old), plain(new))
    _refuse(workspace, old, new, changes)
    lease = ledger.take_lease(workspace.run)
    try:
        if not can_amend(fold(ledger.events(workspace.run))):
            raise InputError(f"run {workspace.run} moved meanwhile", "look where it stands: `gatewright status`")
        data = {"before": (workspace.folder / "spec.json").read_bytes(), "spec": canonical_bytes(new)}
        digests = {name: sha256_bytes(body) for name, body in data.items()}
        for name, body in data.items():
            write_bytes(workspace.folder / "specs" / f"{digests[name]}.json", body)
        ledger.append(workspace.run, SpecAmended(changes=changes, by=account(), **digests), "gatewright", lease.fence)
        settle(workspace, digests["spec"])
    finally:
        lease.release()
    return changes


def settle(workspace: Workspace, digest: str) -> None:
    """Make `spec.json` the spec that the ledger names: a crash may lie between the record and the file."""
    path, kept = workspace.folder / "spec.json", workspace.folder / "specs" / f"{digest}.json"
    if kept.is_file() and sha256_bytes(data := kept.read_bytes()) == digest and path.read_bytes() != data:
        write_bytes(path, data)


def _refuse(workspace: Workspace, old: Project, new: Project, changes: list[str]) -> None:
    anew = "undo that, or end this run with `gatewright reject` and start a new one"
    if new.policy.sha256 != frozen_policy(workspace).sha256:
        raise Refused("project.yaml has another policy than the run, which keeps the one it began with", anew)
    fixed = [path for path in changes if path.split(".")[0] in FIXED]
    if _line(old) != _line(new):
        fixed.append("stages")
    if fixed:
        raise Refused(f"a run that is open cannot take in a change of {', '.join(fixed)}", anew)


def _line(spec: Project) -> Any:
    """What the first event says of the stages: their order, and which a person works on."""
    return spec.graph.order, spec.graph.edges, by_person(spec.added_stages)


def differences(old: Any, new: Any, at: str = "") -> list[str]:
    """Dotted paths of what two documents differ in; a list differs as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [path for k in keys for path in differences(old.get(k), new.get(k), f"{at}.{k}" if at else str(k))]
    return [] if old == new else [at]
