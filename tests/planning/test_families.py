"""Promises of a family: what is derived equals what is traced, for any batch, optimizer and division among ranks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError
from tasks.memory.family import Family
from tasks.memory.fit import account, divided
from tasks.memory.moments import Probe, coefficients_of
from tasks.memory.recording import family
from tasks.memory.settings import TraceSettings

OPTIMIZERS: tuple[Any, ...] = ("adamw_fused", "adamw_8bit", "paged_adamw_8bit")
CASES: dict[str, dict[str, Any]] = {
    "lora": {"compute": "amp-bf16"},
    "lora, checkpointing, eager": {"activation_checkpointing": True, "attention": "eager", "compute": "bf16"},
    "qlora": {"method": "qlora", "weights": "nf4-dq", "compute": "amp-bf16", "activation_checkpointing": True},
    "full": {"method": "full", "compute": "bf16", "attention": "flash"},
}
SLOW = ("lora, checkpointing, eager", "qlora")
BATCHES = [(1, 640, 4, "paged_adamw_8bit"), (3, 384, 1, "adamw_8bit"), (8, 256, 2, "adamw_fused")]


def base(small: dict[str, Any], **values: Any) -> TraceSettings:
    return TraceSettings(**{"architecture": small, "weights": "bf16", **values})


def member(of: TraceSettings, size: int, length: int, accumulation: int, optimizer: Any, **more: Any) -> TraceSettings:
    return of.model_copy(
        update={
            "micro_batch": size,
            "seq_len": length,
            "padded": size > 1,
            "evaluation_batch": size,
            "gradient_accumulation": accumulation,
            "optimizer": optimizer,
            **more,
        }
    )


@pytest.fixture(scope="module")
def recorded(small: dict[str, Any]) -> Family:
    """A family of adapters that most tests ask."""
    return family(base(small, **CASES["lora"]), OPTIMIZERS, 1024)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_derived_equals_traced(small: dict[str, Any], name: str):
    settings = base(small, **CASES[name])
    found = family(settings, OPTIMIZERS, 1024)
    for batch in BATCHES:
        asked = member(settings, *batch)
        traced, derived = account(asked), found.account(asked)
        assert derived.peak_allocated_bytes == pytest.approx(traced.peak_allocated_bytes, rel=0.0005), batch
        assert derived.phases == pytest.approx(traced.phases, rel=0.002), batch
        assert derived.host_peak_bytes == traced.host_peak_bytes
        assert derived.trainable_parameters == traced.trainable_parameters


@pytest.mark.parametrize(("sharding", "gpus"), [("ddp", 2), ("zero2", 4), ("zero3", 8), ("fsdp", 4)])
def test_what_ranks_divide_is_divided_as_in_a_trace(small: dict[str, Any], recorded: Family, sharding: str, gpus: int):
    asked = member(base(small, **CASES["lora"]), 2, 256, 2, "adamw_fused", sharding=sharding, gpus=gpus)
    traced, derived = divided(asked), recorded.account(asked)
    assert derived.method == "closed-form"
    assert derived.phases == pytest.approx(traced.phases, rel=0.002)


@pytest.mark.slow
def test_a_window_shorter_than_the_longest_sample_has_a_recording_of_its_own(small: dict[str, Any]):
    architecture = small | {"model_type": "mistral", "sliding_window": 1536}
    settings = base(architecture, compute="bf16", method="full")
    found = family(settings, ("adamw_fused",), 2048)
    for length in (512, 1408, 2048):
        asked = member(settings, 1, length, 1, "adamw_fused")
        assert found.account(asked).phases == pytest.approx(account(asked).phases, rel=0.002), length


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 7), st.sampled_from(OPTIMIZERS), st.data())
def test_more_samples_or_tokens_never_need_less(recorded: Family, size: int, granules: int, optimizer: Any, data: Any):
    more, longer = data.draw(st.integers(size, 8)), data.draw(st.integers(granules, 8))
    few, many = (
        recorded.account(member(recorded.settings, b, 128 * g, 2, optimizer))
        for b, g in ((size, granules), (more, longer))
    )
    assert many.peak_allocated_bytes >= few.peak_allocated_bytes


def test_a_family_survives_its_file(recorded: Family):
    again = Family.model_validate_json(recorded.model_dump_json())
    asked = member(recorded.settings, 3, 384, 2, "adamw_8bit")
    assert again.account(asked) == recorded.account(asked)


def test_what_was_not_recorded_is_refused(recorded: Family):
    one = [record.model_dump() for record in recorded.recorded if not record.several]
    single = Family.model_validate(recorded.model_dump() | {"recorded": one})
    assert single.account(member(single.settings, 1, 256, 1, "adamw_fused")).method == "derived"
    for asked, batch in ((recorded, (2, 256, 1, "sgd")), (single, (2, 256, 1, "adamw_fused"))):
        with pytest.raises(InputError, match="not recorded"):
            asked.account(member(asked.settings, *batch))


@given(st.integers(1, 10**6), st.sampled_from(["1", "S", "SS", "B", "BS", "BSS"]))
def test_a_size_tells_how_it_grows(constant: int, power: str):
    probe = Probe(13, 11)
    constant *= 512
    while constant % 11 == 0 or constant % 13 == 0:
        constant += 512
    size = constant * (13 if "B" in power else 1) * (11 * 128) ** power.count("S")
    found = dict(zip(("1", "S", "SS", "B", "BS", "BSS"), coefficients_of(size, probe, 512), strict=True))
    if any(constant % (11 * 128 + k) == 0 for k in (1, -1)):
        return
    assert found == {**dict.fromkeys(found, 0.0), power: float(constant)}


def test_a_probe_clashes_with_a_dimension_that_it_divides():
    assert Probe(13, 11).clashes({26})
    assert Probe(13, 11).clashes({1100})
    assert not Probe(13, 11).clashes({4096, 14336})


def test_searching_needs_no_torch():
    code = "import tasks.planning.search, flows.plan_data, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
