"""Signatures under decisions and anchors: each is verified offline, and each forgery is named by the right step."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows import signing
from flows.audit import Anchor, anchor, export, read_anchor, verify, verify_bundle
from specs.canonical import canonical_bytes
from specs.decisions import signed_bytes
from specs.errors import InputError
from specs.policy import Approver, Policy
from tests.audit.catalogue import ALLOWED, NAMED, SIGNED
from tests.audit.manipulations import Target, decision, failed, rebuilt
from tests.support.run_maker import RunMaker

HEAD = ("completeness", "the head equals the anchor")
ANCHOR = ("authority", "the anchor is signed by a known key")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """SSH keys of two approvers and of a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("me", "you", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return {name: folder / name for name in ("me", "you", "stranger")}


def public(key: Path) -> str:
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def signer(key: Path, namespace: str = signing.NAMESPACE) -> Callable[[bytes], str]:
    return lambda data: signing.sign(key, namespace, data)


@pytest.fixture(scope="module")
def signed(keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    """A run whose policy asks for signatures, at its third gate; both people decided."""
    people = [Approver(id=name, keys=[public(keys[name])]) for name in ("me", "you")]
    policy = Policy(solo=False, authentication="ssh_signature", approvers=people)
    maker = RunMaker(tmp_path_factory.mktemp("signed") / "project", policy=policy).start()
    for person in ("me", "you"):
        maker.until_gate()
        maker.decide(actor=person, sign=signer(keys[person]))
    return maker.until_gate()


@pytest.fixture
def target(signed: RunMaker, tmp_path: Path) -> Target:
    signed.ledger.close()
    shutil.copytree(signed.project_dir, tmp_path / "project")
    return Target(tmp_path / "project")


def test_signed_decisions_verify_offline(signed: RunMaker, tmp_path: Path):
    export(signed.ledger, "r1", signed.run_dir, tmp_path / "run.zip")
    for report in (verify(signed.ledger, "r1", signed.run_dir), verify_bundle(tmp_path / "run.zip")):
        assert report.ok
        said = {step.check: step.detail for step in report.authority.steps}
        assert said[SIGNED[1]] == "2 signed, 0 not signed"


def resigned(key: str, namespace: str = signing.NAMESPACE, **changes: Any) -> Callable[[Target, dict[str, Path]], None]:
    """Change the first decision and sign what it says now."""

    def manipulate(target: Target, keys: dict[str, Path]) -> None:
        def change(body: dict[str, Any]) -> None:
            decision(**changes)(body)
            made = body["payload"]["decision"]
            made["signature"] = signing.sign(keys[key], namespace, signed_bytes(made))

        rebuilt("decision.recorded", change)(target)

    return manipulate


def changed(**changes: Any) -> Callable[[Target, dict[str, Path]], None]:
    """Change the first decision and leave its signature."""
    return lambda target, _: rebuilt("decision.recorded", decision(**changes))(target)


def exchanged(target: Target, _: dict[str, Path]) -> None:
    """Two signatures by the same person, each under the other's decision."""
    signatures = [target.event("decision.recorded", index)[1]["payload"]["decision"]["signature"] for index in (0, 1)]

    def edit(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        made = [body["payload"]["decision"] for body in bodies if body["kind"] == "decision.recorded"]
        made[0]["signature"], made[1]["signature"] = signatures[1], signatures[0]
        return bodies

    target.rebuild(edit)


FORGERIES: dict[str, tuple[Callable[[Target, dict[str, Path]], None], tuple[str, str]]] = {
    "the signature taken off": (changed(signature=""), SIGNED),
    "the signature and its claim taken off": (changed(signature="", authentication="terminal"), ALLOWED),
    "noise for a signature": (changed(signature="noise"), SIGNED),
    "a comment changed": (changed(comment="I never said this"), SIGNED),
    "the choice changed": (changed(choice="rework"), SIGNED),
    "moved to another gate": (changed(gate="train"), SIGNED),
    "moved to another round": (changed(round=2), SIGNED),
    "moved to another run": (changed(run="r2"), SIGNED),
    "given another digest": (changed(digest="b" * 64), SIGNED),
    "given to another person": (changed(actor="you"), SIGNED),
    "signed by a stranger's key": (resigned("stranger"), SIGNED),
    "signed by the other person's key": (resigned("you"), SIGNED),
    "signed for something else": (resigned("me", namespace="git"), SIGNED),
    "a true decision on another run, replayed": (resigned("me", run="r0"), NAMED),
    "a true decision on another gate, replayed": (resigned("me", gate="release"), NAMED),
    "a homoglyph with a key of his own": (resigned("stranger", actor="m\u0435"), ALLOWED),
    "two signatures exchanged": (exchanged, SIGNED),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_decision_is_found_where_it_belongs(target: Target, keys: dict[str, Path], name: str):
    manipulate, expected = FORGERIES[name]
    manipulate(target, keys)
    assert expected in failed(target)


# ---- anchors


def judged(maker: RunMaker, known: Anchor, *signers: Path) -> tuple[set[tuple[str, str]], str]:
    """The steps that failed, and how much of the anchor's signature was verified."""
    report = verify(maker.ledger, "r1", maker.run_dir, known, [public(key) for key in signers])
    steps = [(name, step) for name, part in report.parts.items() for step in part.steps]
    verified = next(step.verified for _, step in steps if step.check == ANCHOR[1])
    return {(name, step.check) for name, step in steps if not step.ok}, verified


def test_a_signed_anchor_names_its_signer(signed: RunMaker, keys: dict[str, Path], tmp_path: Path):
    anchor(signed.ledger, "r1", tmp_path / "me.json", keys["me"])
    anchor(signed.ledger, "r1", tmp_path / "stranger.json", keys["stranger"])
    mine, strange = (read_anchor(tmp_path / f"{name}.json") for name in ("me", "stranger"))
    assert judged(signed, mine) == (set(), "all")
    assert judged(signed, mine, keys["me"]) == (set(), "all")
    assert judged(signed, mine, keys["you"]) == ({ANCHOR}, "all")
    assert judged(signed, strange) == (set(), "none")
    assert judged(signed, strange, keys["stranger"]) == (set(), "all")
    assert judged(signed, strange, keys["me"], keys["you"]) == ({ANCHOR}, "all")


def test_an_anchor_without_a_signature_is_refused_where_a_signer_is_named(
    signed: RunMaker, keys: dict[str, Path], tmp_path: Path
):
    anchor(signed.ledger, "r1", tmp_path / "anchor.json")
    known = read_anchor(tmp_path / "anchor.json")
    assert json.loads((tmp_path / "anchor.json").read_bytes())["version"] == 1
    assert judged(signed, known) == (set(), "none")
    assert judged(signed, known, keys["me"]) == ({ANCHOR}, "all")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"run": "r2"}, {HEAD, ANCHOR}),
        ({"head": "b" * 64}, {HEAD, ANCHOR}),
        ({"sequence": 3}, {HEAD, ANCHOR}),
        ({"sequence": 999}, {HEAD, ANCHOR}),
        ({"at": "2020-01-01T00:00:00Z"}, {ANCHOR}),
        ({"signature": "noise"}, {ANCHOR}),
    ],
)
def test_a_changed_anchor_is_named(
    signed: RunMaker, keys: dict[str, Path], tmp_path: Path, change: dict[str, Any], expected: set[tuple[str, str]]
):
    path = tmp_path / "anchor.json"
    anchor(signed.ledger, "r1", path, keys["me"])
    path.write_bytes(canonical_bytes({**json.loads(path.read_bytes()), **change}))
    assert judged(signed, read_anchor(path))[0] == expected


