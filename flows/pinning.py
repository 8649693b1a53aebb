"""A policy pinned outside the project: whoever edits project.yaml cannot make himself approver.

A pin is the digest of a policy, kept in a file that is not in the project: the user's own, or the system's, which
only its administrator writes. A project that has pins runs, and is decided on, under a pinned policy only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from specs.base import Sha256, Strict
from specs.errors import PolicyRefused
from specs.files import write_json
from specs.places import home
from specs.policy import Policy

_NAME = "policy-pins.json"


class Pin(Strict):
    """One policy that a project may have. It holds for the project's name and for its folder, whichever agrees."""

    project: str
    folder: str
    policy: Sha256
    pinned_at: AwareDatetime


class _Pins(Strict):
    format: str = "gatewright-policy-pins"
    version: int = 1
    pins: list[Pin] = Field(default_factory=list)


def own_pins() -> Path:
    """The user's pins."""
    return home() / _NAME


def pin_files() -> list[Path]:
    """Where pins are looked for; each file that knows the project must agree. Nothing configures the system's away."""
    system = Path(os.environ.get("PROGRAMDATA", "C:/ProgramData")) if os.name == "nt" else Path("/etc")
    return [system / "gatewright" / _NAME, own_pins()]


def require_pinned(project: str, folder: Path, policy: Policy, files: Sequence[Path] | None = None) -> bool:
    """Whether the policy is pinned. Raises `PolicyRefused` when the project has pins, and not this one."""
    pinned = False
    for file in pin_files() if files is None else files:
        known = _of(file, project, folder)
        if known and policy.sha256 not in {pin.policy for pin in known}:
            raise PolicyRefused(
                f"the policy of {project} ({policy.sha256[:12]}) is not the one that was pinned "
                f"({', '.join(pin.policy[:12] for pin in known)}) in {file}",
                "restore policy in project.yaml, or let whoever owns that file pin the new one: gatewright policy pin",
            )
        pinned = pinned or bool(known)
    return pinned


def pin_policy(project: str, folder: Path, policy: Policy, replace: bool = False, file: Path | None = None) -> Path:
    """Pin a policy in the user's file, which is returned. Earlier pins stay, for runs that began under them."""
    file = file or own_pins()
    others = [pin for pin in _read(file) if pin.policy != policy.sha256 or not _is(pin, project, folder)]
    if replace:
        others = [pin for pin in others if not _is(pin, project, folder)]
    made = Pin(project=project, folder=str(folder), policy=policy.sha256, pinned_at=datetime.now(UTC))
    write_json(file, _Pins(pins=[*others, made]))
    return file


def unpin(project: str, folder: Path, file: Path | None = None) -> int:
    """Take every pin of a project out of the user's file; returns how many there were."""
    file = file or own_pins()
    known = _read(file)
    kept = [pin for pin in known if not _is(pin, project, folder)]
    if len(kept) != len(known):
        write_json(file, _Pins(pins=kept))
    return len(known) - len(kept)


def _of(file: Path, project: str, folder: Path) -> list[Pin]:
    return [pin for pin in _read(file) if _is(pin, project, folder)]


def _is(pin: Pin, project: str, folder: Path) -> bool:
    return pin.project == project or pin.folder == str(folder)


def _read(file: Path) -> list[Pin]:
    try:
        return _Pins.model_validate_json(file.read_bytes()).pins
    except FileNotFoundError as error:
        if not file.is_symlink():  # a link that leads nowhere hides pins
            return []
        raise PolicyRefused(f"{file} is a link that leads nowhere", "restore it, or ask its owner") from error
    except (OSError, ValidationError) as error:
        raise PolicyRefused(
            f"{file} cannot be read, so that no policy can be compared with its pin", "restore it, or ask its owner"
        ) from error
