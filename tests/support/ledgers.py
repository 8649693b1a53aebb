"""The first event of a small run."""

from __future__ import annotations

from specs.events import RunCreated

SHA = "a" * 64


def created(project: str = "demo") -> RunCreated:
    """The first event of a run of two stages."""
    return RunCreated(
        project=project, spec=SHA, policy=SHA, environment=SHA, code="1", stages=["data", "dry_run"], solo=True
    )
