"""The meter sees a peak that is gone when it is read."""

from __future__ import annotations

import sys

import pytest

from tasks.training.measure import PeakMeter

MIB = 2**20


@pytest.mark.parametrize("method", ["high_water", "sampling"])
def test_a_short_peak_is_seen_and_forgotten_on_reset(method):
    if method == "high_water" and PeakMeter().method != "high_water":
        pytest.skip("this system does not let a process reset its high water mark")
    with PeakMeter(method=method) as meter:
        block = bytearray(192 * MIB)
        if method == "sampling":  # the sampler polls: hold the peak until it has looked
            while meter.peak_bytes() - meter.baseline_bytes < 150 * MIB:
                pass
        del block
        assert meter.peak_bytes() - meter.baseline_bytes > 150 * MIB
        meter.reset()
        assert meter.peak_bytes() - meter.baseline_bytes < 64 * MIB


def test_linux_measures_without_sampling():
    if sys.platform != "linux":
        pytest.skip("Linux only")
    assert PeakMeter().method in ("high_water", "sampling")
