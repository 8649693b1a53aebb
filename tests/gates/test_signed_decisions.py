"""A signed decision holds for exactly what was decided, by a key of that person, when it is recorded and ever after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows import signing
from flows.audit import verify
from specs.decisions import signed_bytes
from specs.errors import InputError, PolicyRefused, Refused, SignatureRefused
from specs.policy import Approver, GateSettings, Policy
from tests.policy.test_signing import key, public
from tests.support.run_maker import RunMaker

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")

SIGNED = "each signature is by a key of its person, over exactly what was decided"
ALLOWED = "each decision was allowed by the policy"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: key(folder, name) for name in ("li", "wang", "stranger")}


@pytest.fixture
def maker(keys: dict[str, Path], tmp_path: Path) -> RunMaker:
    people = [Approver(id=name, keys=[public(keys[name])]) for name in ("li", "wang")]
    policy = Policy(solo=False, approvers=people, gates={"data": GateSettings(authentication="ssh_signature")})
    return RunMaker(tmp_path, policy=policy).start().until_gate("data")


def signer(path: Path, namespace: str = signing.NAMESPACE) -> Callable[[bytes], str]:
    return lambda data: signing.sign(path, namespace, data)


def faults(maker: RunMaker) -> dict[str, str]:
    report = verify(maker.ledger, "r1", maker.run_dir)
    parts = (report.integrity, report.completeness, report.authority)
    return {step.check: step.detail for part in parts for step in part.steps if not step.ok}


def refused(kind: type[Refused], maker: RunMaker, **more: Any) -> str:
    before = len(maker.ledger.events("r1"))
    with pytest.raises(kind) as caught:
        maker.decide(**more)
    assert (caught.value.exit_code, len(maker.ledger.events("r1"))) == (6, before)
    return caught.value.message


def test_the_signature_covers_the_whole_stored_decision_and_verifies_offline(maker: RunMaker, keys: dict[str, Path]):
    assert "needs ssh_signature, and this decision is terminal" in refused(PolicyRefused, maker, actor="li")
    assert "needs ssh_signature, and this decision is token" in refused(
        PolicyRefused, maker, actor="li", authentication="token"
    )
    event = maker.decide(actor="li", comment="good — 好", sign=signer(keys["li"]))
    stored = event.payload["decision"]
    assert (stored["authentication"], stored["comment"]) == ("ssh_signature", "good — 好")
    signing.verify([public(keys["li"])], "li", signing.NAMESPACE, signed_bytes(stored), stored["signature"])
    for name in set(stored) - {"signature"}:
        changed = {**stored, name: "x"}
        with pytest.raises(SignatureRefused):
            signing.verify([public(keys["li"])], "li", signing.NAMESPACE, signed_bytes(changed), stored["signature"])
    assert faults(maker) == {}


def test_a_key_of_somebody_else_or_for_something_else_is_refused(maker: RunMaker, keys: dict[str, Path]):
    assert "not listed for 'li'" in refused(SignatureRefused, maker, actor="li", sign=signer(keys["wang"]))
    assert "not listed for 'li'" in refused(SignatureRefused, maker, actor="li", sign=signer(keys["stranger"]))
    assert "made for 'git'" in refused(SignatureRefused, maker, actor="li", sign=signer(keys["li"], "git"))
    assert "is not an approver" in refused(PolicyRefused, maker, actor="l\u0456", sign=signer(keys["li"]))


def test_a_signed_edit_is_confirmed_with_a_signature_of_its_own(maker: RunMaker, keys: dict[str, Path]):
    edit = maker.decide(actor="li", edits={"seed": "7"}, sign=signer(keys["li"]))
    assert edit.payload["decision"]["edits"] == {"seed": 7}
    maker.decide(actor="wang", expected_digest=maker.shown, sign=signer(keys["wang"]))
    assert faults(maker) == {}


def test_signing_where_nobody_asked_for_it_counts_as_signed(maker: RunMaker, keys: dict[str, Path]):
    maker.decide(actor="li", sign=signer(keys["li"]))
    maker.until_gate("dry_run", by=("li",))
    assert (
        maker.decide(actor="wang", sign=signer(keys["wang"])).payload["decision"]["authentication"] == "ssh_signature"
    )
    assert faults(maker) == {}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda d: d.update(comment="changed"), SIGNED),
        (lambda d: d.update(actor="wang"), SIGNED),
        (lambda d: d.update(signature=""), SIGNED),
        (lambda d: d.update(override=True), SIGNED),
        (lambda d: d.update(signature="", authentication="terminal"), ALLOWED),
        (lambda d: d.update(authentication="token"), SIGNED),
        (lambda d: d.update(schema_version=1), SIGNED),
        (lambda d: d.update(requests={"seed": 1}), SIGNED),
    ],
)
def test_a_history_rebuilt_with_another_decision_is_found(
    maker: RunMaker, keys: dict[str, Path], change: Callable[[dict[str, Any]], None], check: str
):
    from tests.audit.test_tampering import Target

    maker.decide(actor="li", sign=signer(keys["li"]))
    maker.ledger.close()

    def rebuilt(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for body in bodies:
            if body["kind"] == "decision.recorded":
                change(body["payload"]["decision"])
                body["actor"] = body["payload"]["decision"]["actor"]
        return bodies

    Target(maker.project_dir).rebuild(rebuilt)
    assert check in faults(maker)


def test_a_signature_replayed_in_another_run_is_found(maker: RunMaker, keys: dict[str, Path], tmp_path: Path):
    signature = maker.decide(actor="li", sign=signer(keys["li"])).payload["decision"]["signature"]
    other = RunMaker(tmp_path / "other", policy=maker.policy).start().until_gate("data")
    assert "does not hold" in refused(SignatureRefused, other, actor="li", comment="x", sign=lambda data: signature)


def test_keys_changed_later_do_not_change_what_was_valid_then(maker: RunMaker, keys: dict[str, Path]):
    maker.decide(actor="li", sign=signer(keys["li"]))
    path = maker.run_dir / "policy.json"
    frozen = path.read_bytes()
    document = json.loads(frozen)
    document["approvers"][0]["keys"] = [" ".join(public(keys["stranger"]).split()[:2])]
    path.write_text(json.dumps(document))
    assert "the policy is the one that the run began with" in faults(maker)
    path.write_bytes(frozen)
    assert faults(maker) == {}


def test_a_key_that_cannot_sign_records_nothing(maker: RunMaker, tmp_path: Path):
    before = len(maker.ledger.events("r1"))
    with pytest.raises(InputError, match="there is no key"):
        maker.decide(actor="li", sign=signer(tmp_path / "none"))
    assert len(maker.ledger.events("r1")) == before
