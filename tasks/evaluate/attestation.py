"""`attestation.json`: which files were released, from what, with which parameters, and who approved. Pure.

Shaped as an in-toto Statement v1 (github.com/in-toto/attestation). It is not signed in this version and says so:
without a signature it proves that the bundle is consistent with itself, not who made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs.results import Artifact
from tasks.evaluate.release_facts import ReleaseFacts

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:gatewright:release:1"
UNSIGNED = "not signed: it shows that the bundle is consistent with itself, not who made it"


def statement(
    facts: ReleaseFacts, files: Sequence[Artifact], materials: Mapping[str, str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The statement over `files`; `materials` maps a name to a SHA-256, `settings` is settings.json of train."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": f.path, "digest": {"sha256": f.sha256}} for f in files],
        "predicateType": PREDICATE,
        "predicate": {
            "run": facts.run,
            "project": facts.project,
            "base_model": {"name": facts.base_model, "licence": facts.licence or None},
            "method": facts.method,
            "materials": [{"name": name, "digest": {"sha256": materials[name]}} for name in sorted(materials)],
            "parameters": {
                "requested": settings.get("requested", {}),
                "effective": settings.get("effective", {}),
                "fingerprint": settings.get("fingerprint"),
            },
            "versions": settings.get("versions", {}),
            "verdicts": {stage: [v.model_dump() for v in facts.verdicts[stage]] for stage in sorted(facts.verdicts)},
            "approvals": [d.model_dump(mode="json") for d in facts.decisions],
            "ledger_head": facts.ledger_head,
            "signature": UNSIGNED,
        },
    }
