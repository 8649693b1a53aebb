"""Canonical bytes: RFC 8785, one form per value, and nothing that JSON cannot carry."""

from __future__ import annotations

import json
import math
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.base import Strict
from specs.canonical import MAX_SAFE_INTEGER, canonical_bytes, digest, digest_folder, plain, sha256_bytes, sha256_file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS.map(lambda t: unicodedata.normalize("NFC", t)), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(JSON)
def test_what_is_read_back_has_the_same_bytes(value: Any):
    data = canonical_bytes(value)
    assert canonical_bytes(json.loads(data)) == data
    assert digest(value) == sha256_bytes(data)


@given(st.dictionaries(TEXTS.map(lambda t: unicodedata.normalize("NFC", t)), st.integers(0, 9), max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]):
    assert canonical_bytes(dict(reversed(value.items()))) == canonical_bytes(value)


@given(st.dictionaries(TEXTS.map(lambda t: unicodedata.normalize("NFC", t)), st.none(), max_size=6))
def test_keys_are_sorted_by_utf16_code_units(value: dict[str, None]):
    keys = list(json.loads(canonical_bytes(value)))
    assert keys == sorted(keys, key=lambda key: key.encode("utf-16-be"))


@given(TEXTS)
def test_composed_and_decomposed_text_is_the_same(text: str):
    assert canonical_bytes(unicodedata.normalize("NFD", text)) == canonical_bytes(unicodedata.normalize("NFC", text))


@given(st.integers())
def test_no_integer_loses_a_digit(number: int):
    read = json.loads(canonical_bytes([number]))[0]
    assert int(read) == number
    assert isinstance(read, str) == (abs(number) > MAX_SAFE_INTEGER)


def test_the_example_of_the_rfc():
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_bytes(value) == expected.encode()


def test_numbers_that_json_cannot_carry_are_null():
    assert canonical_bytes([math.nan, math.inf, -math.inf]) == b"[null,null,null]"
    assert canonical_bytes(-0.0) == b"0"


def test_two_keys_that_are_one_after_normalisation_are_refused():
    with pytest.raises(ValueError, match="normalisation"):
        plain({"\u00e9": 1, "e\u0301": 2})


def test_models_and_paths_have_a_form_and_other_objects_do_not():
    class Example(Strict):
        place: Path
        size: float

    assert canonical_bytes(Example(place=Path("a/b"), size=2.0)) == b'{"place":"a/b","size":2}'
    with pytest.raises(TypeError, match="no canonical JSON form"):
        plain({1, 2})


def test_a_folder_digest_sees_names_and_contents_and_nothing_else(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, ("a", "b")), (two, ("b", "a"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"text of {name}")
    assert digest_folder(one) == digest_folder(two)
    (two / "a").rename(two / "c")
    assert digest_folder(one) != digest_folder(two)
    (two / "c").rename(two / "a")
    (two / "a").write_text("text of b")
    assert digest_folder(one) != digest_folder(two)
    assert sha256_file(two / "a") == sha256_bytes(b"text of b")
