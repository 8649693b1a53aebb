"""What the page says about rules of thumb is what the account says, and the catalog has the small cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.hardware import find_gpu, gpus
from tasks.advising import pages
from tasks.advising.claims import Claim
from tasks.advising.rules import RULES, judged

ROOT = Path(__file__).parents[2]
RULES_PAGE = ROOT / "docs" / "rules-of-thumb.md"


def rows(text: str) -> list[str]:
    """The body of a Markdown table."""
    return [line for line in text.splitlines() if line.startswith("| ")][2:]


def test_every_rule_of_thumb_stands_in_the_page_with_its_reason():
    found = rows(pages.blocks(RULES_PAGE.read_text(encoding="utf-8"))["rules"])
    assert len(found) == len(RULES)
    for row, rule in zip(found, RULES, strict=True):
        assert row.startswith(f"| {rule.rule} |")
        assert row.endswith(f"| {rule.why} |")
        assert ("| right |" in row) != ("| **wrong** |" in row)


def test_a_row_of_the_page_is_what_the_account_says_now():
    """The rules about one family: recorded in seconds. All of them are compared in the slow test."""
    rule = next(r for r in RULES if r.rule.startswith("13B LoRA"))
    row = rows(pages.rules_table(judged(rules=[rule])))
    assert row[0] in pages.blocks(RULES_PAGE.read_text(encoding="utf-8"))["rules"].splitlines()


@pytest.mark.slow
def test_the_table_of_rules_is_what_the_account_says_now():
    assert pages.rules_table(judged()) == pages.blocks(RULES_PAGE.read_text(encoding="utf-8"))["rules"]


def test_laptops_are_found_by_the_name_of_their_driver_and_do_not_take_the_name_of_the_desktop_card():
    assert find_gpu("NVIDIA GeForce RTX 4090 Laptop GPU").laptop
    for name in ("RTX 4090", "RTX 3060", "RTX 3050", "RTX 4060", "RTX 5080", "RTX 5070 Ti", "RTX 3070", "RTX 3080"):
        assert not find_gpu(name).laptop, name


def test_every_card_of_the_catalog_names_its_source_and_none_is_there_twice():
    names = [g.name for g in gpus()]
    assert len(set(names)) == len(names)
    assert all(g.source.strip() for g in gpus())
    small = [g for g in gpus() if g.laptop or g.vram_gb == 6]
    assert len(small) >= 15
    assert all("techpowerup.com" in g.source for g in small)


def test_less_can_be_used_of_a_laptop_card_than_of_the_same_size_on_a_desk():
    assert find_gpu("RTX 4060 Laptop").usable_bytes < find_gpu("RTX 4060").usable_bytes


def test_a_claim_takes_the_types_that_its_card_can_compute():
    old = Claim(model="Qwen/Qwen2.5-3B", gpu="RTX 2060 6GB", method="lora", micro_batch=1, seq_len=512)
    assert (old.configuration.weights, old.configuration.compute) == ("fp16", "amp-fp16")
