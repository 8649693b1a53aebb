"""Which raw rows are variants of each other: other numbers count, list marks that lost their dot do not."""

from __future__ import annotations

import pytest

from tasks.verify.data_texts import differs_in_code


def row(steps: str, repair: str = "greased the disc spring") -> dict[str, str]:
    return {"device_model": "TC-817", "fault_type": "SV1365", "steps": steps, "repair": repair}


@pytest.mark.parametrize(
    "other",
    ["1 compared the job", "1) compared the job", "① compared the job", "compared the job", "1.compared the job"],
)
def test_a_list_mark_written_otherwise_makes_no_variant(other):
    assert not differs_in_code(row("1. compared the job"), row(other))


@pytest.mark.parametrize("other", ["1. replaced 2 screws", "1 replaced 2 screws", "replaced 12 screws"])
def test_another_number_makes_a_variant_however_marks_are_written(other):
    assert differs_in_code(row("1. replaced 1 screw"), row(other))
    assert differs_in_code(row("1. replaced 1 screw", "parameter No.1815"), row("1. replaced 1 screw", "No.1816"))
