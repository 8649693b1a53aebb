"""Passwords in the URLs of a spec: left out where it is kept, taken again from `project.yaml` where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specs.secrets import without_password

if TYPE_CHECKING:
    from specs.project import Project


def without_secrets(spec: Project) -> Project:
    """The spec as it may be written: the URLs of ledger, hub mirror and agent without passwords."""
    ledger, mirror, base_url = spec.ledger, spec.hub.mirror, spec.agent.base_url
    changed: dict[str, object] = {}  # only what holds a URL: a copied field counts as written by the person
    if ledger:
        changed["ledger"] = without_password(ledger)
    if mirror:
        changed["hub"] = spec.hub.model_copy(update={"mirror": without_password(mirror)})
    if base_url:
        changed["agent"] = spec.agent.model_copy(update={"base_url": without_password(base_url)})
    return spec.model_copy(update=changed)


def with_credentials(kept: Project, written: Project) -> Project:
    """A kept spec with the passwords that a person wrote, for those URLs that are otherwise the same."""

    def again(without: str | None, url: str | None) -> str | None:
        return url if url is not None and without_password(url) == without else without

    mirror = again(kept.hub.mirror, written.hub.mirror)
    base_url = again(kept.agent.base_url, written.agent.base_url)
    return kept.model_copy(
        update={
            "ledger": again(kept.ledger, written.ledger),
            "hub": kept.hub.model_copy(update={"mirror": mirror}),
            "agent": kept.agent.model_copy(update={"base_url": base_url}),
        }
    )
