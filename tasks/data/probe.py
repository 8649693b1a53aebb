"""A quick look at the sources before anything runs: what is there, and every problem at once. No model needed."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import Field

from specs.base import Strict
from specs.errors import Problem, SourceError
from specs.project import Project
from specs.sources import AnySource, FaultCodes, Manuals, Notes, SensorLogs, WorkOrders
from tasks.data.clock import parse_time
from tasks.data.documents import read_document
from tasks.data.files import source_files
from tasks.data.grids import read_grid, read_grids
from tasks.data.instructions import records_of
from tasks.data.mapping import PREVIEW_ROWS, propose_mapping
from tasks.data.ocr import require_ocr
from tasks.data.reading import claimed_files
from tasks.data.records import Intake, SourceFile
from tasks.data.tables import find_tables


class SourceSummary(Strict):
    """What a source holds. `rows` are table rows, or blocks of a document."""

    kind: str
    path: str
    files: list[str]
    rows: int = Field(ge=0)
    columns: list[str] = Field(default_factory=list, description="header of the first table")
    encodings: dict[str, str] = Field(default_factory=dict, description="encoding by file")
    skipped: list[str] = Field(default_factory=list, description="files of another type, passed over")


def probe_sources(
    project_dir: Path, spec: Project, previews: dict[int, list[dict[str, str]]] | None = None
) -> tuple[list[SourceSummary], list[Problem]]:
    """A summary per source, and all problems of all files; a file with a problem counts no rows.

    `previews` takes the first mapped rows of each table source, by its position. They are no part of the summaries:
    those go to the agent, and raw rows may hold personal data.
    """
    summaries: list[SourceSummary] = []
    problems: list[Problem] = []
    for number, source in enumerate(spec.sources):
        try:
            files, skipped = source_files(project_dir, source)
        except SourceError as error:
            problems.append(_problem(number, source, error))
            continue
        rows = 0
        columns: list[str] = []
        encodings: dict[str, str] = {}
        for file in files:
            try:
                found, header, encodings[file.name], rows_seen = _probe(file, source, spec)
            except SourceError as error:
                problems.append(_problem(number, source, _with_proposal(error, file, source, spec)))
                continue
            if previews is not None and rows_seen:
                previews.setdefault(number, rows_seen)
            rows += found
            columns = columns or header
        summaries.append(
            SourceSummary(
                kind=source.kind,
                path=source.path,
                files=[f.name for f in files],
                rows=rows,
                columns=columns,
                encodings=encodings,
                skipped=skipped,
            )
        )
    if not problems:
        try:
            claimed_files(project_dir, spec)
        except SourceError as error:
            problems.append(Problem("project.yaml", None, "sources", "", error.message, error.hint))
    return summaries, problems


def _problem(number: int, source: AnySource, error: SourceError) -> Problem:
    return Problem("project.yaml", None, f"sources[{number}]", source.path, error.message, error.hint)


def _with_proposal(error: SourceError, file: SourceFile, source: AnySource, spec: Project) -> SourceError:
    """For a table that can be read, and not with this mapping: as much of a mapping as fits, added to the way out."""
    if isinstance(source, SensorLogs):
        return _with_times(error, file, source, spec)
    if not isinstance(source, WorkOrders | FaultCodes):
        return error
    found = propose_mapping(file, source.kind, spec.language, source.encoding, source.sheet)
    if found is None or not found.columns:
        return error
    fits = "a mapping that fits" if not found.missing else "what fits so far; the rest is for you to find"
    return SourceError(error.message, f"{error.hint}\n    {fits}:\n{found.text()}")


def _with_times(error: SourceError, file: SourceFile, source: SensorLogs, spec: Project) -> SourceError:
    """For a log that can be read, and not with these columns: where its times are, or what it is without any."""
    if source.wide:
        return error
    try:
        head = read_grid(file, source.encoding).cells.head(_ROWS_OF_A_LOG)
    except SourceError:
        return error
    if len(head) > 1 and all(_is_number(cell) for row in head for cell in row):
        hint = (
            "its first row holds numbers, so it has no header: if each row is a cycle, add wide: {seconds_per_row: ...}"
        )
        return SourceError(error.message, f"{hint}; else write the names of the columns above them")
    zone = ZoneInfo(source.time_zone or spec.time_zone)
    times = [
        name
        for at, name in enumerate(head[0] if head else [])
        if len(head) > 1 and all(at < len(row) and parse_time(row[at], zone) is not None for row in head[1:])
    ]
    if source.timestamp in times:
        return error
    found = f"add timestamp: {times[0]}" if times else "no column holds times in every row, and a sensor log needs one"
    return SourceError(error.message, f"{error.hint}\n    {found}")


_ROWS_OF_A_LOG = 20


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


Probed = tuple[int, list[str], str, list[dict[str, str]]]
"""(rows, header, encoding, first mapped rows)"""


def _probe(file: SourceFile, source: AnySource, spec: Project) -> Probed:
    """What one file holds; raises `SourceError`."""
    if isinstance(source, WorkOrders | FaultCodes):
        return _probe_tables(file, source)
    if isinstance(source, SensorLogs):
        return _probe_log(file, source, spec)
    if isinstance(source, Manuals | Notes):
        return _probe_document(file, source)
    intake = Intake()
    count = sum(1 for _ in records_of(file, source.encoding, intake))
    return count, [], str(intake.decoding[0]["encoding"]), []


def _probe_tables(file: SourceFile, source: WorkOrders | FaultCodes) -> Probed:
    columns = {str(name): header for name, header in source.columns.items()}
    tables = find_tables(read_grids(file, source.encoding), columns, file.name, source.sheet)
    table, grid = tables[0]
    rows = [{name: table.value(row, name) for name in table.columns} for row in table.rows.head(PREVIEW_ROWS)]
    return sum(len(t.rows) for t, _ in tables), table.header, grid.encoding, rows


def _probe_log(file: SourceFile, source: SensorLogs, spec: Project) -> Probed:
    grid = read_grid(file, source.encoding)
    if source.wide:
        return grid.cells.count, [], grid.encoding, []
    mapped = {c: c for c in (source.timestamp, *source.channels, *filter(None, [source.event]))}
    table, _ = find_tables([grid], mapped, file.name, None)[0]
    zone = ZoneInfo(source.time_zone or spec.time_zone)
    if all(parse_time(table.value(row, source.timestamp), zone) is None for row in table.rows):
        raise SourceError(f"{file.name}: no value of {source.timestamp!r} is a time", "use ISO times or epochs")
    return len(table.rows), table.header, grid.encoding, []


def _probe_document(file: SourceFile, source: Manuals | Notes) -> Probed:
    """Pages that are pictures are counted and not recognised here: that takes seconds for each."""
    document = read_document(file, source.encoding)
    blocks = [block for block in document.blocks if block.kind not in ("no_text", "furniture")]
    pictures = sum(block.kind == "no_text" for block in document.blocks)
    if pictures and isinstance(source, Manuals) and source.ocr:
        require_ocr(file.name)
        return len(blocks) + pictures, [], document.encoding, []
    if not blocks:
        way_out = "set ocr: true for this source, or leave the file out" if pictures else "leave the file out"
        raise SourceError(f"{file.name} holds no text" + (": its pages are pictures" if pictures else ""), way_out)
    return len(blocks), [], document.encoding, []
