"""A card is found however people, drivers, clouds and shops spell it, and never taken for another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import InputError
from specs.hardware import find_gpu, gpus

UNKNOWN = ("RTX 5050", "RTX 4090 48GB", "摩尔线程 S4000", "A100:8")
"""A card of laptops only, one with other memory, one of another maker, and one with a count."""


def test_every_card_is_found_by_its_own_name():
    assert all(find_gpu(card.name) is card for card in gpus())


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("RTX4090 24G", "RTX 4090"),
        ("ＲＴＸ　４０９０", "RTX 4090"),
        ("英伟达 RTX 4090 显卡", "RTX 4090"),
        ("RTX 4090 笔记本", "RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("4090D", "RTX 4090 D"),
        ("4060ti 16g", "RTX 4060 Ti 16GB"),
        ("3080", "RTX 3080 10GB"),
        ("A100", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM 80GB"),
        ("H100 SXM5", "H100 SXM 80GB"),
        ("NVIDIA H200", "H200 SXM"),
        ("V100-32GB", "V100 SXM2 32GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("昇腾910B3", "Ascend 910B3"),
        ("昇腾 910B", "Ascend 910B4"),
        ("A10G", "A10G (AWS g5)"),
    ],
)
def test_other_spellings_are_of_the_same_card(spelt: str, name: str):
    assert find_gpu(spelt).name == name


def test_a_short_name_of_several_cards_is_that_with_the_least_memory():
    assert find_gpu("H100-80GB").vram_gb == find_gpu("H100").vram_gb == 80
    assert find_gpu("RTX 3050").vram_gb == 6


@pytest.mark.parametrize("spelt", ["", "A", "RTX", "RTX 40", "laptop", "80GB", "sxm4", *UNKNOWN])
def test_what_names_no_card_is_not_taken_for_one(spelt: str):
    with pytest.raises(InputError, match="no accelerator named") as raised:
        find_gpu(spelt)
    assert "memory" in raised.value.hint


def test_a_misspelt_name_is_told_the_nearest():
    with pytest.raises(InputError, match="near it: RTX 4090"):
        find_gpu("RTX 4990")


@given(st.sampled_from(gpus()), st.sampled_from([" ", "-", "_", ""]), st.booleans())
def test_case_and_what_stands_between_the_words_do_not_matter(card, between: str, upper: bool):
    spelt = between.join(card.name.split())
    assert find_gpu(spelt.upper() if upper else spelt.lower()) is card
