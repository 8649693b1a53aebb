"""The raw files read again, independently of the data stage: which rows they hold, and how many characters."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.verify.raw_documents import docx_characters, html_characters, pdf_characters, visible_characters
from tasks.verify.raw_sheets import Sheet, doubled_quotes, ending, sheets_of

TABLE_KINDS = ("work_orders", "fault_codes")
DOCUMENT_KINDS = ("manuals", "notes")
_TABLES = r"(csv|tsv|json|jsonl)(\.gz)?|xlsx|xls|parquet|pdf"
_ENDINGS = {
    "work_orders": _TABLES,
    "fault_codes": _TABLES,
    "sensor_logs": r"(csv|tsv|txt)(\.gz)?|parquet",
    "manuals": r"pdf|docx|(html|htm|md|markdown|txt)(\.gz)?",
    "notes": r"docx|(html|htm|md|markdown|txt)(\.gz)?",
    "instructions": r"(jsonl|json)(\.gz)?|parquet",
}
"""Endings of the files of each kind, after the last dot or before `.gz`."""
_LEFT_OUT = re.compile(r"^(runs|ungated)/|(^|/)(\.|~\$)")
"""Output of Gatewright itself, hidden files, lock files of office programs."""
_COMMON = "的一是在不了有和这主为以要用时到动轴机检查更换修处理油电压正常后发现并重新，。、這為動軸機檢查換處電壓現並"


def files_of(project_dir: Path, source: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """(name relative to the project, path) of the files of a source, sorted."""
    start = project_dir / str(source["path"])
    if start.is_file():
        found = [start]
    else:
        found = list(start.rglob("*")) if start.is_dir() else list(project_dir.glob(str(source["path"])))
    names = sorted((p.relative_to(project_dir).as_posix(), p) for p in found if p.is_file())
    return [
        (unicodedata.normalize("NFC", name), p)
        for name, p in names
        if re.search(rf"\.({_ENDINGS[source['kind']]})$", name.lower()) and not _LEFT_OUT.search(name)
    ]


def raw_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked when gzipped."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.lower().endswith(".gz") else data


def decode_again(data: bytes, recorded: str) -> tuple[str, bool]:
    """(text, whether the recorded encoding is right) by an order of its own: BOM, UTF-8, then as recorded.

    Of two Chinese encodings that both decode, the recorded one must give more everyday characters. Very few
    characters that are UTF-8 perhaps by chance may be what a person said they are.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, errors="replace"), recorded in (name, name.removesuffix("-sig"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        few = recorded in ("gb18030", "big5") and sum(c > "\x7f" for c in text) <= 4
        if "\x00" not in text and not few:
            return text, recorded in ("utf-8", "utf-8-sig")
    try:
        text = data.decode(recorded)
    except (UnicodeDecodeError, LookupError):
        return data.decode("utf-8", errors="replace"), False
    others = [e for e in _LIKELY if e != recorded] if recorded in _LIKELY else []
    return text, all(_everyday(text) >= _everyday(data.decode(e, errors="replace")) for e in others)


_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


_LIKELY = ("gb18030", "big5", "utf-16-le", "utf-16-be")


def _everyday(text: str) -> float:
    """Mean weight of the characters outside ASCII: very common ones, those of the first level of GB 2312, others."""
    outside = Counter(c for c in text if ord(c) > 127)
    weight = sum(n * (1.0 if c in _COMMON else 0.3 if _first_level(c) else 0.0) for c, n in outside.items())
    return weight / max(1, outside.total())


def _first_level(char: str) -> bool:
    pair = char.encode("gb2312", errors="ignore")
    return bool(pair) and 0xB0 <= pair[0] <= 0xD7


def encoding_right(name: str, path: Path, recorded: str) -> bool:
    """Whether a file is in the encoding that the stage recorded; formats with a form of their own have no other."""
    own = {"xlsx": "workbook", "xls": "workbook", "parquet": "parquet", "docx": "docx", "pdf": "pdf"}.get(ending(name))
    if own:
        return recorded.removesuffix(" with ocr") == own
    data = raw_bytes(path)
    stated = re.search(rb"charset\s*=\s*[\"']?([\w-]+)", data[:4096]) if ending(name) in ("html", "htm") else None
    if stated and stated.group(1).decode().lower() in (recorded, *_SAME_AS.get(recorded, ())):
        return "\ufffd" not in data.decode(recorded, errors="replace")
    return decode_again(data, recorded)[1]


_SAME_AS = {"gb18030": ("gb2312", "gbk", "cp936"), "utf-8-sig": ("utf-8",)}


def delimiter_of(text: str, name: str) -> str:
    """The delimiter that divides most lines of the head of a table."""
    if ".tsv" in name.lower():
        return "\t"
    lines = [line for line in text[:200_000].split("\n")[:100] if line.strip()]
    return max(",;\t|", key=lambda d: (sum(d in line for line in lines), sum(line.count(d) for line in lines)))


def iter_table_rows(
    name: str, path: Path, source: Mapping[str, Any], encoding: str
) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    """((source, location), mapped fields as text) of every data row, one after the other."""
    wanted = {str(field): _plain(header) for field, header in source["columns"].items()}
    for location, row, at in iter_whole_rows(name, path, source, encoding, wanted):
        yield (name, location), fields_of(row, at)


def fields_of(row: Sequence[str], at: Mapping[str, int]) -> dict[str, str]:
    """The mapped cells of a row; a cell that is not there is empty."""
    return {field: row[i] if i < len(row) else "" for field, i in at.items()}


def iter_whole_rows(
    name: str, path: Path, source: Mapping[str, Any], encoding: str, wanted: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[str], dict[str, int]]]:
    """(location, all cells, column of each field) of every data row, one after the other."""
    wanted = wanted or {str(field): _plain(header) for field, header in source["columns"].items()}
    for sheet in _sheets(name, path, encoding):
        if source.get("sheet") and sheet.name != source["sheet"]:
            continue
        found = _below_header(list(itertools.islice(sheet.rows(), 34)), sheet.merged, wanted)
        if found is None:
            continue
        start, at = found
        held: list[tuple[str, list[str], dict[str, int]]] = []
        for number, row in enumerate(_filled(sheet, start), start=1):
            held.append((f"{sheet.name}#{number}", row, at))
            if any(cell.strip() for cell in row) or (sheet.named and not row):  # empty rows at the end are no rows
                yield from held
                held = []


def _filled(sheet: Sheet, start: int) -> Iterator[list[str]]:
    """The rows from `start` on; a cell that was merged over rows has its text in each of them."""
    above: dict[int, tuple[int, str]] = {}
    begins = {(first, left): last for first, left, last, _ in sheet.merged if last > first >= start}
    for number, row in enumerate(sheet.rows()):
        if number < start:
            continue
        if begins or above:
            row = list(row)
            for column, (last, text) in list(above.items()):
                if number > last:
                    del above[column]
                elif column >= len(row) or not row[column]:
                    row.extend([""] * (column + 1 - len(row)))
                    row[column] = text
            for (first, left), last in begins.items():
                if first == number and left < len(row):
                    above[left] = (last, row[left])
        yield row


def _sheets(name: str, path: Path, encoding: str) -> list[Sheet]:
    return sheets_of(name, path, lambda: _lines_of(path, encoding), delimiter_of)


def _lines_of(path: Path, encoding: str) -> str:
    text, _ = decode_again(raw_bytes(path), encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def swallowed_lines(name: str, path: Path, encoding: str) -> int:
    """Physical lines of a text table that look like rows of their own and yet are inside a cell of another row.

    A row over several lines must be well quoted, or all its further lines count; if it is, lines between its first
    and last that have the delimiters of a row count once they are more than prose with commas would give.
    """
    if ending(name) not in ("csv", "tsv", "txt"):
        return 0
    text = _lines_of(path, encoding)
    delimiter = delimiter_of(text, name)
    text = doubled_quotes(text, delimiter)
    lines = text.split("\n")
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    ends = [reader.line_num for _ in reader]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    single = [lines[a].count(delimiter) for a, b in spans if b == a + 1 and lines[a].strip()]
    common = Counter(single or [line.count(delimiter) for line in lines]).most_common()
    usual = max((n for n, times in common if times == common[0][1]), default=0)
    lost = 0
    for a, b in spans:
        if b == a + 1:
            continue
        try:
            list(csv.reader([line + "\n" for line in lines[a:b]], delimiter=delimiter, strict=True))
        except csv.Error:
            lost += sum(1 for line in lines[a + 1 : b] if line.strip()) or 1
            continue
        inner = lines[a + 1 : b - 1]
        alike = sum(line.count(delimiter) == usual for line in inner)
        if usual > 0 and alike >= (8 if usual == 1 else 2) and alike >= len(inner) / 2:
            lost += alike
    return lost


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _below_header(
    cells: Sequence[Sequence[str]], merged: Sequence[Any], wanted: Mapping[str, str]
) -> tuple[int, dict[str, int]] | None:
    """(index of the first data row, column of each field) below the smallest, first band that names every column."""
    lowest = {field: _plain(header.rsplit("/", 1)[-1]) for field, header in wanted.items()}
    for height in (1, 2, 3):
        for top in range(min(30, len(cells))):
            at: dict[str, int] = {}
            for row in cells[top : top + height]:
                for i, cell in enumerate(row):
                    for field in wanted:
                        if cell.strip() and _plain(cell) in (wanted[field], lowest[field]):
                            at[field] = i
            if len(at) == len(wanted):
                deepest = [last for first, _, last, _ in merged if top <= first < top + height]
                return max([top + height, *(d + 1 for d in deepest)]), at
    return None


def table_characters(name: str, path: Path, encoding: str, sheet: str) -> int:
    """Visible characters of a table file: of its values, where the format keeps names and form apart from them."""
    if ending(name) in ("csv", "tsv", "txt"):
        text = _lines_of(path, encoding)
        delimiter = delimiter_of(text, name)
        return _visible(doubled_quotes(text, delimiter), delimiter + '"')
    found = next((s for s in _sheets(name, path, encoding) if s.name == sheet), None)
    if found is None:
        return 0
    return sum(_visible("".join(row)) for row in itertools.islice(found.rows(), int(found.named), None))


def _visible(text: str, besides: str = "") -> int:
    """How many characters are neither white space nor in `besides`."""
    marks = re.escape(besides)
    return len(re.sub(rf"[\s{marks}]+", "", text))


def document_characters(name: str, path: Path, encoding: str) -> list[Counter[str]]:
    """Visible characters of a document, by one or two readers other than the stage's."""
    kind = ending(name)
    if kind == "docx":
        return [docx_characters(path)]
    if kind == "pdf":
        return pdf_characters(path, recognised=encoding == "pdf with ocr")
    text = decode_again(raw_bytes(path), encoding)[0]
    return [html_characters(text) if kind in ("html", "htm") else visible_characters(text)]


def sensor_cells(
    name: str, path: Path, source: Mapping[str, Any], encoding: str, channels: Sequence[str]
) -> list[list[str]]:
    """Of every data row of a sensor log the time, the event and the cells of some channels.

    A channel whose name several columns have is empty: which one is meant cannot be told here.
    """
    names = [*(source.get("channels") or []), *filter(None, [source.get("event")])]
    column = {"timestamp": _plain(source.get("timestamp") or "timestamp"), **{f" {n}": _plain(n) for n in names}}
    cells = list(_sheets(name, path, encoding)[0].rows())
    found = _below_header(cells, [], column)
    if found is None:
        return []
    start, at = found
    end = max((i + 1 for i, row in enumerate(cells) if any(c.strip() for c in row)), default=0)
    header = [_plain(cell) for cell in cells[max(0, start - 1)]]
    alone = {c: header.index(_plain(c)) for c in channels if header.count(_plain(c)) == 1}
    event = at.get(f" {source['event']}") if source.get("event") else None
    chosen = [at["timestamp"], event, *(alone.get(c) for c in channels)]
    return [["" if i is None or i >= len(row) else row[i] for i in chosen] for row in cells[start:end]]


def wide_rows(name: str, path: Path, encoding: str) -> list[list[str]]:
    """Every row of a log without a header."""
    cells = list(_sheets(name, path, encoding)[0].rows())
    end = max((i + 1 for i, row in enumerate(cells) if any(c.strip() for c in row)), default=0)
    return cells[:end]


def composed(text: str) -> str:
    """A text in NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
