"""A token proves one person, is shown once, and is gone when it is revoked or over. Only its hash is kept."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.tokens import new_token, revoke_token, token_in, tokens_of
from specs.errors import InputError, PolicyRefused
from specs.policy import Approver, Policy

NOW = datetime(2026, 1, 2, tzinfo=UTC)
POLICY = Policy(solo=False, approvers=[Approver(id="li"), Approver(id="wang")])


def test_a_token_proves_its_person_until_it_is_revoked_or_over(tmp_path: Path):
    token = new_token(tmp_path, POLICY, "li", 3600, NOW)
    other = new_token(tmp_path, POLICY, "wang", 3600, NOW)
    assert token_in(f" {token}\n", tmp_path, NOW).approver == "li"
    assert token_in(other, tmp_path, NOW).approver == "wang"
    with pytest.raises(PolicyRefused, match="unknown here, revoked or expired"):
        token_in(token, tmp_path, NOW + timedelta(hours=1))
    revoke_token(tmp_path, tokens_of(tmp_path)[0].id, NOW)
    with pytest.raises(PolicyRefused, match="unknown here, revoked or expired"):
        token_in(token, tmp_path, NOW)
    assert token_in(other, tmp_path, NOW).approver == "wang"


def test_the_secret_is_kept_nowhere_and_only_the_owner_reads_the_file(tmp_path: Path):
    token = new_token(tmp_path, POLICY, "li", 3600)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files
    assert all(token.rsplit("_", 1)[1].encode() not in p.read_bytes() for p in files)
    if os.name != "nt":
        assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "gwt_", "gwt_00000000_" + "a" * 43, "x" * 10_000, "gwt_\ud800"])
def test_what_is_no_token_is_refused_without_repeating_it(tmp_path: Path, text: str):
    made = new_token(tmp_path, POLICY, "li", 3600)
    for given in (text, made[:-1], made[:-1] + ("A" if made[-1] != "A" else "B")):
        with pytest.raises(PolicyRefused) as caught:
            token_in(given, tmp_path)
        assert not given or given not in caught.value.message


def test_only_approvers_get_tokens_and_only_known_ones_are_revoked(tmp_path: Path):
    with pytest.raises(InputError, match="'nobody' is not an approver"):
        new_token(tmp_path, POLICY, "nobody", 60)
    with pytest.raises(InputError, match="there is no token"):
        revoke_token(tmp_path, "00000000")
    (tmp_path / ".gatewright").mkdir()
    (tmp_path / ".gatewright" / "tokens.json").write_text("{}x")
    with pytest.raises(InputError, match="holds no tokens"):
        tokens_of(tmp_path)
