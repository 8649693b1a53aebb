"""The short way of common operators leaves the same births, deaths and sizes as the usual one."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from tasks.memory import quick
from tasks.memory.settings import TraceSettings
from tasks.memory.timeline import Place, Timeline
from tasks.memory.trace import record

CASES: dict[str, dict[str, Any]] = {
    "lora, recomputed": {"compute": "amp-bf16", "activation_checkpointing": True, "padded": True, "micro_batch": 2},
    "full": {"method": "full", "compute": "bf16", "attention": "eager"},
    "qlora": {"method": "qlora", "weights": "nf4-dq", "compute": "amp-bf16", "attention": "flash"},
    "another model": {"architecture": {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "vocab_size": 500}},
}


def in_order(timeline: Timeline) -> list[Any]:
    """The events of the step; what dies at one time dies in no order."""
    ends = max(n for n, event in enumerate(timeline.events) if isinstance(event, Place) and event.phase == "end")
    together = groupby(timeline.events[:ends], key=lambda e: isinstance(e, int) and e < 0)
    return [sorted(group) if deaths else list(group) for deaths, group in together]


@pytest.mark.parametrize("name", CASES)
def test_a_timeline_is_the_same_either_way(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str):
    values = {"architecture": small, "weights": "bf16", "compute": "bf16", "seq_len": 64, **CASES[name]}
    asked = TraceSettings(**values)
    short = record(asked, 1, ()).timeline
    monkeypatch.setattr(quick, "QUICK", frozenset())
    usual = record(asked, 1, ()).timeline
    assert len(short.events) > 100
    assert in_order(short) == in_order(usual)
    assert (short.sizes, short.kinds, short.products) == (usual.sizes, usual.kinds, usual.products)
