"""Work orders and fault codes: every row becomes a draft or gets its fate; codes are joined many-to-one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from specs.sources import FaultCodes, WorkOrders
from tasks.data.colloquial import divide_action, split_steps
from tasks.data.grid import FlawedRow, Grid
from tasks.data.grids import read_grids
from tasks.data.joins import Joined, refuse_doubled
from tasks.data.people import people_columns, people_in
from tasks.data.records import Draft, Fate, Intake, SourceFile, Unit
from tasks.data.row_checks import Fate as RowFate
from tasks.data.row_checks import RowCheck, field_text
from tasks.data.synonyms import NEEDED
from tasks.data.tables import Table, find_tables, normal


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One fault code of the table: what it means, why it comes, what to do."""

    code: str
    device_model: str
    meaning: str
    cause: str
    remedy: str


@dataclass(slots=True)
class CodeTable:
    """Fault codes by normalised code and device model; lookups are many-to-one."""

    entries: dict[tuple[str, str], CodeEntry] = field(default_factory=dict)
    contradicted: set[tuple[str, str]] = field(default_factory=set)
    by_code: dict[str, dict[str, CodeEntry]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for key, entry in self.entries.items():
            self.put(key, entry)

    def put(self, key: tuple[str, str], entry: CodeEntry) -> None:
        """The entry of a code and device model, both normalised."""
        self.entries[key] = entry
        self.by_code.setdefault(key[0], {})[key[1]] = entry

    def drop(self, key: tuple[str, str]) -> None:
        """Forget a code that has two meanings."""
        self.entries.pop(key, None)
        self.by_code.get(key[0], {}).pop(key[1], None)

    def find(self, code: str, device_model: str = "") -> CodeEntry | None:
        """The entry of a code: of this device model, else of all models, else the only one there is."""
        known = self.by_code.get(code_key(code)) if code else None
        if not known:
            return None
        exact = known.get(normal(device_model)) or known.get("")
        if exact or device_model:
            return exact
        return next(iter(known.values())) if len(known) == 1 else None

    def codes(self) -> list[str]:
        """Every code, longest first, so that a search prefers the longer of two that begin alike."""
        return sorted({entry.code for entry in self.entries.values()}, key=lambda c: (-len(c), c))


@lru_cache(maxsize=65536)
def code_key(code: str) -> str:
    """A fault code for lookups: NFKC, case folded, without spaces, dashes and a leading word such as `alarm`."""
    text = re.sub(r"[\s\-_]+", "", unicodedata.normalize("NFKC", code).casefold())
    return re.sub(r"^(?:alarm|alm|error|code|报警|代码|故障码)[.:：#]?(?=.)", "", text)


def read_tables(file: SourceFile, source: WorkOrders | FaultCodes, intake: Intake) -> list[Table]:
    """The mapped tables of a file, one per sheet that has them; what decoding counted goes to the intake."""
    grids = read_grids(file, source.encoding)
    columns = {str(name): header for name, header in source.columns.items()}
    found = find_tables(grids, columns, file.name, source.sheet)
    for table, grid in found:
        intake.decoding.append(decoding_entry(file.name, grid))
        intake.counts.update(grid.noticed)
        intake.counts.update({"merged_cells_filled": table.filled} if table.filled else {})
    read = {grid.sheet for _, grid in found}
    for grid in grids:
        if grid.sheet not in read:
            count = sum(any(cell.strip() for cell in row) for row in grid.cells)
            intake.sheets_not_read.append(f"{file.name}, {grid.sheet!r} ({count})")
    return [table for table, _ in found]


def _rows(
    file: SourceFile, source: WorkOrders | FaultCodes, intake: Intake
) -> Iterator[tuple[Unit, Table, list[str], RowFate | None]]:
    """Every row with its table, and its fate where it cannot become a sample."""
    for table in read_tables(file, source, intake):
        check = RowCheck(table, source.kind, NEEDED[source.kind], file.name)
        for number, row in enumerate(table.rows, start=1):
            original = row.original if isinstance(row, FlawedRow) else "\t".join(row)
            location = table.location(number)
            yield Unit(file.name, location, original), table, row, check.problem(row, location)


def decoding_entry(name: str, grid: Grid) -> dict[str, object]:
    """One file's line of `decoding.json`."""
    return {
        "source": name,
        "sheet": grid.sheet,
        "encoding": grid.encoding,
        "found_by": grid.found_by,
        "characters_in": grid.characters_in,
        "characters_out": grid.characters_out,
        "replacement_characters": grid.replaced,
        "dialect": grid.dialect,
    }


def read_fault_codes(file: SourceFile, source: FaultCodes, intake: Intake, codes: CodeTable) -> None:
    """Rows of a fault-code table. Rows that give one code two contents are all quarantined: none can be trusted.

    That holds over files too: rows of an earlier file that a later one contradicts are taken back.
    """
    seen: dict[tuple[str, str], list[tuple[Unit, CodeEntry]]] = {}
    for unit, table, row, problem in _rows(file, source, intake):
        text = {name: field_text(table.value(row, name)) for name in ("fault_type", "meaning", "cause", "remedy")}
        device_model = field_text(table.value(row, "device_model")) or source.device_model or ""
        entry = CodeEntry(text["fault_type"], device_model, text["meaning"], text["cause"], text["remedy"])
        if problem:
            intake.drop(unit, *problem)
        else:
            seen.setdefault((code_key(entry.code), normal(entry.device_model)), []).append((unit, entry))
    doubled: dict[str, list[str]] = {}
    for key, rows in seen.items():
        contents = {tuple(normal(t) for t in (e.meaning, e.cause, e.remedy)) for _, e in rows}
        known = codes.entries.get(key)
        if known:
            contents.add(tuple(normal(t) for t in (known.meaning, known.cause, known.remedy)))
        if len(contents) > 1 or key in codes.contradicted:
            codes.contradicted.add(key)
            codes.drop(key)
            doubled[rows[0][1].code] = [unit.location for unit, _ in rows]
            for unit in [*_take_back(key, intake), *(unit for unit, _ in rows)]:
                intake.drop(unit, "quarantined", "code_with_two_meanings")
            continue
        codes.put(key, rows[0][1])
        intake.drafts.extend(_code_draft(unit, entry) for unit, entry in rows)
    if doubled and source.doubled_codes == "error":
        refuse_doubled(file.name, doubled)
    intake.doubled_codes.extend(code for code in sorted(doubled) if code not in intake.doubled_codes)


def _take_back(key: tuple[str, str], intake: Intake) -> list[Unit]:
    """Remove the drafts of a code that was read before; returns their units."""
    mine = [
        d for d in intake.drafts if d.kind == "fault_code" and (code_key(d.fault_type), normal(d.device_model)) == key
    ]
    gone = {draft.unit.key for draft in mine}
    intake.drafts[:] = [draft for draft in intake.drafts if draft.unit.key not in gone]
    return [draft.unit for draft in mine]


def _code_draft(unit: Unit, entry: CodeEntry) -> Draft:
    return Draft(
        unit=unit,
        kind="fault_code",
        device_model=entry.device_model,
        phenomenon=entry.meaning,
        steps=(entry.cause,) if entry.cause else (),
        repair=entry.remedy,
        fault_type=entry.code,
    )


def read_work_orders(file: SourceFile, source: WorkOrders, intake: Intake, codes: CodeTable) -> None:
    """Rows of a work-order table, joined with the fault codes, into the intake."""
    for outcome in iter_work_orders(file, source, intake, codes):
        if isinstance(outcome, Fate):
            intake.drop(outcome.unit, outcome.fate, outcome.reason)
        else:
            intake.drafts.append(outcome)


def iter_work_orders(file: SourceFile, source: WorkOrders, intake: Intake, codes: CodeTable) -> Iterator[Draft | Fate]:
    """What becomes of each row, in order: a draft joined with the fault codes, or its fate. Counts go to the intake."""
    columns: dict[str, list[int]] = {}
    for unit, table, row, problem in _rows(file, source, intake):
        if table.sheet not in columns:
            columns[table.sheet] = _people_columns(table, intake)
        yield (
            Fate(unit, *problem)
            if problem
            else _order_draft(unit, table, row, source, codes, intake, columns[table.sheet])
        )


def _people_columns(table: Table, intake: Intake) -> list[int]:
    """The columns that name people and are mapped to nothing, counted."""
    found = [at for at in people_columns(table.header) if at not in table.columns.values()]
    intake.counts["people_columns"] += len(found)
    return found


def _order_draft(
    unit: Unit,
    table: Table,
    row: Sequence[str],
    source: WorkOrders,
    codes: CodeTable,
    intake: Intake,
    people_at: Sequence[int],
) -> Draft:
    value: Mapping[str, str] = {name: field_text(table.value(row, name)) for name in table.columns}
    steps, repair = split_steps(value.get("steps", "")), value["repair"]
    if not steps:
        parts = divide_action(repair)
        steps, repair = parts.steps, parts.repair
        intake.counts["steps_from_repair"] += bool(steps)
    code, device_model = value.get("fault_type", ""), value.get("device_model", "") or source.device_model or ""
    people = tuple(name for at in people_at if at < len(row) for name in people_in(row[at]))
    entry = codes.find(code, device_model)
    if code and (codes.entries or codes.contradicted):
        intake.joins.setdefault(unit.source, Joined()).count(code, entry is not None)
        intake.counts["unexplained_codes"] += entry is None
    draft = Draft(
        unit,
        "work_order",
        device_model,
        value["phenomenon"],
        steps,
        repair,
        fault_type=code,
        date=value.get("date", ""),
        people=people,
    )
    if entry is None:
        return draft
    return replace(draft, fault_type=entry.code, meaning=entry.meaning if source.code_meaning == "in_prompt" else "")
