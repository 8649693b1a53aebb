"""Write the raw data of both examples: `python -m examples.make [FOLDER]`, by default in place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from examples.make.documents import write_docx, write_pdf
from examples.make.logs import write_axis_log, write_spindle_log
from examples.make.orders import Maker, Order
from examples.make.phrases import read_text
from examples.make.tables import SHEET, fault_codes, write_fault_codes, write_orders_csv, write_orders_xlsx

SEED = 20240108
FOLDERS = {"en": "cnc-repair", "zh": "cnc-repair-zh"}


def write_examples(folder: Path) -> dict[str, Any]:
    """Both raw folders below `folder`, and `make/planted.json`: what was planted where."""
    truth = {FOLDERS[language]: _write_example(language, folder / FOLDERS[language] / "raw") for language in FOLDERS}
    target = folder / "make" / "planted.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((json.dumps(truth, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode())
    return truth


def _write_example(language: str, raw: Path) -> dict[str, Any]:
    raw.mkdir(parents=True, exist_ok=True)
    orders = Maker(language, SEED).make()
    if language == "en":
        write_orders_xlsx(orders, raw / "work_orders.xlsx")
        source, sheet = "raw/work_orders.xlsx", SHEET
    else:
        write_orders_csv(orders, raw / "work_orders.csv")
        source, sheet = "raw/work_orders.csv", ""
    write_fault_codes(language, raw / "fault_codes.csv")
    write_pdf(f"manual_{language}.txt", language, raw / "manual.pdf")
    write_docx(f"service_{language}.txt", raw / "service_guide.docx")
    (raw / "notes.md").write_bytes(read_text(f"notes_{language}.md").encode())
    return {
        "work_orders": {"source": source} | planted(orders, sheet),
        "fault_codes": {"source": "raw/fault_codes.csv", "rows": len(fault_codes(language))},
        "sensor_logs": {
            "raw/spindle_log.csv": write_spindle_log(raw / "spindle_log.csv", SEED),
            "raw/axis_log.csv": write_axis_log(raw / "axis_log.csv", SEED + 1),
        },
    }


def planted(orders: list[Order], sheet: str) -> dict[str, Any]:
    """Where each planted row is: `<sheet>#N`, N counted from 1 over data rows."""
    where = {order.key: f"{sheet}#{number}" for number, order in enumerate(orders, start=1)}
    groups: dict[str, list[str]] = {}
    for order in orders:
        if order.kind.startswith("variant"):
            groups.setdefault(order.kind, []).append(where[order.key])

    def pairs(kind: str) -> list[list[str]]:
        return [[where[o.twin], where[o.key]] for o in orders if o.kind == kind and o.twin is not None]

    return {
        "rows": len(orders),
        "exact_duplicates": pairs("exact"),
        "near_duplicates": pairs("near"),
        "code_variants": [groups[kind] for kind in sorted(groups)],
        "quarantined": [where[o.key] for o in orders if o.kind == "quarantine"],
        "machines": sorted({o.machine for o in orders}),
        "fault_types": sorted({o.code for o in orders if o.code}),
    }


if __name__ == "__main__":
    write_examples(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
