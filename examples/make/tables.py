"""Work orders and fault codes as the files people keep them in. Same content, same bytes."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from examples.make.orders import Order, axis_code
from examples.make.phrases import read_faults, read_rows

STAMP = (2025, 6, 2, 8, 0, 0)
"""The time that every part of an office file carries."""

SHEET = "Orders"
CSV_HEADER = ("工单号", "日期", "设备型号", "报警号", "故障现象", "检查过程", "维修措施", "维修人", "工时")
CODE_HEADERS = {"en": ("Code", "Meaning", "Cause", "Remedy"), "zh": ("报警号", "含义", "原因", "处理方法")}
AXES = {"en": "{} axis {}", "zh": "{}{}"}


def write_orders_xlsx(orders: Sequence[Order], path: Path) -> None:
    """A sheet with a title row and a header of two rows with merged cells, the way the office keeps it."""
    from openpyxl import Workbook
    from openpyxl.styles import Alignment, Font

    book = Workbook()
    sheet = book.active
    sheet.title = SHEET
    sheet["A1"] = "Maintenance work orders, hall 2, January 2024 to May 2025"
    sheet["A1"].font = Font(bold=True, size=14)
    sheet.merge_cells("A1:I1")
    for place, text in (("A2", "Order"), ("D2", "Fault"), ("F2", "Work done")):
        sheet[place] = text
    for place, text in (("C2", "Machine"), ("H2", "Technician"), ("I2", "Hours")):
        sheet[place] = text
    for place, text in (("A3", "No."), ("B3", "Date"), ("D3", "Code"), ("E3", "Problem"), ("F3", "Checks")):
        sheet[place] = text
    sheet["G3"] = "Repair"
    for area in ("A2:B2", "D2:E2", "F2:G2", "C2:C3", "H2:H3", "I2:I3"):
        sheet.merge_cells(area)
    for row in sheet["A2:I3"]:
        for cell in row:
            cell.font = Font(bold=True)
            cell.alignment = Alignment(horizontal="center", vertical="center")
    for order in orders:
        told = (order.problem, order.checks, order.repair)
        sheet.append([order.number, order.date, order.machine, None, *told, order.person, order.hours])
        # A code is text: as a number it would lose its leading zeros.
        code = sheet.cell(sheet.max_row, 4, order.code or None)
        code.number_format = "@"
        for column in (5, 6, 7):
            cell = sheet.cell(sheet.max_row, column)
            cell.data_type = "s"
            cell.alignment = Alignment(wrap_text=True)
    book.properties.creator = "maintenance office"
    book.properties.created = dt.datetime(*STAMP)
    buffer = io.BytesIO()
    book.save(buffer)
    path.write_bytes(restamped(buffer.getvalue()))


def restamped(office_file: bytes) -> bytes:
    """The same zip with fixed times and order, so that equal content is equal bytes."""
    source = zipfile.ZipFile(io.BytesIO(office_file))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(source.namelist()):
            data = source.read(name)
            if name == "docProps/core.xml":
                stamp = dt.datetime(*STAMP).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
                data = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamp, data)
            info = zipfile.ZipInfo(name, date_time=STAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            target.writestr(info, data)
    return buffer.getvalue()


def write_orders_csv(orders: Iterable[Order], path: Path) -> None:
    """GB18030 with Windows line ends, as a Chinese office saves it."""
    rows = [
        (o.number, o.date.strftime("%Y/%m/%d"), o.machine, o.code, o.problem, o.checks, o.repair, o.person, o.hours)
        for o in orders
    ]
    path.write_bytes(_csv([CSV_HEADER, *rows]).encode("gb18030"))


def _csv(rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue()


def fault_codes(language: str) -> list[tuple[str, str, str, str]]:
    """(code, meaning, cause, remedy): the common faults, rare ones, and the servo alarms of four axes."""
    rows = [(f.code, f.meaning, f.cause, f.remedy) for f in read_faults(language)]
    rows += [(c[0], c[1], c[2], c[3]) for c in read_rows(f"codes_{language}.txt")]
    for number, axis in enumerate("XYZB", start=1):
        for kind, meaning, cause, remedy in read_rows(f"axis_codes_{language}.txt"):
            rows.append((axis_code(number, kind), AXES[language].format(axis, meaning), cause, remedy))
    return sorted(rows)


def write_fault_codes(language: str, path: Path) -> None:
    """UTF-8 with a byte order mark, as a spreadsheet program exports it."""
    path.write_bytes(_csv([CODE_HEADERS[language], *fault_codes(language)]).encode("utf-8-sig"))
