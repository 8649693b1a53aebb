"""The release bundle holds exactly the evaluated weights, says who approved, and shows every later change."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.audit.release import armoured, sign_release, signer_of, verify_release_folder
from flows.audit.report import Part
from flows.releasing import SIGNING_KEY, release_signer
from specs.canonical import canonical_bytes, digest_folder, sha256_file
from specs.errors import InputError, Refused, VerificationFailed
from tasks.evaluate.release import build_release
from tasks.evaluate.release_check import verify_release
from tasks.evaluate.release_facts import ReleaseExpectation, ReleaseFacts
from tasks.training.models import load_base, load_trained
from tests.support.release_facts import BASE_SHA256, attempt, make_facts


@pytest.fixture
def facts(tmp_path: Path) -> ReleaseFacts:
    """A finished run, decided by one person whose name was only claimed."""
    return make_facts(tmp_path, {"adapter_model.safetensors": b"weights", "adapter_config.json": b"{}"})


def test_a_bundle_holds_the_evaluated_weights_and_verifies(facts, tmp_path):
    target = tmp_path / "release"
    manifest = build_release(target, facts)
    assert manifest == sha256_file(target / "manifest.json")
    assert verify_release(target) == []
    assert digest_folder(target / "adapter") == digest_folder(facts.train / "artifacts" / "adapter")
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()) == [
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "attestation.json",
        "evidence/data.json",
        "evidence/evaluate.json",
        "evidence/evaluated.json",
        "evidence/train.json",
        "manifest.json",
        "model_card.md",
    ]
    assert not list(tmp_path.glob("release.partial*"))


def test_equal_facts_give_equal_bytes(facts, tmp_path):
    assert build_release(tmp_path / "one", facts) == build_release(tmp_path / "two", facts)


def test_the_attestation_names_files_materials_approvals_and_that_it_is_unsigned(facts, tmp_path):
    build_release(tmp_path / "release", facts)
    found = json.loads((tmp_path / "release" / "attestation.json").read_bytes())
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    subject = {s["name"]: s["digest"]["sha256"] for s in found["subject"]}
    weights = tmp_path / "release" / "adapter" / "adapter_model.safetensors"
    assert subject["adapter/adapter_model.safetensors"] == sha256_file(weights)
    predicate = found["predicate"]
    materials = {m["name"]: m["digest"]["sha256"] for m in predicate["materials"]}
    assert materials["base_model"] == BASE_SHA256
    assert materials["evidence/train"] == sha256_file(facts.train / "evidence.json")
    assert predicate["parameters"]["requested"] == {"lr": 2e-4}
    assert predicate["approvals"][0]["authentication"] == "unauthenticated"
    assert predicate["approvals"][0]["self_approved"] is True
    assert predicate["signature"].startswith("not signed")


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", ["**Self-approved:**", "**Unauthenticated:**", "not signed", "Apache-2.0", "no (warning)"]),
        ("zh", ["**自批：**", "**未认证：**", "未签名", "Apache-2.0", "否（警告）"]),
    ],
)
def test_the_card_says_what_is_weak_in_the_projects_language(facts, tmp_path, language, said):
    build_release(tmp_path / "release", facts.model_copy(update={"language": language}))
    card = (tmp_path / "release" / "model_card.md").read_text(encoding="utf-8")
    assert [text for text in said if text not in card] == []
    loss, rows = ("3.46 nats/词元", "612 行") if language == "zh" else ("3.46 nats/token", "612 rows")
    assert f"| {loss} |" in card
    assert "| 43.8 % | >= 50 % |" in card
    assert f"| {rows} |" in card
    assert ("nats/token" in card or "samples" in card) == (language == "en")  # no English unit in a Chinese card
    assert "li\\|wei" in card


def test_the_card_does_not_say_self_approved_of_two_authenticated_people(facts, tmp_path):
    decision = facts.decisions[0].model_copy(update={"authentication": "terminal", "self_approved": False})
    build_release(tmp_path / "release", facts.model_copy(update={"decisions": [decision]}))
    card = (tmp_path / "release" / "model_card.md").read_text(encoding="utf-8")
    assert "Self-approved" not in card
    assert "Unauthenticated" not in card
    assert "confirmed at a terminal" in card


def append(name: str) -> Callable[[Path], None]:
    """A manipulation: one byte more."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + b" ")


