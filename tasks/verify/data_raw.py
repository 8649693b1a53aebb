"""The raw files read again, independently of the data stage: which rows they hold, and how many characters."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

TABLE_KINDS = ("work_orders", "fault_codes")
DOCUMENT_KINDS = ("manuals", "notes")
_ENDINGS = {
    "work_orders": (".csv", ".tsv", ".xlsx", ".xls", ".csv.gz", ".tsv.gz"),
    "fault_codes": (".csv", ".tsv", ".xlsx", ".xls", ".csv.gz", ".tsv.gz"),
    "sensor_logs": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
    "manuals": (".pdf", ".docx", ".md", ".markdown", ".txt"),
    "notes": (".docx", ".md", ".markdown", ".txt"),
    "instructions": (".jsonl", ".json"),
}
_LEFT_OUT = re.compile(r"^(runs|ungated)/|(^|/)(\.|~\$)")
"""Output of Gatewright itself, hidden files, lock files of office programs."""
_COMMON = "的一是在不了有和这主为以要用时到动轴机检查更换修处理油电压正常后发现并重新，。、"


Rows = dict[tuple[str, str], dict[str, str]]
"""(source, location) to the mapped fields of a raw table row."""


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
        if name.lower().endswith(_ENDINGS[source["kind"]]) and not _LEFT_OUT.search(name)
    ]


def raw_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked when gzipped."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.lower().endswith(".gz") else data


def decode_again(data: bytes, recorded: str) -> tuple[str, bool]:
    """(text, whether the recorded encoding is right) by an order of its own: BOM, UTF-8, then as recorded.

    Of two Chinese encodings that both decode, the recorded one must give more frequent characters.
    """
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(name, errors="replace"), recorded.startswith(name.removesuffix("-sig"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        if "\x00" not in text:
            return text, recorded in ("utf-8", "utf-8-sig")
    try:
        text = data.decode(recorded)
    except (UnicodeDecodeError, LookupError):
        return data.decode("utf-8", errors="replace"), False
    others = [e for e in ("gb18030", "big5") if e != recorded] if recorded in ("gb18030", "big5") else []
    return text, all(_frequent(text) >= _frequent(data.decode(e, errors="replace")) for e in others)


def _frequent(text: str) -> float:
    outside = [c for c in text if ord(c) > 127]
    return sum(c in _COMMON for c in outside) / max(1, len(outside))


def delimiter_of(text: str, name: str) -> str:
    """The delimiter that divides most lines of the head of a table."""
    if ".tsv" in name.lower():
        return "\t"
    lines = [line for line in text.split("\n")[:100] if line.strip()]
    return max(",;\t|", key=lambda d: (sum(d in line for line in lines), sum(line.count(d) for line in lines)))


def visible_characters(text: str, besides: str = "") -> Counter[str]:
    """Characters that are not white space, counted."""
    return Counter(c for c in text if not c.isspace() and c not in besides and c != "\ufeff")


def table_rows(name: str, path: Path, source: Mapping[str, Any], encoding: str) -> Rows:
    """Every data row of a table by its location, with the mapped fields as text."""
    wanted = {str(field): _plain(header) for field, header in source["columns"].items()}
    rows: Rows = {}
    for sheet, cells, merged in _sheets(name, path, encoding):
        if source.get("sheet") and sheet != source["sheet"]:
            continue
        found = _below_header(cells, merged, wanted)
        if found is None:
            continue
        start, at = found
        end = max((i + 1 for i, row in enumerate(cells) if any(c.strip() for c in row)), default=0)
        for number, row in enumerate(cells[start:end], start=1):
            values = {f: row[i] if i < len(row) else "" for f, i in at.items()}
            rows[name, f"{sheet}#{number}"] = values
    return rows


def _sheets(name: str, path: Path, encoding: str) -> list[tuple[str, list[list[str]], list[Any]]]:
    if name.lower().endswith((".xlsx", ".xls")):
        from python_calamine import CalamineWorkbook

        book = CalamineWorkbook.from_path(path)
        sheets = [(n, book.get_sheet_by_name(n)) for n in book.sheet_names]
        return [
            (n, [[_cell(v) for v in row] for row in s.to_python(skip_empty_area=False)], s.merged_cell_ranges or [])
            for n, s in sheets
        ]
    text = _lines_of(path, encoding)
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text, name))
    return [("", [row for row in reader if row], [])]


def _lines_of(path: Path, encoding: str) -> str:
    text, _ = decode_again(raw_bytes(path), encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")


def swallowed_lines(name: str, path: Path, encoding: str) -> int:
    """Physical lines of a text table that look like rows of their own and yet are inside a cell of another row.

    A row over several lines must be well quoted, or all its further lines count; if it is, lines between its first
    and last that have the delimiters of a row count once they are more than prose with commas would give.
    """
    if name.lower().endswith((".xlsx", ".xls")):
        return 0
    text = _lines_of(path, encoding)
    delimiter = delimiter_of(text, name)
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


def _cell(value: Any) -> str:
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"{value:.0f}"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d" if value.time() == dt.time.min else "%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return str(value).upper()
    return "" if value is None else str(value)


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
                deepest = [last[0] for first, last in merged if top <= first[0] < top + height]
                return max([top + height, *(d + 1 for d in deepest)]), at
    return None


def table_characters(name: str, path: Path, encoding: str, sheet: str) -> int:
    """Visible characters of a table file, delimiters and quotes not counted."""
    if name.lower().endswith((".xlsx", ".xls")):
        cells = next((cells for n, cells, _ in _sheets(name, path, encoding) if n == sheet), [])
        return sum(visible_characters("".join(row)).total() for row in cells)
    text, _ = decode_again(raw_bytes(path), encoding)
    return visible_characters(text, delimiter_of(text, name) + '"').total()


def document_characters(name: str, path: Path, encoding: str) -> list[Counter[str]]:
    """Visible characters of a document, by one or two readers other than the stage's."""
    if name.lower().endswith(".docx"):
        return [_docx_characters(path)]
    if name.lower().endswith(".pdf"):
        return _pdf_characters(path)
    return [visible_characters(decode_again(path.read_bytes(), encoding)[0])]


