"""Examples are found by name and language, and their makers make them again, byte for byte."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from examples.catalog import list_examples, locate
from examples.make.__main__ import write_examples
from specs.errors import InputError

ROOT = Path(__file__).parents[2] / "examples"


def test_examples_are_found_by_name_and_language():
    assert [(e.name, e.language) for e in list_examples()] == [("cnc-repair", "en"), ("cnc-repair", "zh")]
    assert locate("cnc-repair").name == "cnc-repair"
    assert locate("cnc-repair", "zh").name == "cnc-repair-zh"
    assert locate("cnc-repair-zh").name == "cnc-repair-zh"
    for example in list_examples():
        assert (example.folder / "project.yaml").is_file()
        assert (example.folder / "README.md").is_file()


@pytest.mark.parametrize(("name", "language"), [("cnc", "en"), ("cnc-repair", "fr"), ("../cnc-repair", "en")])
def test_an_unknown_example_lists_what_there_is(name, language):
    with pytest.raises(InputError) as caught:
        locate(name, language)
    assert "cnc-repair (en), cnc-repair (zh)" in caught.value.hint


def test_the_makers_make_what_is_committed(tmp_path):
    write_examples(tmp_path)
    made = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    committed = sorted(p.relative_to(ROOT) for e in list_examples() for p in (e.folder / "raw").rglob("*"))
    assert made == sorted([*committed, Path("make/planted.json")])
    for path in made:
        assert content(tmp_path / path) == content(ROOT / path), path


def content(path: Path) -> object:
    """Bytes; of office files the bytes of their parts, since another zlib packs them otherwise."""
    data = path.read_bytes()
    if path.suffix not in (".xlsx", ".docx"):
        return data
    archive = zipfile.ZipFile(io.BytesIO(data))
    return {i.filename: (i.date_time, archive.read(i.filename)) for i in archive.infolist()}
