"""All sources of a project into one intake: fault codes first, because the other kinds are joined with them."""

from __future__ import annotations

from pathlib import Path

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.sources import AnySource, FaultCodes, Instructions, Manuals, Notes, SensorLogs, WorkOrders
from specs.stages import Progress
from tasks.data.documentary import Count, Known, read_manual, read_notes
from tasks.data.files import source_files
from tasks.data.instructions import read_instructions
from tasks.data.records import Intake, Sink, SourceFile
from tasks.data.sensors import SensorRules, read_sensor_log
from tasks.data.tabular import CodeTable, read_fault_codes, read_work_orders

ORDER = ("fault_codes", "work_orders", "sensor_logs", "manuals", "notes", "instructions")


def claimed_files(project_dir: Path, spec: Project) -> tuple[list[tuple[AnySource, SourceFile]], int]:
    """(source, file) in reading order, and the number of files passed over as of another type.

    Raises `SourceError` when two sources claim the same file (or the same sheet of a workbook).
    """
    pairs: list[tuple[AnySource, SourceFile]] = []
    claimed: dict[str, set[str | None]] = {}
    skipped = 0
    for source in spec.sources:
        files, passed_over = source_files(project_dir, source)
        skipped += len(passed_over)
        for file in files:
            sheet = getattr(source, "sheet", None)
            others = claimed.setdefault(file.name, set())
            if others and (sheet is None or others & {sheet, None}):
                raise SourceError(
                    f"{file.name} belongs to two sources", "narrow one path in project.yaml, or name a sheet for each"
                )
            others.add(sheet)
            pairs.append((source, file))
    return sorted(pairs, key=lambda pair: ORDER.index(pair[0].kind)), skipped


def read_sources(
    project_dir: Path,
    spec: Project,
    parameters: DataParameters,
    count: Count,
    progress: Progress,
    sink: Sink | None = None,
) -> Intake:
    """Read every file of every source. Raises `SourceError` for the first file that cannot be read.

    With a `sink`, drafts and fates go there in shards while the files are read, and none stay in the intake.
    """
    intake, codes = Intake(sink=sink), CodeTable()
    pairs, skipped = claimed_files(project_dir, spec)
    intake.counts["files_passed_over"] += skipped
    rules = SensorRules(parameters.window_s, parameters.fault_horizon_s, spec.language, spec.time_zone)
    progress.start("read sources", len(pairs))
    for source, file in pairs:
        if isinstance(source, FaultCodes):
            read_fault_codes(file, source, intake, codes)
        elif isinstance(source, WorkOrders):
            read_work_orders(file, source, intake, codes)
        elif isinstance(source, SensorLogs):
            read_sensor_log(file, source, intake, codes, rules)
        elif isinstance(source, Manuals):
            read_manual(file, source, intake, parameters.paragraph_tokens, count)
        elif isinstance(source, Notes):
            read_notes(file, source, intake, _known(intake, codes))
        elif isinstance(source, Instructions):
            read_instructions(file, source, intake, parameters)
        progress.advance(note=file.name)
    intake.flush()
    return intake


def _known(intake: Intake, codes: CodeTable) -> Known:
    return Known(sorted(intake.known_models()), codes)