def _docx_characters(path: Path) -> Counter[str]:
    with zipfile.ZipFile(path) as archive:
        root = ElementTree.fromstring(archive.read("word/document.xml"))
    word = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
    return visible_characters("".join(t.text or "" for t in root.iter(f"{word}t")))


def _pdf_characters(path: Path) -> list[Counter[str]]:
    """By pdfplumber, and by pdfium page by page; soft hyphens are hyphens in both."""
    import pdfplumber
    import pypdfium2

    with pdfplumber.open(path) as opened:
        plumbed = "".join(c["text"] for page in opened.pages for c in page.chars)
    document = pypdfium2.PdfDocument(path)
    pdfium = "".join(document[i].get_textpage().get_text_range() for i in range(len(document)))
    document.close()
    return [folded(visible_characters(t.replace("\ufffe", "-").replace("\x02", "-"))) for t in (plumbed, pdfium)]


def folded(counted: Counter[str]) -> Counter[str]:
    """Ligatures and other compatibility forms as the characters they stand for."""
    result: Counter[str] = Counter()
    for char, count in counted.items():
        for part in unicodedata.normalize("NFKC", char):
            result[part] += count
    return result


def record_count(path: Path, encoding: str) -> int:
    """Records of an instruction file."""
    text, _ = decode_again(path.read_bytes(), encoding)
    if path.suffix.lower() == ".json":
        return len(json.loads(text))
    return sum(1 for line in text.split("\n") if line.strip())


def sensor_column(name: str, path: Path, source: Mapping[str, Any], encoding: str) -> list[str]:
    """The time cell of every data row of a sensor log."""
    names = [*(source.get("channels") or []), *filter(None, [source.get("event")])]
    column = {"timestamp": _plain(source.get("timestamp") or "timestamp"), **{f" {n}": _plain(n) for n in names}}
    _, cells, _ = _sheets(name, path, encoding)[0]
    found = _below_header(cells, [], column)
    if found is None:
        return []
    start, at = found
    end = max((i + 1 for i, row in enumerate(cells) if any(c.strip() for c in row)), default=0)
    return [row[at["timestamp"]] if at["timestamp"] < len(row) else "" for row in cells[start:end]]


def wide_rows(name: str, path: Path, encoding: str) -> list[list[str]]:
    """Every row of a log without a header."""
    _, cells, _ = _sheets(name, path, encoding)[0]
    end = max((i + 1 for i, row in enumerate(cells) if any(c.strip() for c in row)), default=0)
    return cells[:end]
