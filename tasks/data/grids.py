"""Any table file as grids of text: by its ending, CSV, TSV, workbook, JSON, JSONL, Parquet, or the tables of a PDF."""

from __future__ import annotations

from collections.abc import Callable

from specs.errors import SourceError
from tasks.data.delimited import read_delimited
from tasks.data.encoding import decode
from tasks.data.files import base_name, read_bytes
from tasks.data.grid import Grid
from tasks.data.records import SourceFile


def read_grids(file: SourceFile, declared: str = "auto") -> list[Grid]:
    """Every sheet of a file. Raises `SourceError` for bytes that are no table."""
    reader = _BINARY.get(base_name(file.name).rpartition(".")[2])
    if reader:
        return reader(file)
    decoded = decode(read_bytes(file), file.name, declared)
    if base_name(file.name).endswith((".json", ".jsonl")):
        from tasks.data.structured import read_json_grids, read_jsonl_grid

        return (
            [read_jsonl_grid(decoded, file.name)]
            if base_name(file.name).endswith(".jsonl")
            else read_json_grids(decoded, file.name)
        )
    return [read_delimited(decoded, file.name)]


def read_grid(file: SourceFile, declared: str = "auto") -> Grid:
    """The only table of a file that has just one, such as a sensor log. Raises `SourceError` when it has more."""
    grids = read_grids(file, declared)
    if len(grids) != 1:
        raise SourceError(f"{file.name} holds {len(grids)} tables", "keep one table in the file")
    return grids[0]


def _workbook(file: SourceFile) -> list[Grid]:
    from tasks.data.workbooks import read_workbook

    return read_workbook(file)


def _parquet(file: SourceFile) -> list[Grid]:
    from tasks.data.columnar import read_parquet

    return [read_parquet(file)]


def _pdf(file: SourceFile) -> list[Grid]:
    from tasks.data.pdf_tables import read_pdf_tables

    return read_pdf_tables(file)


_BINARY: dict[str, Callable[[SourceFile], list[Grid]]] = {
    "xlsx": _workbook,
    "xls": _workbook,
    "parquet": _parquet,
    "pdf": _pdf,
}
