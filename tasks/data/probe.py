"""A quick look at the sources before anything runs: what is there, and every problem at once. No model needed."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import Field

from specs.base import Strict
from specs.errors import Problem, SourceError
from specs.project import AnySource, FaultCodes, Manuals, Notes, Project, SensorLogs, WorkOrders
from tasks.data.documents import read_document
from tasks.data.files import source_files
from tasks.data.instructions import records_of
from tasks.data.reading import claimed_files
from tasks.data.records import Intake, SourceFile
from tasks.data.sensors import parse_time
from tasks.data.tables import find_tables, read_grid, read_grids


class SourceSummary(Strict):
    """What a source holds. `rows` are table rows, or blocks of a document."""

    kind: str
    path: str
    files: list[str]
    rows: int = Field(ge=0)
    columns: list[str] = Field(default_factory=list, description="header of the first table")
    encodings: dict[str, str] = Field(default_factory=dict, description="encoding by file")
    skipped: list[str] = Field(default_factory=list, description="files of another type, passed over")


def probe_sources(project_dir: Path, spec: Project) -> tuple[list[SourceSummary], list[Problem]]:
    """A summary per source, and all problems of all files; a file with a problem counts no rows."""
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
                found, header, encodings[file.name] = _probe(file, source, spec)
            except SourceError as error:
                problems.append(_problem(number, source, error))
                continue
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


def _probe(file: SourceFile, source: AnySource, spec: Project) -> tuple[int, list[str], str]:
    """(rows, header, encoding) of one file; raises `SourceError`."""
    if isinstance(source, WorkOrders | FaultCodes):
        columns = {str(name): header for name, header in source.columns.items()}
        tables = find_tables(read_grids(file, source.encoding), columns, file.name, source.sheet)
        return sum(len(t.rows) for t, _ in tables), tables[0][0].header, tables[0][1].encoding
    if isinstance(source, SensorLogs):
        if source.wide:
            grid = read_grid(file, source.encoding)
            return grid.cells.count, [], grid.encoding
        mapped = {c: c for c in (source.timestamp, *source.channels, *filter(None, [source.event]))}
        grid = read_grid(file, source.encoding)
        table, _ = find_tables([grid], mapped, file.name, None)[0]
        zone = ZoneInfo(source.time_zone or spec.time_zone)
        if not any(parse_time(table.value(row, source.timestamp), zone) for row in table.rows):
            raise SourceError(f"{file.name}: no value of {source.timestamp!r} is a time", "use ISO times or epochs")
        return len(table.rows), table.header, grid.encoding
    if isinstance(source, Manuals | Notes):
        document = read_document(file, source.encoding)
        blocks = [block for block in document.blocks if block.kind != "no_text"]
        if not blocks:
            raise SourceError(f"{file.name} holds no text", "provide it with a text layer (OCR), or leave it out")
        return len(blocks), [], document.encoding
    intake = Intake()
    count = sum(1 for _ in records_of(file, source.encoding, intake))
    return count, [], str(intake.decoding[0]["encoding"])
