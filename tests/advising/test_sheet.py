"""A purchase sheet names everything to ask for, in both languages and formats, and nothing in it can break the page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from specs.hardware import find_gpu
from tasks.advising.cards import Hours, Row
from tasks.advising.sheet import html, markdown, sections
from tasks.memory.account import assemble
from tasks.memory.devices import named
from tasks.planning.plans import Configuration, Plan

VERSIONS = {"torch": "2.13.0", "peft": "0.21.0"}


def row(gpu: str = "RTX 4090", cards: int = 1) -> Row:
    """A card with a plan that fits."""
    account = assemble(
        {"backward": {"weights": 14 * 2**30}},
        framework_bytes=2**29,
        library_bytes=0,
        host_fixed_bytes=16 * 10**9,
        disk_bytes=4 * 10**9,
        trainable_parameters=40_000_000,
        total_parameters=7_000_000_000,
        method="derived",
        micro_batch=1,
        seq_len=1024,
        notes=[],
    ).on(named(gpu))
    values: dict[str, Any] = {"method": "lora", "weights": "bf16", "compute": "amp-bf16", "optimizer": "adamw_fused"}
    values |= {"micro_batch": 1, "gradient_accumulation": 8, "data_ranks": cards, "seq_len": 1024}
    values |= {"sharding": "none" if cards == 1 else "ddp"}
    plan = Plan(
        configuration=Configuration(**values, activation_checkpointing=True, attention="sdpa"),
        account=account,
        utilisation=0.61,
        seconds=None,
        duration=None,
    )
    card = find_gpu(gpu)
    usable = card.usable_bytes
    return Row(
        gpu=card.name, cards=cards, laptop=card.laptop, usable_bytes=usable, watts_per_card=card.tdp_w, plan=plan
    )


class Cells(HTMLParser):
    """Texts of a page, and whether every tag that was opened was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_sheet_holds_the_same_facts_in_markdown_and_html(language: Any):
    found = sections("cnc-repair", "Qwen/Qwen3-8B", row(), VERSIONS, language)
    page, text = Cells(), markdown("cnc-repair", row(), found, language)
    page.feed(html("cnc-repair", row(), found, language))
    assert page.open == []
    seen = " ".join(page.texts)
    for section in found:
        assert section.title in page.texts
        assert f"## {section.title}" in text
        for label, value in section.rows:
            assert label in text
            assert value in text
            if label:
                assert {label, value} <= set(page.texts)
            else:  # an item of a list, whose commands are set apart
                assert " ".join(part.strip() for part in value.split("`") if part.strip()) in seen
    assert "20 GB" in text, "host memory with room: 16 GB times 1.25"
    assert "0.68 kW" in text, "450 W times 1.5"
    assert "2.13.0" in text


def test_everything_that_a_vendor_is_asked_for_has_its_place():
    card = find_gpu("A100 PCIe 80GB")
    found = {s.title: s.rows for s in sections("p", "m", row(card.name, 2), VERSIONS, "en")}
    values = {title: " ".join(f"{label} {value}" for label, value in rows) for title, rows in found.items()}
    assert "80 GB" in values["Capacity"]
    assert f"{card.usable_bytes / 2**30:.1f} GiB" in values["Capacity"], "as the card's driver and torch say it"
    assert f"{card.memory_bandwidth_gb_s:g} GB/s" in values["Compute and bandwidth"]
    assert f"{card.bf16_dense_tflops:g} TFLOPS" in values["Compute and bandwidth"]
    assert "NVLink bridge" in values["Interconnect"]
    assert "PCIe 4.0 x16" in values["Interconnect"]
    assert "host memory" in values["Host memory and disk"]
    assert "free disk" in values["Host memory and disk"]
    assert "peft 0.21.0" in values["Software"]
    assert "300 W" in values["Power and cooling"]
    assert "heat" in values["Power and cooling"]
    assert all(
        word in values["To be demonstrated before acceptance"] for word in ("trial", "Xid", "30 minutes", "kill")
    )
    assert card.source in values["Sources"]
    assert {s.title for s in sections("p", "m", row(card.name, 2), VERSIONS, "zh")}.isdisjoint(values)


def test_a_run_of_minutes_and_one_of_weeks_have_their_hours():
    for low, high, said in ((0.0168, 0.0172, "0.0168 to 0.0172 hours"), (1.5, 1234.5, "1.5 to 1234 hours")):
        took = Hours(expected=high, low=low, high=high)
        found = sections("p", "m", row().model_copy(update={"hours": took}), VERSIONS, "en")
        assert said in dict(found[0].rows).values()


def test_topology_is_asked_for_where_cards_exchange_and_only_there():
    def text(cards: int) -> str:
        one = row(cards=cards)
        return markdown("p", one, sections("p", "m", one, VERSIONS, "en"), "en")

    assert "topo -m" in text(2)
    assert "topo -m" not in text(1)
    assert "one card" in text(1)


def test_a_laptop_is_asked_for_its_power_limit():
    one = row("RTX 4090 Laptop")
    assert "power limit that this model sets" in markdown("p", one, sections("p", "m", one, VERSIONS, "en"), "en")


def test_a_name_cannot_break_the_page():
    name = "<b>a|b</b>"
    found = sections("p", name, row(), VERSIONS, "en")
    assert "<b>" not in html("p", row(), found, "en")
    assert "a\\|b" in markdown("p", row(), found, "en")
    assert "<b>" not in markdown("p", row(), found, "en")


def test_there_is_no_sheet_without_a_plan():
    with pytest.raises(ValueError, match="needs a plan"):
        sections("p", "m", row().model_copy(update={"plan": None}), VERSIONS, "en")
