"""Promises of the calibration: it repeats what was measured, and is used only for what it was measured on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.parameters import TrainingConfiguration
from specs.proposals import MemoryCheck
from tasks.memory.account import assemble
from tasks.stress.calibration import calibrated, calibration_document, key_of, matching, read_calibration

MIB = 2**20
TRAINING = TrainingConfiguration()
HERE = {"device": "cpu: CPU", "software.torch": "2.13.0"}


def account(held: int, framework: int = 448 * MIB):
    return assemble(
        {"forward": {"weights": held}},
        framework_bytes=framework,
        library_bytes=64 * MIB,
        host_fixed_bytes=0,
        disk_bytes=0,
        trainable_parameters=1,
        total_parameters=1,
        method="traced",
        micro_batch=1,
        seq_len=8,
        notes=[],
    )


def measured(peak: int, baseline: int) -> dict:
    return {"device": "cpu", "peak_bytes": peak, "baseline_bytes": baseline}


def check(found, usable: int = 2**40, fits: bool = True) -> MemoryCheck:
    return MemoryCheck(
        peak_bytes=found.process_bytes,
        usable_bytes=usable,
        device="CPU",
        method="derived",
        fits=fits,
        residents=found.residents,
    )


@given(st.integers(1, 2**40), st.integers(2**20, 2**32), st.integers(2**20, 2**40))
def test_an_account_that_is_calibrated_by_its_own_measurement_says_what_was_measured(held, baseline, beside):
    found = account(held)
    document = calibration_document(found, measured(baseline + beside, baseline), HERE, TRAINING)
    again = calibrated(check(found), read_calibration(document, "0" * 64))
    assert again.account_bytes == found.process_bytes
    if document["confirmed"]:
        assert again.peak_bytes == found.process_bytes
        assert abs(baseline + beside - found.process_bytes) <= 0.1 * found.process_bytes
        return
    assert again.peak_bytes == pytest.approx(baseline + beside, abs=1e-6 * found.peak_reserved_bytes + 2)


def test_an_account_that_says_too_little_is_raised_until_it_no_longer_fits():
    learnt = calibration_document(account(100 * MIB), measured(900 * MIB, 450 * MIB), HERE, TRAINING)
    found = account(2000 * MIB)
    before = check(found, usable=4000 * MIB)
    after = calibrated(before, read_calibration(learnt, "0" * 64))
    assert before.fits
    assert not after.fits
    assert after.peak_bytes > 4000 * MIB


def test_what_did_not_fit_elsewhere_does_not_fit_by_calibration():
    learnt = calibration_document(account(100 * MIB), measured(500 * MIB, 450 * MIB), HERE, TRAINING)
    host = check(account(100 * MIB), fits=False)
    assert not calibrated(host, read_calibration(learnt, "0" * 64)).fits


@pytest.mark.parametrize("other", [{"device": "cuda: H200"}, {"software.torch": "2.14.0"}, {"driver": "580"}])
def test_another_device_driver_or_software_is_another_key(other):
    assert key_of(HERE, TRAINING) != key_of({**HERE, **other}, TRAINING)


def test_batch_and_checkpointing_keep_the_key_and_method_and_formats_do_not():
    same = TRAINING.model_copy(update={"micro_batch": 4, "activation_checkpointing": True, "max_length": 64})
    assert key_of(HERE, same) == key_of(HERE, TRAINING)
    for changed in ({"method": "full"}, {"weights": "bf16"}, {"compute": "amp-bf16"}):
        assert key_of(HERE, TRAINING.model_copy(update=changed)) != key_of(HERE, TRAINING)


def test_the_newest_of_the_same_key_counts():
    documents = [
        calibration_document(account(100 * MIB), measured(p * MIB, 450 * MIB), HERE, TRAINING) for p in (600, 700)
    ]
    newest, older = (read_calibration(d, "0" * 64) for d in documents)
    assert matching([newest, older], newest.key) == newest
    assert matching([newest, older], "1" * 64) is None


def test_on_a_gpu_the_framework_is_what_the_driver_shows_beyond_the_reserved_bytes():
    found = {"device": "cuda", "peak_bytes": 900 * MIB, "baseline_bytes": 0}
    found |= {"peak_reserved_bytes": 1000 * MIB, "peak_driver_bytes": 1500 * MIB}
    document = calibration_document(account(936 * MIB, 512 * MIB), found, HERE, TRAINING)
    assert document["framework_bytes"] == 500 * MIB
    assert document["ratio"] == 1.0
