"""Fixtures of the planning tests: a small architecture, and a whole search over it, recorded once in this process."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.memory.devices import Device
from tasks.planning.families import Families, key_of
from tasks.planning.machine import Machine
from tasks.planning.plans import Limits
from tasks.planning.search import wanted_families
from tasks.planning.workload import Workload

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
LENGTHS = tuple(sorted([60] * 30 + [200] * 29 + [900]))


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """A Llama of a few hundred thousand parameters that no catalog knows."""
    return dict(SMALL)


def machine_of(usable_bytes: int, count: int = 1, **values: Any) -> Machine:
    """Cards of any size with the rates of an RTX 4090."""
    device = Device(
        kind="cuda",
        name="test card",
        count=count,
        usable_bytes=usable_bytes,
        usable_source="given",
        physical_cores=4,
        bf16=True,
        here=False,
    )
    rates = {"tflops": 165.2, "memory_gb_s": 1010.0, "link_gb_s": 31.5, "host_bus_gb_s": 31.5}
    given: dict[str, Any] = {"device": device, **rates, **values}
    return Machine(**given)


WORKLOAD = Workload(lengths=LENGTHS, evaluation_lengths=(100, 300), effective_batch=4)


@pytest.fixture(scope="session")
def families() -> Families:
    """Everything that searches on one or two cards need."""
    from tasks.memory.recording import family

    limits = Limits()
    wanted = wanted_families(SMALL, machine_of(2**30, 2), WORKLOAD, limits)
    return {key_of(s): family(s, limits.optimizers, 1024) for s in wanted}
