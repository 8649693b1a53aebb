"""What is a secret is hidden, what is not stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.credentials import with_credentials, without_secrets
from specs.secrets import redacted, secret_values, without_password
from tests.support.stages import small_spec

URLS = [
    ("postgresql://me:hunter22@host:5432/db?sslmode=require", "postgresql://me@host:5432/db?sslmode=require"),
    ("postgresql+psycopg://me:p@ss@host/db", "postgresql+psycopg://me@host/db"),
    ("postgresql://me@/db?host=/run/pg&password=hunter22", "postgresql://me@/db?host=/run/pg"),
    ("https://user:hunter22@mirror.example/x", "https://mirror.example/x"),
    ("https://hf_abcdefgh@mirror.example", "https://mirror.example"),
    ("https://mirror.example/x?token=hunter22&a=1", "https://mirror.example/x?a=1"),
    ("https://mirror.example/x?token=hunter22", "https://mirror.example/x"),
    ("sqlite:////abs/ledger.db", "sqlite:////abs/ledger.db"),
    ("sqlite:///rel.db", "sqlite:///rel.db"),
    ("postgresql:///db", "postgresql:///db"),
    ("/abs/ledger.db", "/abs/ledger.db"),
]


@pytest.mark.parametrize(("url", "kept"), URLS)
def test_a_url_keeps_everything_but_its_secret(url: str, kept: str):
    assert without_password(url) == kept
    assert without_password(kept) == kept


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HF_TOKEN", "MY_SECRET", "PGPASSWORD", "DB_PASSWORD", "API_AUTH"])
def test_values_of_secret_variables_are_hidden_wherever_they_stand(name: str):
    text = redacted("401 for key hunter22-hunter22, see docs", {name: "hunter22-hunter22"})
    assert "hunter22" not in text
    assert text.endswith("see docs")


@pytest.mark.parametrize("name", ["PATH", "LANG", "MONKEY", "SSH_AUTH_SOCK", "PWD", "TOKENIZERS_PARALLELISM"])
def test_ordinary_variables_are_left_alone(name: str):
    assert secret_values({name: "a value that is long enough"}) == []


def test_short_and_numeric_values_do_not_blank_out_ordinary_words():
    assert redacted("the loss is 12345678, all fine", {"A_KEY": "12345678", "B_KEY": "fine"}) == (
        "the loss is 12345678, all fine"
    )


@pytest.mark.parametrize(
    "text",
    [
        "GET https://user:hunter22@host/x failed",
        "cannot reach postgresql://me:hunter22@host/db",
        "Authorization: Bearer hunter22hunter22",
        "https://host/x?api_key=hunter22&b=1",
    ],
)
def test_texts_of_exceptions_lose_what_a_url_or_header_carries(text: str):
    assert "hunter22" not in redacted(text, {})


@given(st.text(max_size=200))
def test_a_text_without_secrets_is_only_changed_where_it_looks_like_one(text: str):
    once = redacted(text, {})
    assert redacted(once, {}) == once
    if "@" not in text and "=" not in text and "earer" not in text.lower() and "asic" not in text.lower():
        assert once == text


def test_a_spec_is_kept_without_passwords_and_gets_them_back_only_for_the_same_url():
    written = small_spec(
        ledger="postgresql://me:hunter22@host/db",
        hub={"mirror": "https://user:hunter22@mirror.example"},
        agent={"proposer": "llm", "model": "openai:x", "base_url": "https://hunter22hunter22@llm.example/v1"},
    )
    kept = without_secrets(written)
    assert "hunter22" not in kept.model_dump_json()
    assert with_credentials(kept, written) == written
    elsewhere = written.model_copy(update={"ledger": "postgresql://me:hunter22@evil.example/db"})
    assert with_credentials(kept, elsewhere).ledger == kept.ledger
    assert without_secrets(small_spec()) == small_spec()
