"""Numbers that nobody measured are found, numbers that somebody measured are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.citations import numbers_in, uncited
from specs.units import human


@pytest.mark.parametrize(
    "text",
    ["1,204 rows", "a share of 12.3 %", "1.83 GiB", "4.5 s", "about 2 min", "loss 0.43", "−0.25 nats", "`77 is data`"],
)
def test_known_numbers_pass_in_any_unit(text):
    facts = [1204, 0.1234, 1.83 * 2**30, 4.5, 120, 0.4312, -0.25]
    assert uncited(text, facts) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [("1,205 rows", ["1,205"]), ("0.44 and 12.5 %", ["0.44", "12.5"]), ("3 GiB", ["3"]), ("0 rows", ["0"])],
)
def test_unknown_numbers_are_found(text, found):
    assert uncited(text, [1204, 0.1234, 1.83 * 2**30, 0.4312]) == found


def test_identifiers_are_not_numbers():
    assert uncited("AL-077, SHA-256, G07.1, run 20261129-101500-ab12, P95, v3", []) == []


def test_numbers_inside_texts_and_models_count_as_known():
    assert numbers_in({"note": "7 rows left out", "n": [1, {"x": 2.5}], "ok": True}) == [7, 1, 2.5]


@given(
    st.floats(-1e12, 1e12, allow_nan=False),
    st.sampled_from(["rows", "samples", "share", "s", "h", "nats/token", "count", "norm"]),
    st.sampled_from(["en", "zh"]),
)
def test_what_we_format_ourselves_is_always_cited(value, unit, language):
    assert uncited(human(value, unit, language), [value]) == []


@given(st.integers(0, 2**50), st.sampled_from(["en", "zh"]))
def test_formatted_bytes_are_cited(value, language):
    assert uncited(human(value, "bytes", language), [value]) == []
