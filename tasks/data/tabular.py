"""Work orders and fault codes: every row becomes a draft or gets its fate; codes are joined many-to-one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specs.project import FaultCodes, WorkOrders
from tasks.data.colloquial import divide_action, split_steps
from tasks.data.grid import FlawedRow
from tasks.data.records import Draft, FateName, Intake, SourceFile, Unit
from tasks.data.tables import Grid, Table, find_tables, normal, read_grids

_NULLS = frozenset({"", "-", "--", "---", "—", "/", "\\", "n/a", "none", "null", "nan", "nil", "?", "无", "暂无", "空"})
_NULL_TEXTS = _NULLS | {"na", "不详", "未填", "未知", "unknown"}
_PLACEHOLDER = re.compile(
    r"(?:test|testing|asdf\w*|qwer\w*|x{2,}|\.+|tbd|todo|测试|待定|待补充|#(?:ref|n/a|value)[!?]?)", re.I
)
_UNFINISHED = re.compile(
    r"(?:still )?(?:open|pending|waiting(?: for parts?)?|not (?:yet )?(?:fixed|repaired|done)|in progress)(?: yet)?\.?"
    r"|待处理|未处理|未修复|待维修|处理中|等待备件|待件|未完成",
    re.IGNORECASE,
)
_DAMAGED = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\ue000-\uf8ff]|锟斤拷|烫烫烫|屯屯屯|Ã[\u0080-\u00bf]|â€")


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

    def find(self, code: str, device_model: str = "") -> CodeEntry | None:
        """The entry of a code: of this device model, else of all models, else the only one there is."""
        if not code:
            return None
        key = code_key(code)
        exact = self.entries.get((key, normal(device_model))) or self.entries.get((key, ""))
        if exact:
            return exact
        others = [entry for (known, _), entry in self.entries.items() if known == key]
        return others[0] if len(others) == 1 and not device_model else None

    def codes(self) -> list[str]:
        """Every code, longest first, so that a search prefers the longer of two that begin alike."""
        return sorted({entry.code for entry in self.entries.values()}, key=lambda c: (-len(c), c))


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
        intake.counts["merged_cells_filled"] += table.filled
    read = {grid.sheet for _, grid in found}
    for grid in grids:
        if grid.sheet not in read:
            count = sum(any(cell.strip() for cell in row) for row in grid.cells)
            intake.sheets_not_read.append(f"{file.name}, {grid.sheet!r} ({count})")
    return [table for table, _ in found]


def _rows(file: SourceFile, tables: Sequence[Table]) -> Iterator[tuple[Unit, Table, list[str]]]:
    for table in tables:
        for number, row in enumerate(table.rows, start=1):
            original = row.original if isinstance(row, FlawedRow) else "\t".join(row)
            yield Unit(file.name, table.location(number), original), table, row


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
    for unit, table, row in _rows(file, read_tables(file, source, intake)):
        entry = CodeEntry(
            *(_text(table.value(row, name)) for name in ("fault_type", "device_model", "meaning", "cause", "remedy"))
        )
        problem = _row_problem(table, row, ("fault_type", "meaning"))
        if problem:
            intake.drop(unit, *problem)
        else:
            seen.setdefault((code_key(entry.code), normal(entry.device_model)), []).append((unit, entry))
    for key, rows in seen.items():
        contents = {tuple(normal(t) for t in (e.meaning, e.cause, e.remedy)) for _, e in rows}
        known = codes.entries.get(key)
        if known:
            contents.add(tuple(normal(t) for t in (known.meaning, known.cause, known.remedy)))
        if len(contents) > 1 or key in codes.contradicted:
            codes.contradicted.add(key)
            codes.entries.pop(key, None)
            for unit in [*_take_back(key, intake), *(unit for unit, _ in rows)]:
                intake.drop(unit, "quarantined", "code_with_two_meanings")
            continue
        codes.entries[key] = rows[0][1]
        intake.drafts.extend(_code_draft(unit, entry) for unit, entry in rows)


def _take_back(key: tuple[str, str], intake: Intake) -> list[Unit]:
    """Remove the drafts of a code that was read before; returns their units."""
    mine = [
        d for d in intake.drafts if d.kind == "fault_code" and (code_key(d.fault_type), normal(d.device_model)) == key
    ]
    intake.drafts = [draft for draft in intake.drafts if draft not in mine]
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
    """Rows of a work-order table, joined with the fault codes."""
    for unit, table, row in _rows(file, read_tables(file, source, intake)):
        problem = _row_problem(table, row, ("phenomenon", "repair"))
        if problem:
            intake.drop(unit, *problem)
        else:
            intake.drafts.append(_order_draft(unit, table, row, codes, intake))


def _order_draft(unit: Unit, table: Table, row: Sequence[str], codes: CodeTable, intake: Intake) -> Draft:
    value: Mapping[str, str] = {name: _text(table.value(row, name)) for name in table.columns}
    steps, repair = split_steps(value.get("steps", "")), value["repair"]
    if not steps:
        parts = divide_action(repair)
        steps, repair = parts.steps, parts.repair
        intake.counts["steps_from_repair"] += bool(steps)
    code, device_model = value.get("fault_type", ""), value.get("device_model", "")
    entry = codes.find(code, device_model)
    if code and codes.entries and entry is None:
        intake.counts["unexplained_codes"] += 1
    draft = Draft(unit, "work_order", device_model, value["phenomenon"], steps, repair, fault_type=code)
    return replace(draft, fault_type=entry.code, meaning=entry.meaning) if entry else draft


def _row_problem(table: Table, row: Sequence[str], needed: Sequence[str]) -> tuple[FateName, str] | None:
    """(fate, reason) of a row that cannot become a sample."""
    if isinstance(row, FlawedRow):
        return "quarantined", row.reason
    if not any(cell.strip() for cell in row):
        return "out_of_scope", "empty_row"
    if sum(normal(c) == normal(h) for c, h in zip(row, table.header, strict=False) if c.strip()) >= len(table.columns):
        return "out_of_scope", "repeated_header"
    if any(cell.strip() for cell in row[len(table.header) :]):
        return "quarantined", "more_cells_than_columns"
    values = {name: table.value(row, name) for name in table.columns}
    if any(_DAMAGED.search(value) for value in values.values()):
        return "quarantined", "damaged_text"
    for name in needed:
        text = _text(values[name])
        if not text or (name != "fault_type" and not _says_something(text)):
            return "quarantined", f"no_{name}"
        if _PLACEHOLDER.fullmatch(text):
            return "quarantined", "placeholder_text"
    if "repair" in needed and _UNFINISHED.fullmatch(_text(values["repair"])):
        return "quarantined", "not_repaired"
    return None


def _says_something(text: str) -> bool:
    """At least two Chinese characters or three letters, and no null word."""
    if normal(text) in _NULL_TEXTS:
        return False
    letters = sum(c.isalpha() for c in text)
    return letters >= 3 or sum("\u4e00" <= c <= "\u9fff" for c in text) >= 2


def _text(value: str) -> str:
    """A cell as a field: NFC, white space collapsed within lines, null words empty."""
    lines = [" ".join(line.split()) for line in unicodedata.normalize("NFC", value).split("\n")]
    text = "\n".join(line for line in lines if line)
    return "" if normal(text) in _NULLS else text
