"""A signature holds for exactly these bytes, this purpose and this person's keys; everything else is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flows.signing import NAMESPACE, default_key, sign, signed_by, verify
from specs.errors import EXIT_REFUSED, InputError, SignatureRefused
from specs.ssh_keys import fingerprint, plain_key

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")

DATA = '{"choice":"approve","actor":"李"}'.encode()


def key(folder: Path, name: str, passphrase: str = "", kind: str = "ed25519") -> Path:
    """A new private key; its public part lies beside it."""
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path


def public(path: Path) -> str:
    return path.with_name(path.name + ".pub").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {"me": key(folder, "me"), "you": key(folder, "you", kind="ecdsa"), "locked": key(folder, "locked", "secret")}


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.mark.parametrize("who", ["me", "you"])
def test_a_signature_holds_for_what_was_signed_and_names_its_key(keys: dict[str, Path], who: str):
    signature = sign(keys[who], NAMESPACE, DATA)
    verify([public(keys["me"]), public(keys["you"])], "wei * li, ,", NAMESPACE, DATA, signature)
    assert signed_by(signature) == fingerprint(plain_key(public(keys[who])))


@pytest.mark.parametrize("changed", [DATA + b" ", DATA.replace(b"approve", b"reject!"), b""])
def test_changed_bytes_are_refused(keys: dict[str, Path], changed: bytes):
    signature = sign(keys["me"], NAMESPACE, DATA)
    with pytest.raises(SignatureRefused, match="does not hold") as caught:
        verify([public(keys["me"])], "me", NAMESPACE, changed, signature)
    assert caught.value.exit_code == EXIT_REFUSED


def test_a_key_of_somebody_else_and_another_purpose_are_refused(keys: dict[str, Path]):
    signature = sign(keys["you"], NAMESPACE, DATA)
    with pytest.raises(SignatureRefused, match="not listed for 'me'"):
        verify([public(keys["me"])], "me", NAMESPACE, DATA, signature)
    with pytest.raises(SignatureRefused, match="not listed for 'me'"):
        verify([], "me", NAMESPACE, DATA, signature)
    with pytest.raises(SignatureRefused, match="made for 'git'"):
        verify([public(keys["me"])], "me", NAMESPACE, DATA, sign(keys["me"], "git", DATA))


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----"])
def test_what_is_no_signature_is_refused(keys: dict[str, Path], text: str):
    with pytest.raises(SignatureRefused, match="no SSH signature"):
        verify([public(keys["me"])], "me", NAMESPACE, DATA, text)


def test_a_signature_with_a_flipped_byte_is_refused(keys: dict[str, Path]):
    lines = sign(keys["me"], NAMESPACE, DATA).splitlines()
    last = lines[-2]
    lines[-2] = ("B" if last[0] != "B" else "C") + last[1:]
    with pytest.raises(SignatureRefused):
        verify([public(keys["me"])], "me", NAMESPACE, DATA, "\n".join(lines))


def test_a_key_that_cannot_be_used_is_an_error_with_a_way_out(keys: dict[str, Path], tmp_path: Path):
    with pytest.raises(InputError, match="has a passphrase") as caught:
        sign(keys["locked"], NAMESPACE, DATA)
    assert "ssh-add" in caught.value.hint
    with pytest.raises(InputError, match="there is no key"):
        sign(tmp_path / "none", NAMESPACE, DATA)
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "junk").chmod(0o600)
    with pytest.raises(InputError, match="cannot sign"):
        sign(tmp_path / "junk", NAMESPACE, DATA)
    shutil.copy(keys["me"], tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    with pytest.raises(InputError, match="others may read it"):
        sign(tmp_path / "open", NAMESPACE, DATA)


def test_without_ssh_keygen_the_way_out_is_named(keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    signature = sign(keys["me"], NAMESPACE, DATA)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="not installed"):
        sign(keys["me"], NAMESPACE, DATA)
    with pytest.raises(InputError, match="not installed"):
        verify([public(keys["me"])], "me", NAMESPACE, DATA, signature)


def test_the_own_key_is_the_listed_one_else_the_first_usual_name(keys: dict[str, Path], tmp_path: Path):
    with pytest.raises(InputError, match="no private part"):
        default_key(folder=tmp_path)
    for name, source in (("id_rsa", "you"), ("work", "me")):
        shutil.copy(keys[source], tmp_path / name)
        (tmp_path / f"{name}.pub").write_text(public(keys[source]))
    assert default_key(folder=tmp_path).name == "id_rsa"
    assert default_key([public(keys["me"])], tmp_path).name == "work"
    with pytest.raises(InputError, match="policy lists for you"):
        default_key([public(keys["locked"])], tmp_path)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no SSH public key"),
        ("ssh-dss AAAA", "no SSH public key"),
        ("ssh-ed25519 AAA", "cut or misspelt"),
        ("ssh-ed25519 AAAAB3NzaC1yc2E=", "another kind"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
    ],
)
def test_a_line_that_is_no_public_key_is_refused_with_the_reason(line: str, why: str):
    with pytest.raises(ValueError, match=why):
        plain_key(line)
