"""Trainings cut off at drawn moments, resumed, and compared bit for bit with the one that was never cut off.

    python benchmarks/kill_resume.py [--count 100] [--seed 1] [--method lora|full] [--ranks 1] [--fill]
                                     [--folder FOLDER]

`--count` moments by SIGKILL and as many by SIGTERM, drawn by the seed inside five regions of the worker: loading,
steps, evaluation, saving, ends of epochs; every second one in a session that resumes. The model is the tiny bilingual
one, in fp32 on the CPU, with dropout 0.05, length buckets and accumulation. Compared are losses, gradient norms,
learning rates, order, census, probe, judgement and final weights. What differs is left in FOLDER, and makes the exit
code 1. With `--fill` short samples go through together (`fill_micro_batches`).

With `--ranks 2` two processes train (gloo, on the CPU), and in turn one rank, all of them with their parent, or the
parent alone is hit, at a moment of one of the ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SIGNALS = ("SIGKILL", "SIGTERM")
SHARES = {"loading": 0.2, "steps": 0.25, "evaluation": 0.15, "saving": 0.25, "epoch ends": 0.15}


def main() -> int:
    """Prints one line per moment that fails, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", choices=("lora", "full"), default="lora")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="kill-resume-"))
    os.environ["GATEWRIGHT_HOME"] = str(folder / "home")
    return measure(folder, asked.count, asked.seed, asked.method, asked.ranks, asked.fill)


def measure(folder: Path, count: int, seed: int, method: str, ranks: int = 1, fill: bool = False) -> int:
    """Runs every moment one after the other. Counts by region; over several ranks by who is hit."""
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tests.support.samples import write_samples
    from tests.training.kill_matrix import TARGETS, Matrix, Moment, matrix_training

    model = resolve_base_model("package:gatewright-tiny", folder, Hub(), Quiet()).folder
    shared = {"ranks": ranks, "micro_batch": 2, "gradient_accumulation": 2 * ranks} if ranks > 1 else {}
    samples = write_samples(folder / "samples.parquet", model, **({"count": 49} if ranks > 1 else {}))
    training = matrix_training(
        method=method, fill_micro_batches=fill, **shared, **({"lr": 5e-4} if method == "full" else {})
    )
    began = time.monotonic()
    matrix = Matrix(folder, model, samples, training)
    wanted = {region: round(share * count) for region, share in SHARES.items()}

    def moments(signal_name: str) -> Iterable[Moment]:
        return matrix.draw_ranks(signal_name, count, seed) if ranks > 1 else matrix.draw(signal_name, wanted, seed)

    tried: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    places: Counter[str] = Counter()
    for signal_name in SIGNALS:
        for moment in moments(signal_name):
            found = matrix.run(moment)
            row = moment.target if ranks > 1 else moment.region
            tried[row, signal_name] += 1
            equal[row, signal_name] += not found
            places[f"{moment.region}, rank {moment.rank}"] += 1
            if found:
                print(f"{moment}: {found}", flush=True)
    total = f"{sum(equal.values())} of {sum(tried.values())} resumed and equal bit for bit"
    print(f"{ranks} ranks, method {method}, {'filled, ' if fill else ''}seed {seed}: {total}")
    print(f"{'hit':<12}{SIGNALS[0]:>9}{SIGNALS[1]:>9}")
    for row in TARGETS if ranks > 1 else SHARES:
        print(f"{row:<12}" + "".join(f"{equal[row, s]}/{tried[row, s]}".rjust(9) for s in SIGNALS))
    if ranks > 1:
        print("; ".join(f"{n} in {place}" for place, n in sorted(places.items())))
    else:
        for resumes, name in ((False, "uninterrupted"), (True, "resuming")):
            print(f"moments of a session that is {name}: {dict(matrix.counts[resumes])}")
    print(f"in {time.monotonic() - began:.0f} s")
    return 0 if equal == tried else 1


if __name__ == "__main__":
    sys.exit(main())
