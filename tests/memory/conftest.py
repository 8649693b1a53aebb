"""Fixtures of the memory tests: a small architecture and its coefficients, traced once."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.memory.account import AccountCoefficients
from tasks.memory.settings import TraceSettings

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """A Llama of a few hundred thousand parameters that no catalog knows."""
    return dict(SMALL)


@pytest.fixture(scope="session")
def coefficients() -> AccountCoefficients:
    """Fitted for micro batches up to 8 and 256 tokens."""
    from tasks.memory.fit import coefficients_of_both

    settings = TraceSettings(architecture=SMALL, device="cpu", micro_batch=4, seq_len=256, padded=True)
    return coefficients_of_both(settings)[0]
