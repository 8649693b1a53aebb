"""Promises of the coefficients: exact where they hold, refused where they do not, never less for more."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import InputError
from tasks.memory.account import AccountCoefficients
from tasks.memory.devices import Device
from tasks.memory.fit import account, batch, coefficients_of_both, divided
from tasks.memory.settings import TraceSettings

SIZES, LENGTHS = st.integers(1, 8), st.integers(32, 256)


@pytest.mark.parametrize("point", [(1, 100), (3, 77), (7, 250)])
def test_coefficients_equal_a_trace_at_other_batches(
    coefficients: AccountCoefficients, small: dict[str, Any], point: tuple[int, int]
):
    settings = batch(TraceSettings(architecture=small, device="cpu"), point)
    traced, derived = account(settings), coefficients.account(*point)
    assert derived.peak_allocated_bytes == pytest.approx(traced.peak_allocated_bytes, rel=0.001)
    for phase, size in traced.phases.items():
        assert derived.phases[phase] == pytest.approx(size, rel=0.005), phase


def test_the_stated_error_is_small(coefficients: AccountCoefficients):
    assert coefficients.relative_error <= 0.001


@given(SIZES, LENGTHS, st.data())
def test_more_samples_or_tokens_never_need_less(coefficients: AccountCoefficients, size: int, length: int, data: Any):
    larger, longer = data.draw(st.integers(size, 8)), data.draw(st.integers(length, 256))
    assert coefficients.peak(larger, longer) >= coefficients.peak(size, length)


@given(SIZES, LENGTHS)
def test_residents_add_up_at_every_batch(coefficients: AccountCoefficients, size: int, length: int):
    found = coefficients.account(size, length)
    assert sum(found.residents.values()) == found.peak_allocated_bytes + found.framework_bytes
    assert found.peak_allocated_bytes == max(found.phases.values()) == found.phases[found.peak_phase]


@pytest.mark.parametrize("point", [(9, 100), (2, 300), (1, 8)])
def test_outside_the_range_no_number_is_given(coefficients: AccountCoefficients, point: tuple[int, int]):
    assert not coefficients.covers(*point)
    with pytest.raises(InputError, match="outside the range"):
        coefficients.peak(*point)


def test_coefficients_survive_their_file(coefficients: AccountCoefficients):
    again = AccountCoefficients.model_validate_json(coefficients.model_dump_json())
    assert again.account(3, 77) == coefficients.account(3, 77)


def test_an_account_that_does_not_fit_says_by_how_much(coefficients: AccountCoefficients):
    found = coefficients.account(4, 200)
    device = Device(
        kind="cpu",
        name="CPU",
        count=1,
        usable_bytes=found.process_bytes - 1000,
        usable_source="given",
        physical_cores=2,
        bf16=False,
    )
    check = found.check(device)
    assert not check.fits
    assert found.on(device).fits is not None
    assert found.on(device).fits.over_bytes == 1000  # type: ignore[union-attr]


def test_asking_for_memory_needs_no_torch():
    code = "import tasks.memory, tasks.stress_test, specs.hardware, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("sharding", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_coefficients_of_several_ranks_are_of_one_of_them(small: dict[str, Any], sharding: Any):
    """DDP holds the gradients once more in its buckets, FSDP divides: as the account of that batch says."""
    settings = TraceSettings(
        architecture=small | {"num_hidden_layers": 1},
        method="full",
        weights="bf16",
        compute="bf16",
        micro_batch=2,
        seq_len=64,
        padded=True,
        evaluation_batch=2,
        gpus=2,
        sharding=sharding,
    )
    found = coefficients_of_both(settings)[0].account(2, 64)
    assert found.peak_allocated_bytes == pytest.approx(divided(settings).peak_allocated_bytes, rel=0.002)
    if sharding == "ddp":
        assert found.residents["communication"] == 2 * found.trainable_parameters