def rebuilt_manifest(folder: Path) -> None:
    """Other weights, with a manifest and an attestation made to fit."""
    weights = folder / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(b"others!")
    for name, key in (("manifest.json", "files"), ("attestation.json", "subject")):
        text = (folder / name).read_text()
        old = json.loads((folder / "evidence" / "train.json").read_bytes())
        recorded = next(a["sha256"] for a in old["artifacts"] if a["path"].endswith(weights.name))
        assert recorded in text, key
        (folder / name).write_text(text.replace(recorded, sha256_file(weights)))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for entry in manifest["files"]:
        if entry["path"] == "attestation.json":
            entry["sha256"] = sha256_file(folder / "attestation.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def unknown_file(folder: Path) -> None:
    """A file that nobody listed."""
    (folder / "adapter" / "extra.py").write_bytes(b"print()")


def link(folder: Path) -> None:
    """A listed file replaced by a link."""
    path = folder / "model_card.md"
    content = path.read_bytes()
    path.unlink()
    (folder.parent / "elsewhere").write_bytes(content)
    path.symlink_to(folder.parent / "elsewhere")


TAMPERING: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights changed": (append("adapter/adapter_model.safetensors"), "adapter_model.safetensors has changed"),
    "card changed": (append("model_card.md"), "model_card.md has changed"),
    "evidence changed": (append("evidence/evaluate.json"), "evidence/evaluate.json is not the evidence"),
    "file added": (unknown_file, "extra.py is not listed"),
    "file removed": (lambda f: (f / "model_card.md").unlink(), "model_card.md is missing"),
    "link": (link, "model_card.md is a link"),
    "attestation removed": (lambda f: (f / "attestation.json").unlink(), "attestation.json is missing"),
    "manifest cut": (lambda f: (f / "manifest.json").write_bytes(b"{"), "manifest.json is missing or cannot be read"),
    "manifest empty": (lambda f: (f / "manifest.json").write_bytes(b"[]"), "manifest.json is missing or cannot"),
    "weights with a manifest to fit": (rebuilt_manifest, "is not what train recorded"),
    "manifest of noise": (
        lambda f: (f / "manifest.json").write_bytes(b'{"files": [3], "evidence": 4}'),
        "lists something that is no file",
    ),
    "attestation of noise": (lambda f: (f / "attestation.json").write_bytes(b'{"subject": 3}'), "is not an in-toto"),
    "evidence of noise": (
        lambda f: (f / "evidence" / "train.json").write_bytes(b'{"artifacts": 3}'),
        "lists no artifacts that can be read",
    ),
    "approval taken out": (
        lambda f: (f / "attestation.json").write_bytes(
            (f / "attestation.json").read_bytes().replace(b'"choice":"approve"', b'"choice":"rework"')
        ),
        "is no approval",
    ),
    "weights removed": (lambda f: shutil.rmtree(f / "adapter"), "there is neither adapter/ nor model/"),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_every_change_of_a_bundle_is_found(facts, tmp_path, name):
    manipulate, expected = TAMPERING[name]
    build_release(tmp_path / "release", facts)
    manipulate(tmp_path / "release")
    faults = verify_release(tmp_path / "release")
    assert any(expected in fault for fault in faults), faults


def test_a_bundle_already_published_is_kept_and_a_foreign_one_refused(facts, tmp_path):
    target = tmp_path / "release"
    first = build_release(target, facts)
    later = facts.model_copy(update={"ledger_head": "9" * 64})
    assert build_release(target, later) == first, "after a crash between the rename and its record"
    append("model_card.md")(target)
    with pytest.raises(VerificationFailed, match="already there"):
        build_release(target, facts)


def test_what_a_crash_left_behind_is_built_anew(facts, tmp_path):
    (tmp_path / "release.partial" / "adapter").mkdir(parents=True)
    (tmp_path / "release.partial" / "adapter" / "half").write_bytes(b"x")
    build_release(tmp_path / "release", facts)
    assert verify_release(tmp_path / "release") == []


def test_weights_that_changed_since_they_were_trained_are_refused(facts, tmp_path):
    (facts.train / "artifacts" / "adapter" / "adapter_model.safetensors").write_bytes(b"others")
    with pytest.raises(VerificationFailed, match="not what train recorded"):
        build_release(tmp_path / "release", facts)
    assert not (tmp_path / "release").exists()


def test_other_weights_than_the_evaluated_ones_are_refused(tmp_path):
    facts = make_facts(tmp_path, {"adapter_model.safetensors": b"weights"})
    (facts.train / "artifacts" / "adapter" / "adapter_model.safetensors").write_bytes(b"trained again")
    attempt(facts.train, "train", {})
    with pytest.raises(VerificationFailed, match="other weights were evaluated"):
        build_release(tmp_path / "release", facts)


def test_an_ungated_attempt_is_never_released(tmp_path):
    facts = make_facts(tmp_path, {"adapter_model.safetensors": b"weights"}, gated=False)
    with pytest.raises(Refused, match="outside a run's gates"):
        build_release(tmp_path / "release", facts)


def test_a_merged_model_needs_the_base_model(facts, tmp_path):
    with pytest.raises(InputError, match="base model's folder"):
        build_release(tmp_path / "release", facts.model_copy(update={"merged": True}))


def test_the_merged_model_speaks_as_base_and_adapter_do(lab, tmp_path):
    trained = lab.evaluated("en", "true").inputs["train"] / "artifacts"
    files = {p.name: p.read_bytes() for p in (trained / "adapter").iterdir()}
    facts = make_facts(tmp_path, files, merged=True, base_model_folder=lab.model)
    build_release(tmp_path / "release", facts)
    assert verify_release(tmp_path / "release") == []
    merged, adapted = load_base(tmp_path / "release" / "merged"), load_trained(lab.model, trained)
    ids = torch.arange(4, 40).unsqueeze(0)
    with torch.inference_mode():
        difference = (merged(input_ids=ids).logits - adapted(input_ids=ids).logits).abs().max().item()
    assert difference < 1e-3
    assert (tmp_path / "release" / "merged" / "tokenizer.json").is_file()


# ---- signatures


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two people's SSH keys."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("li", "wang"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return {name: folder / name for name in ("li", "wang")}


def public(key: Path) -> str:
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def last(part: Part) -> tuple[bool, str, str]:
    return part.steps[-1].ok, part.steps[-1].verified, part.steps[-1].detail


def test_a_signed_release_names_its_signer_and_nobody_else(facts, tmp_path, keys):
    folder = tmp_path / "release"
    build_release(folder, facts, signer=signer_of(keys["li"]))
    assert verify_release(folder) == []
    ok, verified, detail = last(verify_release_folder(folder, [public(keys["li"])]))
    assert (ok, verified) == (True, "all")
    assert "signed by the signer that was named" in detail
    assert last(verify_release_folder(folder, [public(keys["wang"])]))[0] is False
    ok, verified, detail = last(verify_release_folder(folder))
    assert (ok, verified) == (True, "none")
    assert "which nothing here vouches for" in detail
    statement = json.loads((folder / "attestation.json").read_bytes())
    assert statement["predicate"]["signature"].startswith("attestation.dsse.json, by the key SHA256:")
    assert "is signed with the key SHA256:" in (folder / "model_card.md").read_text()


def test_the_key_of_the_environment_signs_and_no_key_signs_nothing(keys, monkeypatch):
    monkeypatch.delenv(SIGNING_KEY, raising=False)
    assert release_signer() is None
    monkeypatch.setenv(SIGNING_KEY, str(keys["li"]))
    signer = release_signer()
    assert signer is not None
    assert signer.fingerprint == signer_of(keys["li"]).fingerprint
    monkeypatch.setenv(SIGNING_KEY, "/nowhere/key")
    with pytest.raises(InputError, match="there is no key"):
        release_signer()


def test_ssh_keygen_alone_verifies_the_envelope(facts, tmp_path, keys):
    folder = tmp_path / "release"
    build_release(folder, facts, signer=signer_of(keys["li"]))
    envelope = json.loads((folder / "attestation.dsse.json").read_bytes())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 " + b" ".join([str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    (tmp_path / "signature").write_text(armoured(envelope["signatures"][0]["sig"]))
    (tmp_path / "allowed").write_text(f"li {public(keys['li'])}\n")
    words = ["-I", "li", "-n", "gatewright-release", "-s", str(tmp_path / "signature")]
    command = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "allowed"), *words]
    assert subprocess.run(command, input=encoded, capture_output=True).returncode == 0
    assert subprocess.run(command, input=encoded + b" ", capture_output=True).returncode != 0


