"""A page in the terminal hides no text, and columns of numbers stay columns of numbers."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agents.blocks import Cell, Document, Table, to_html, to_markdown
from flows.cli.pages import Page


def printed(markdown: str, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, emoji=False, markup=False).print(Page(markdown))
    return out.getvalue()


@pytest.mark.parametrize("cell", ["小模型走同一流程，几分钟内发现数据和设置的问题" * 2, "raw/" + "x" * 90 + ".csv"])
def test_a_cell_without_spaces_is_shown_whole(cell: str):
    page = printed(f"| parameter | why |\n|---|---|\n| model | {cell} |\n", 40)
    assert "…" not in page
    below_the_line = "".join(page.partition("──")[2].replace("─", "").replace("model", "").split())
    assert below_the_line == cell


def test_an_empty_cell_among_numbers_leaves_the_column_one_of_numbers():
    rows = [[Cell("a"), Cell("1", number=True)], [Cell("b"), Cell("")]]
    document = Document("t", "en", [Table(["name", "count"], rows)])
    assert "|---|---:|" in to_markdown(document)
    assert '<th scope="col" class=number>count</th>' in to_html(document)