def test_the_anchor_of_another_run_is_named(signed: RunMaker, keys: dict[str, Path], tmp_path: Path):
    other = RunMaker(tmp_path / "other", run="r2").start()
    anchor(other.ledger, "r2", tmp_path / "anchor.json", keys["me"])
    assert judged(signed, read_anchor(tmp_path / "anchor.json"))[0] == {HEAD}


def test_a_history_that_went_on_still_holds_its_anchor(tmp_path: Path):
    maker = RunMaker(tmp_path / "project").start()
    anchor(maker.ledger, "r1", tmp_path / "anchor.json")
    maker.until_gate("dry_run")
    report = verify(maker.ledger, "r1", maker.run_dir, read_anchor(tmp_path / "anchor.json"))
    assert report.ok
    assert "events since" in report.completeness.steps[-1].detail


def test_a_signature_on_a_decision_is_none_on_an_anchor(signed: RunMaker, keys: dict[str, Path], tmp_path: Path):
    path = tmp_path / "anchor.json"
    known = anchor(signed.ledger, "r1", path, keys["me"])
    forged = known.model_copy(update={"signature": signing.sign(keys["me"], signing.NAMESPACE, known.signed_bytes())})
    assert judged(signed, forged)[0] == {ANCHOR}


def test_a_key_that_cannot_sign_leaves_no_anchor(signed: RunMaker, tmp_path: Path):
    with pytest.raises(InputError, match="there is no key"):
        anchor(signed.ledger, "r1", tmp_path / "anchor.json", tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
