"""What a measurement is valid for, and what is done when that is not what is here."""

from __future__ import annotations

import pytest

from specs.errors import GuardRefused
from specs.parameters import TrainingConfiguration
from tasks.memory.devices import Device
from tasks.stress.environment import differences, environment_of, fingerprint_of, require_same

GPU = Device(
    kind="cuda",
    name="H200",
    count=1,
    usable_bytes=100 * 2**30,
    usable_source="given",
    physical_cores=8,
    bf16=True,
    driver="580.65.06",
)
TRAINING = TrainingConfiguration()


def document(device: Device = GPU, training: TrainingConfiguration = TRAINING, **more) -> dict:
    measured = {"environment": environment_of(device, training), "usable_bytes": device.usable_bytes}
    return {**measured, "usable_bound": 0.9, "peak_bytes": 80 * 2**30, **more}


def test_the_same_device_driver_allocator_and_software_pass():
    require_same(document(), GPU, TRAINING)


@pytest.mark.parametrize(
    ("changed", "training", "row"),
    [
        ({"name": "H100"}, {}, "device      cuda: H200   cuda: H100"),
        ({"driver": "570.1"}, {}, "driver      580.65.06    570.1"),
        ({}, {"allocator": "expandable_segments"}, "allocator.PYTORCH_ALLOC_CONF"),
        ({}, {"threads": 7}, "threads"),
        ({"usable_bytes": 85 * 2**30}, {}, "usable memory  100.00 GiB   85.00 GiB"),
    ],
)
def test_another_one_is_refused_with_a_table_and_the_way_out(changed, training, row, monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    now = TRAINING.model_copy(update=training)
    with pytest.raises(GuardRefused) as caught:
        require_same(document(), GPU.model_copy(update=changed), now)
    assert row.split()[0] in caught.value.message
    assert all(word in caught.value.message for word in row.split())
    assert "what" in caught.value.message.splitlines()[1]
    assert "gatewright rework --stage stress_test" in caught.value.hint


def test_less_memory_that_is_still_enough_passes():
    require_same(document(peak_bytes=70 * 2**30), GPU.model_copy(update={"usable_bytes": 85 * 2**30}), TRAINING)


def test_evidence_of_a_time_that_recorded_no_environment_is_believed():
    require_same({"kind": "cuda", "threads": 2}, GPU, TRAINING)


def test_the_fingerprint_changes_with_configuration_and_with_environment():
    here = environment_of(GPU, TRAINING)
    assert fingerprint_of("a", here) != fingerprint_of("b", here)
    assert fingerprint_of("a", here) != fingerprint_of("a", {**here, "driver": "other"})
    assert differences(here, here) == []