def test_a_release_is_signed_after_it_was_published_without_changing_it(facts, tmp_path, keys):
    folder = tmp_path / "release"
    build_release(folder, facts)
    before = digest_folder(folder)
    assert sign_release(folder, keys["li"]) == tmp_path / "release.dsse.json"
    assert digest_folder(folder) == before
    assert last(verify_release_folder(folder, [public(keys["li"])]))[:2] == (True, "all")
    with pytest.raises(InputError, match="exists"):
        sign_release(folder, keys["wang"])
    (tmp_path / "release.dsse.json").unlink()
    append("model_card.md")(folder)
    with pytest.raises(VerificationFailed, match="not intact"):
        sign_release(folder, keys["li"])


def other_signature(document: dict[str, Any]) -> None:
    """A signature over nothing, by the right person."""
    document["signatures"][0]["sig"] = document["other"]


ENVELOPES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another statement": (lambda d: d.update(payload=base64.b64encode(b"{}").decode()), "holds another statement"),
    "no signature": (lambda d: d.update(signatures=[]), "it holds no signature"),
    "another type": (lambda d: d.update(payloadType="text/plain"), "its payload is 'text/plain'"),
    "noise": (lambda d: d.update(payload="?"), "attestation.dsse.json"),
    "no list": (lambda d: d.update(signatures=3), "it is no DSSE envelope"),
    "a signature that is none": (lambda d: d["signatures"][0].update(sig="AAAA"), "this is no SSH signature"),
    "a signature on something else": (other_signature, "does not hold"),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_every_change_of_an_envelope_is_found(facts, tmp_path, keys, name):
    folder, signer = tmp_path / "release", signer_of(keys["li"])
    build_release(folder, facts, signer=signer)
    change, expected = ENVELOPES[name]
    path = folder / "attestation.dsse.json"
    document = json.loads(path.read_bytes()) | {"other": signer.sign(b"")}
    change(document)
    path.write_bytes(canonical_bytes(document))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    listed = next(f for f in manifest["files"] if f["path"] == path.name)
    listed.update(sha256=sha256_file(path), bytes=path.stat().st_size)  # whoever changes one can change the other
    (folder / "manifest.json").write_bytes(canonical_bytes(manifest))
    found = verify_release_folder(folder, [public(keys["li"])])
    assert not found.ok
    assert any(expected in step.detail for step in found.steps if not step.ok), found


