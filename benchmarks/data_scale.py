"""The whole data stage on many generated work orders: seconds and peak memory, and how both grow.

    python benchmarks/data_scale.py [--counts 100000 1000000] [--language en] [--verify] [--out FILE]

The stage and its verifier run in processes of their own; peak memory is the largest resident set of the process.
The orders hold 8 % copies and 3,000 code-only variants per 100,000, as in near_duplicates.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from generated_orders import FIELDS, orders

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RUN = """
import json, resource, sys, time
from pathlib import Path
from specs.project import Project
from specs.stages import Quiet, StageContext

class Told(Quiet):
    def start(self, what, total=None):
        used = resource.getrusage(resource.RUSAGE_SELF)
        told = f"{used.ru_utime + used.ru_stime:8.1f} CPU s, peak so far {used.ru_maxrss / 2**20:.2f} GiB  {what}"
        print(f"{time.perf_counter() - began:8.1f} s {told}", file=sys.stderr, flush=True)

folder, model, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
source = {"kind": "work_orders", "path": "orders.csv", "columns": {n: n for n in sys.argv[5].split(",")}}
spec = Project(project="scale", language=sys.argv[4], base_model="x", sources=[source])
context = StageContext(run="r", stage="data", attempt=1, project_dir=folder, spec=spec, parameters={}, inputs={},
                       base_model=model, base_model_sha256="0" * 64, out_dir=folder / "out",
                       checkpoints_dir=folder / "checkpoints")
began = time.perf_counter()
result = {}
if what == "stage":
    from tasks.data.stage import run
    result["notes"] = run(context, Told()).notes
else:
    from tasks.verify.data import metrics
    result["metrics"] = {k: m.value for k, m in metrics(folder / "out", {}, context.model_dump(mode="json")).items()}
usage = resource.getrusage(resource.RUSAGE_SELF)
result |= {"wall_s": time.perf_counter() - began, "cpu_s": usage.ru_utime + usage.ru_stime,
           "peak_gib": usage.ru_maxrss / 2**20, "torch": "torch" in sys.modules}
print(json.dumps(result))
"""


def write_orders(path: Path, language: str, count: int) -> int:
    """A CSV of generated work orders; returns how many it holds."""
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for order in orders(language, 1, count, 0.08, 3 * count // 100):
            writer.writerow([getattr(order, name) for name in FIELDS])
            rows += 1
    return rows


def one(what: str, folder: Path, model: Path, language: str) -> dict[str, Any]:
    """Run the stage or its verifier over the project in `folder`."""
    line = [sys.executable, "-c", RUN, str(folder), str(model), what, language, ",".join(FIELDS)]
    done = subprocess.run(line, stdout=subprocess.PIPE, cwd=ROOT, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def model_folder() -> Path:
    """The tiny bilingual model: of a base model the data stage reads the tokenizer only."""
    from specs.places import home
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model

    return resolve_base_model("package:gatewright-tiny", home(), Hub(), Quiet()).folder


def main() -> None:
    """Run every size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--verify", action="store_true", help="recompute the metrics as well")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    model, lines = model_folder(), []
    for count in options.counts:
        with tempfile.TemporaryDirectory() as name:
            started = time.perf_counter()
            rows = write_orders(Path(name) / "orders.csv", options.language, count)
            print(f"{rows} rows written in {time.perf_counter() - started:.1f} s", file=sys.stderr)
            for what in ("stage", "verify") if options.verify else ("stage",):
                line = {
                    "what": what,
                    "language": options.language,
                    "rows": rows,
                    **one(what, Path(name), model, options.language),
                }
                lines.append(line)
                print(json.dumps(line, ensure_ascii=False), flush=True)
    print(f"{'':8}{'rows':>10}{'wall s':>9}{'CPU s':>9}{'CPU us/row':>12}{'peak GiB':>10}")
    for line in lines:
        each = line["cpu_s"] / line["rows"] * 1e6
        print(
            f"{line['what']:8}{line['rows']:10}{line['wall_s']:9.1f}{line['cpu_s']:9.1f}{each:12.0f}{line['peak_gib']:10.2f}"
        )
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
