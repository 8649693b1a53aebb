"""XLSX read from its XML, by the standard library alone: what each cell shows, as text."""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DATE_IDS = {14: "d", 15: "d", 16: "d", 17: "d", 18: "h", 19: "h", 20: "h", 21: "h", 22: "d h", 45: "m:s", 46: "[h]"}

Merged = tuple[tuple[int, int, int, int], ...]


def xlsx_sheets(path: Path) -> Iterator[tuple[str, list[list[str]], Merged]]:
    """(name, rows, merged ranges) of every sheet, in the order of the workbook."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        shared = _shared(archive) if "xl/sharedStrings.xml" in names else []
        formats = _formats(archive) if "xl/styles.xml" in names else []
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        old = any(p.get("date1904") in ("1", "true") for p in book.iter(f"{_S}workbookPr"))
        links = {e.get("Id"): e.get("Target") for e in ElementTree.fromstring(archive.read(_RELS))}
        for sheet in book.iter(f"{_S}sheet"):
            target = str(links.get(sheet.get(_R)))
            part = target[1:] if target.startswith("/") else str(PurePosixPath("xl") / target)
            if part in names:
                root = ElementTree.fromstring(archive.read(part))
                yield str(sheet.get("name")), _rows(root, shared, formats, old), _merged(root)


_RELS = "xl/_rels/workbook.xml.rels"


def _shared(archive: zipfile.ZipFile) -> list[str]:
    root = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
    return [_string(item) for item in root.findall(f"{_S}si")]


def _string(item: ElementTree.Element) -> str:
    """A string in pieces; readings beside Chinese or Japanese characters are no part of it."""
    own = [item.find(f"{_S}t"), *(run.find(f"{_S}t") for run in item.findall(f"{_S}r"))]
    return "".join(t.text or "" for t in own if t is not None)


def _formats(archive: zipfile.ZipFile) -> list[str]:
    """The format code of each cell style; date formats that have only a number, by what they show."""
    root = ElementTree.fromstring(archive.read("xl/styles.xml"))
    codes = {int(e.get("numFmtId", "0")): e.get("formatCode", "") for e in root.iter(f"{_S}numFmt")}
    styles = root.find(f"{_S}cellXfs")
    ids = [int(e.get("numFmtId", "0")) for e in (styles if styles is not None else ())]
    return [codes.get(i, _DATE_IDS.get(i, "")) for i in ids]


def _rows(root: ElementTree.Element, shared: list[str], formats: list[str], old: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in root.iter(f"{_S}row"):
        at = int(row.get("r") or len(rows) + 1) - 1
        while len(rows) <= at:
            rows.append([])
        for cell in row.findall(f"{_S}c"):
            place = re.match(r"[A-Z]+", cell.get("r") or "")
            column = _number(place.group()) if place else len(rows[at])
            rows[at].extend([""] * (column + 1 - len(rows[at])))
            rows[at][column] = _text(cell, shared, formats, old)
    return rows


def _number(letters: str) -> int:
    total = 0
    for letter in letters:
        total = total * 26 + "ABCDEFGHIJKLMNOPQRSTUVWXYZ".index(letter) + 1
    return total - 1


def _text(cell: ElementTree.Element, shared: list[str], formats: list[str], old: bool) -> str:
    kind, value = cell.get("t", "n"), cell.findtext(f"{_S}v") or ""
    if kind == "inlineStr":
        inline = cell.find(f"{_S}is")
        return _string(inline) if inline is not None else ""
    if not value or kind in ("str", "e", "d"):
        return value
    if kind == "s":
        return shared[int(value)]
    if kind == "b":
        return "TRUE" if value in ("1", "true") else "FALSE"
    style = int(cell.get("s") or 0)
    code = formats[style] if style < len(formats) else ""
    number = float(value)
    plain = f"{number:.0f}" if number == int(number) and abs(number) < 1e15 else str(number)
    if re.search(r"[dmyhsDMYHS年月日]", re.sub(r'"[^"]*"|\\.|\[(?![hms]+\])[^\]]*\]|_.', "", code)):
        return serial_text(number, old, code)
    return padded(plain, code) or plain


def serial_text(number: float, old: bool, code: str) -> str:
    """A serial date: a time alone below one day, a duration where the format counts hours past 24, else a date."""
    span = dt.timedelta(milliseconds=round(number * 86_400_000))
    if re.search(r"\[[hms]+\]", code):
        return str(span)
    if number < 1:
        return str((dt.datetime.min + span).time())
    moment = (dt.datetime(1904, 1, 1) if old else dt.datetime(1899, 12, 30)) + span
    return moment.strftime("%Y-%m-%d") if moment.time() == dt.time.min else str(moment)


def padded(number: str, code: str) -> str:
    """A whole number in a format of zeros and fixed signs, such as `00000`; empty for every other format."""
    shape = re.sub(r"\[[^\]]*\]|_.", "", code.partition(";")[0])
    fixed = re.sub(r'"[^"]*"|\\.', "", shape)
    if not number.isdigit() or fixed.count("0") < 2 or re.search(r"[^0 \-/()]", fixed):
        return ""
    digits = number.rjust(fixed.count("0"), "0")
    first, rest = digits[: len(digits) - fixed.count("0") + 1], list(digits[len(digits) - fixed.count("0") + 1 :])
    shown: list[str] = []
    for sign in re.findall(r'"[^"]*"|\\.|.', shape):
        if sign != "0":
            shown.append(sign.strip('"') if sign.startswith('"') else sign.lstrip("\\"))
        else:
            shown.append(first or rest.pop(0))
            first = ""
    return "".join(shown).strip()


def _merged(root: ElementTree.Element) -> Merged:
    found = []
    for element in root.iter(f"{_S}mergeCell"):
        ends = re.findall(r"([A-Z]+)(\d+)", element.get("ref", ""))
        if ends:
            (a, b), (c, d) = ends[0], ends[-1]
            found.append((int(b) - 1, _number(a), int(d) - 1, _number(c)))
    return tuple(found)
