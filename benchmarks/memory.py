"""Predicted against published peaks of fine-tuning memory, beside three other estimators on the same rows.

    python benchmarks/memory.py CASES.json [--cache FILE] [--rows 5,6,7]

`CASES.json` is a list of published measurements (see docs/memory.md for the fields). Every row is predicted with the
software generation it was measured with; rows that no path covers are counted with the reason. Answers are kept in
`--cache` (default: a file in the system's temporary folder) by everything they depend on, so that a second run takes
seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.memory_rows import ORDER, Covered, group, measured_bytes, understood
from benchmarks.other_estimators import ESTIMATORS, Sizes
from specs.canonical import digest, sha256_file
from specs.errors import GatewrightError
from tasks.memory.settings import TraceSettings

Answer = dict[str, Any]
TRACING = (
    *("account", "assembly", "caching", "experts", "fit", "fold", "fsdp2", "fused_adapters"),
    *(
        "generations",
        "kernels",
        "losses",
        "model",
        "optimizers",
        "own_layers",
        "own_losses",
        "places",
        "policy",
        "quantised",
    ),
    *("quick", "ranks", "settings", "sharded", "sharding", "sizes", "step", "timeline", "trace", "traced", "tracker"),
)
"""Modules on which an answer depends."""


def main() -> None:
    """Predict every row, then print the tables."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description="Predicted against published peaks.")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "gatewright-memory-benchmark.json")
    parser.add_argument("--rows", help="numbers of rows with commas, to look at single ones")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no new trace after so much time")
    options = parser.parse_args()
    cases = json.loads(options.cases.read_text("utf-8"))
    wanted = {int(n) for n in options.rows.split(",")} if options.rows else set(range(len(cases)))
    found, left = [], Counter()
    cache = Cache(options.cache, options.minutes)
    for number, case in sorted(enumerate(cases), key=lambda entry: (ORDER.index(group(entry[1])), entry[0])):
        if number not in wanted:
            continue
        row = understood(case)
        if not isinstance(row, Covered):
            left[group(case), row] += 1
            continue
        answer = cache.answer(row.settings)
        if "error" in answer:
            left[group(case), answer["error"]] += 1
            continue
        found.append(compared(number, case, row, answer))
    print_table(found)
    print_worst(found)
    print_left(left, len(found))


class Cache:
    """Answers by settings and code, written after every new one."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self.until = time.monotonic() + minutes * 60
        code = Path(__file__).resolve().parent.parent / "tasks" / "memory"
        self.code = digest({name: sha256_file(code / f"{name}.py") for name in TRACING})
        self.known: dict[str, Answer] = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def answer(self, settings: TraceSettings) -> Answer:
        """The account's figures and the sizes that other estimators need."""
        key = digest({"code": self.code, "settings": settings})
        if key not in self.known and time.monotonic() > self.until:
            return {"error": "not traced within --minutes; run again to go on"}
        if key not in self.known:
            self.known[key] = predicted(settings)
            self.path.write_text(json.dumps(self.known), "utf-8")
        return self.known[key]


def predicted(settings: TraceSettings) -> Answer:
    """One account; an error in words where the configuration cannot be traced."""
    from tasks.memory.fit import account

    try:
        found = account(settings)
    except GatewrightError as error:
        return {"error": str(error).splitlines()[0][:110]}
    except Exception as error:  # a model whose code cannot run on fake tensors is a row to report, not a crash
        return {"error": f"the trace failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}"}
    return {
        "allocated": found.peak_allocated_bytes,
        "reserved": found.peak_reserved_bytes,
        "process": found.process_bytes,
        "phase": found.peak_phase,
        "total": found.total_parameters,
        "trainable": found.trainable_parameters,
    }


def compared(number: int, case: dict[str, Any], row: Covered, answer: Answer) -> dict[str, Any]:
    """One line: relative errors of our prediction and of every other estimator."""
    truth = measured_bytes(case)
    sizes = Sizes(answer["total"], answer["trainable"], row.settings)
    errors = {"gatewright": answer[row.compares] / truth - 1}
    errors |= {name: estimate(sizes) / truth - 1 for name, estimate in ESTIMATORS.items()}
    return {
        "number": number,
        "group": group(case),
        "name": f"{case['model'].rpartition('/')[2]} {case['method']} {case['micro_batch']}x{case['seq_len']}",
        "gpus": case["num_gpus"],
        "truth": truth,
        "predicted": answer[row.compares],
        "phase": answer["phase"],
        "path": row.settings.loss_path,
        "note": row.note,
        "errors": errors,
    }


def quantile(values: list[float], share: float) -> float:
    """The smallest value that is not below `share` of all."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def print_table(found: list[dict[str, Any]]) -> None:
    """Median and 95th percentile of the absolute error, by group and estimator."""
    names = ["gatewright", *ESTIMATORS]
    print(f"{'median / 95th percentile of |error|':44s} {'rows':>4s} " + " ".join(f"{n:>21s}" for n in names))
    by_group: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in found:
        by_group[line["group"]].append(line)
    for name in sorted(by_group, key=ORDER.index):
        lines = by_group[name]
        cells = []
        for estimator in names:
            errors = [abs(line["errors"][estimator]) for line in lines]
            cells.append(f"{statistics.median(errors):9.2%} / {quantile(errors, 0.95):9.2%}")
        print(f"{name:44s} {len(lines):4d} " + " ".join(cells))


def print_worst(found: list[dict[str, Any]]) -> None:
    """The ten rows that are furthest off in every group."""
    groups = sorted({line["group"] for line in found}, key=ORDER.index)
    for name in groups:
        lines = sorted((f for f in found if f["group"] == name), key=lambda f: -abs(f["errors"]["gatewright"]))
        print(f"\nworst rows: {name}")
        for line in lines[:10]:
            print(
                f"  {line['number']:3d} {line['name'][:52]:52s} x{line['gpus']} {line['path']:15s} "
                f"{line['truth'] / 2**30:7.2f} {line['predicted'] / 2**30:7.2f} GiB "
                f"{line['errors']['gatewright']:+7.2%} {line['phase']:9s} {line['note']}"
            )


def print_left(left: Counter[tuple[str, str]], covered: int) -> None:
    """Rows without a prediction, by reason."""
    print(f"\n{covered} rows predicted, {sum(left.values())} not:")
    for (name, reason), count in sorted(left.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:3d}  {name}: {reason}")


if __name__ == "__main__":
    main()
