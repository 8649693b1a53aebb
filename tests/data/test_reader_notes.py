"""What a reader counts is told: no count of a reader is without its words, in both languages."""

from __future__ import annotations

import ast
from pathlib import Path

from tasks.data import summary
from tasks.data.reader_notes import READER_NOTES

FOLDER = Path(summary.__file__).parent


def counted_names() -> set[str]:
    """The keys of `noticed` and of `counts`, as they stand in the code of the readers."""
    found = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
                key = node.slice.value if isinstance(node.slice, ast.Constant) else None
                if node.value.attr in ("noticed", "counts") and isinstance(key, str):
                    found.add(key)
    by_other_names = {"formula_cells", "error_cells", "zeros_of_format", "nan_values", "pdf_tables"}
    return found | by_other_names | {"backslash_quotes", "keys_not_read"}


def test_everything_that_a_reader_counts_has_words_in_both_languages():
    told = {**summary._NOTES, **READER_NOTES}
    assert counted_names() <= set(told) | {"merged_cells_filled"}
    assert set(READER_NOTES) <= counted_names() | {"merged_cells_filled"}
    assert all(set(text) == {"en", "zh"} and all("{n}" in t for t in text.values()) for text in READER_NOTES.values())
