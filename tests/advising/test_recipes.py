"""The recipes of the page are what the account and the plan search say."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.hardware import find_gpu
from tasks.advising import pages
from tasks.advising.recipes import CARDS, PRACTICE, _hopeless

HARDWARE_PAGE = Path(__file__).parents[2] / "docs" / "choosing-hardware.md"


def rows(text: str) -> list[str]:
    """The body of a Markdown table."""
    return [line for line in text.splitlines() if line.startswith("| ")][2:]


@pytest.mark.slow
def test_the_tables_of_recipes_are_what_the_account_says_now():
    found = pages.blocks(HARDWARE_PAGE.read_text(encoding="utf-8"))
    assert found["practice"] == pages.practised()
    assert found["recipes"] == pages.proposed()


def test_every_size_of_the_issue_has_a_card_and_a_recipe_for_both_methods():
    assert set(CARDS) == {6, 8, 12, 16, 24, 32}
    assert all(find_gpu(name).vram_gb == gb for gb, name in CARDS.items())
    found = rows(pages.blocks(HARDWARE_PAGE.read_text(encoding="utf-8"))["recipes"])
    assert len(found) == 2 * len(CARDS)


def test_recipes_of_practitioners_recompute_activations_and_page_states_below_16_gb():
    for one in PRACTICE:
        for claim in one.claims:
            assert claim.configuration.activation_checkpointing
            assert (claim.optimizer == "paged_adamw_8bit") == (one.gb < 16)


def test_a_model_is_left_out_of_a_recipe_only_when_its_weights_alone_are_too_large():
    assert _hopeless("Qwen/Qwen3-32B", "lora", find_gpu("RTX 5090").usable_bytes)
    assert not _hopeless("Qwen/Qwen3-14B", "qlora", find_gpu("RTX 3060 12GB").usable_bytes)
