"""Manual paragraphs: cut at sentence ends toward a target, lists and rows unbroken, nothing lost, lengths alike."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.blocks import Block
from tasks.data.documents import read_document
from tasks.data.paragraphs import cut, sentences
from tasks.data.records import SourceFile
from tasks.prompts import PromptTemplate

EXAMPLES = Path(__file__).parents[2] / "examples"

SENTENCES = {
    'Set No. 5 to 3.5 mm. Then "stop it." Go on (see Fig. 3). `G1` moves.': [
        "Set No. 5 to 3.5 mm.",
        'Then "stop it."',
        "Go on (see Fig. 3).",
        "`G1` moves.",
    ],
    "Use the U.S. plug, approx. 3 m. Wait 5 s. 3 beeps follow. See p. 12.": [
        "Use the U.S. plug, approx. 3 m.",
        "Wait 5 s.",
        "3 beeps follow.",
        "See p. 12.",
    ],
    "Dr. Lee of Acme Co. Ltd. wrote it. e.g. This stays.": ["Dr. Lee of Acme Co. Ltd. wrote it. e.g. This stays."],
    "1. Open it. 2. Close it.": ["1. Open it.", "2. Close it."],
    "他说：“停机。”然后离开。按下（急停。）再检查3.5毫米；最后重启。 它会好。": [
        "他说：“停机。”",
        "然后离开。",
        "按下（急停。）",
        "再检查3.5毫米；",
        "最后重启。",
        "它会好。",
    ],
    "“停机。”，然后检查。版本V2.1.3。": ["“停机。”，然后检查。", "版本V2.1.3。"],
}


@pytest.mark.parametrize(("text", "expected"), SENTENCES.items())
def test_sentences_end_where_a_reader_says_they_end(text: str, expected: list[str]):
    assert sentences(text) == expected


def words(text: str) -> int:
    return sum(1 if c > "\u2fff" else 0 for c in text) + len(text.split())


english = st.sampled_from(["Check the oil level daily.", "Turn No. 5 by 3.5 mm.", "Is it hot?", 'It says "stop."'])
chinese = st.sampled_from(["每天检查油位。", "将3.5毫米的垫片装入5号位；", "温度高吗？", "屏幕显示“停机。”"])
text_block = st.builds(lambda s: Block("text", " ".join(s)), st.lists(english, min_size=1, max_size=12)) | st.builds(
    lambda s: Block("text", "".join(s)), st.lists(chinese, min_size=1, max_size=12)
)
item = st.integers(1, 99).map(lambda n: f"- Use tool {n} and wear gloves")
list_block = st.lists(item, min_size=1, max_size=9).map(lambda items: Block("list", "\n".join(items)))
row = st.integers(1, 99).map(lambda n: f"AL-{n:03d}\tpump {n} fails\treplace it")
table_block = st.lists(row, min_size=1, max_size=9).map(
    lambda rows: Block("table", "\n".join(["code\tmeaning\tfix", *rows]))
)
heading = st.builds(lambda n, level: Block("heading", f"{n} Safety", level), st.integers(1, 9), st.integers(1, 3))
blocks = st.lists(text_block | list_block | table_block | heading, min_size=1, max_size=8)


def visible(text: str) -> Counter[str]:
    return Counter(c for c in text if not c.isspace())


@settings(max_examples=80, deadline=None)
@given(blocks, st.sampled_from([16, 40, 120]))
def test_no_character_is_lost_and_no_item_row_or_sentence_is_broken(found: list[Block], target: int):
    paragraphs = cut(found, target, words)
    assert visible("".join(p.text for p in paragraphs)) == visible("".join(b.text for b in found))
    texts = [line for p in paragraphs for line in p.text.split("\n")]
    for block in found:
        if block.kind in ("list", "table"):
            assert all(line in texts for line in block.text.split("\n"))
        if block.kind == "text":
            assert all(any(s in p.text for p in paragraphs) for s in sentences(block.text))


def test_a_table_that_is_cut_keeps_its_header_and_a_paragraph_its_headings_as_context():
    rows = [f"AL-{n:03d}\tthe pump number {n} fails often\treplace the pump" for n in range(30)]
    table = Block("table", "\n".join(["code\tmeaning\tfix", *rows]))
    parts = cut([Block("heading", "# Alarms", 1), Block("heading", "## Pumps", 2), table], 60, words)
    assert len(parts) > 3
    assert all(p.context.endswith("code\tmeaning\tfix") for p in parts[1:])
    assert all("Alarms > Pumps" in p.context for p in parts[1:])


def test_an_item_as_long_as_a_page_is_cut_at_its_sentences_and_a_short_one_is_not():
    long = "- " + " ".join(f"Measure the winding {n} and write the value down." for n in range(40))
    short = "- Clean the filter. Dry it. Put it back."
    parts = cut([Block("list", f"{long}\n{short}")], 60, words)
    assert len(parts) > 4
    assert all(p.text.endswith(".") for p in parts)
    assert sum(short in p.text for p in parts) == 1


@pytest.mark.parametrize("example", ["cnc-repair", "cnc-repair-zh"])
@pytest.mark.parametrize("target", [96, 128])
def test_lengths_of_running_prose_spread_by_at_most_a_quarter(example: str, target: int, tiny_model: Path):
    template = PromptTemplate.load(tiny_model)
    path = EXAMPLES / example / "raw" / "manual.pdf"
    body = [b for b in read_document(SourceFile(path.name, path)).blocks if b.kind not in ("furniture", "no_text")]
    parts = cut(body, target, lambda text: len(template.encode("", text).input_ids))
    lengths = [len(template.encode("", p.sample_text()).input_ids) for p in parts]
    assert len(lengths) > 10
    assert statistics.pstdev(lengths) / statistics.fmean(lengths) <= 0.25


@given(st.lists(st.tuples(st.sampled_from(["heading", "text"]), st.booleans()), min_size=1, max_size=12))
def test_what_was_recognised_from_a_picture_is_never_in_a_paragraph_with_digital_text(made):
    words = [f"{'scanned' if seen else 'digital'} words {i}." for i, (_, seen) in enumerate(made)]
    blocks = [Block(kind, words[i], 1, i + 1, seen) for i, (kind, seen) in enumerate(made)]
    paragraphs = cut(blocks, 400, lambda text: len(text.split()))
    assert all(("scanned" in p.text) != ("digital" in p.text) for p in paragraphs)
    assert sorted(" ".join(p.text for p in paragraphs).split()) == sorted(" ".join(b.text for b in blocks).split())