@pytest.mark.parametrize(("language", "said"), [("en", "expected beside actual"), ("zh", "预期与实际")])
def test_the_bundle_has_the_whole_sheet_beside_what_came(facts, tmp_path, language, said):
    row = {"stage": "count", "stage_title": "count", "metric": "words", "title": "数出的词", "unit": "words"}
    rows = [
        {**row, "signed": 40, "expected": 50, "actual": 60},
        {**row, "signed": None, "expected": 7, "actual": None},
    ]
    given = facts.model_copy(
        update={"language": language, "sheet": [ReleaseExpectation.model_validate(one) for one in rows]}
    )
    build_release(tmp_path / "release", given)
    card = (tmp_path / "release" / "model_card.md").read_text(encoding="utf-8")
    assert said in card
    assert "| count | 数出的词 | 40 words | 50 words | 60 words | +20.0% |" in card
    assert json.loads((tmp_path / "release" / "task_sheet.json").read_bytes())["rows"] == rows
    manifest = json.loads((tmp_path / "release" / "manifest.json").read_bytes())
    assert "task_sheet.json" in [f["path"] for f in manifest["files"]]


def test_the_attestation_names_the_samples_that_training_read(facts, tmp_path):
    rewritten = tmp_path / "rewritten.parquet"
    rewritten.write_bytes(b"other samples")
    build_release(tmp_path / "release", facts.model_copy(update={"rewritten": rewritten}))
    statement = json.loads((tmp_path / "release" / "attestation.json").read_bytes())
    materials = {m["name"]: m["digest"]["sha256"] for m in statement["predicate"]["materials"]}
    assert materials["samples.parquet"] == sha256_file(rewritten)
