"""Trainings cut off at drawn moments, resumed, and compared bit for bit with the one that was never cut off.

    python benchmarks/kill_resume.py [--count 100] [--seed 1] [--method lora|full] [--ranks 1] [--folder FOLDER]

`--count` moments by SIGKILL and as many by SIGTERM, drawn by the seed inside five regions of the worker: loading,
steps, evaluation, saving, ends of epochs; every second one in a session that resumes. The model is the tiny bilingual
one, in fp32 on the CPU, with dropout 0.05, length buckets and accumulation. Compared are losses, gradient norms,
learning rates, order, census, probe, judgement and final weights. What
differs is left in FOLDER, and makes the exit code 1.

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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SHARES = {"loading": 0.2, "steps": 0.25, "evaluation": 0.15, "saving": 0.25, "epoch ends": 0.15}


def main() -> int:
    """Prints one line per moment that fails, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--method", choices=("lora", "full"), default="lora")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="kill-resume-"))
    os.environ["GATEWRIGHT_HOME"] = str(folder / "home")
    if asked.ranks > 1:
        return measure_ranks(folder, asked.count, asked.seed, asked.method, asked.ranks)
    return measure(folder, asked.count, asked.seed, asked.method)


def measure(folder: Path, count: int, seed: int, method: str) -> int:
    """Runs every moment one after the other."""
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tests.support.samples import write_samples
    from tests.training.kill_matrix import Matrix, matrix_training

    model = resolve_base_model("package:gatewright-tiny", folder, Hub(), Quiet()).folder
    samples = write_samples(folder / "samples.parquet", model)
    training = matrix_training(method=method, **({"lr": 5e-4} if method == "full" else {}))
    began = time.monotonic()
    matrix = Matrix(folder, model, samples, training)
    tried: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    for signal_name in ("SIGKILL", "SIGTERM"):
        wanted = {region: round(share * count) for region, share in SHARES.items()}
        for moment in matrix.draw(signal_name, wanted, seed):
            found = matrix.run(moment)
            tried[moment.region, signal_name] += 1
            equal[moment.region, signal_name] += not found
            if found:
                print(f"{moment}: {found}", flush=True)
    print(f"method {method}, seed {seed}: {sum(equal.values())} of {sum(tried.values())} resumed and equal bit for bit")
    print(f"{'region':<12}{'moments':>9}{'resumed':>9}  {'SIGKILL':>9}{'SIGTERM':>9}")
    for region in SHARES:
        shown = [f"{equal[region, s]}/{tried[region, s]}" for s in ("SIGKILL", "SIGTERM")]
        print(
            f"{region:<12}{matrix.counts[False][region]:>9}{matrix.counts[True][region]:>9}  {shown[0]:>9}{shown[1]:>9}"
        )
    print(f"in {time.monotonic() - began:.0f} s; moments: those of an uninterrupted session, and of one that resumes")
    return 0 if equal == tried else 1


def measure_ranks(folder: Path, count: int, seed: int, method: str, ranks: int) -> int:
    """The same over several ranks; who is hit is counted instead of regions."""
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tests.support.samples import write_samples
    from tests.training.kill_matrix import TARGETS, Matrix, matrix_training

    model = resolve_base_model("package:gatewright-tiny", folder, Hub(), Quiet()).folder
    samples = write_samples(folder / "samples.parquet", model, count=49)
    settings = {"ranks": ranks, "micro_batch": 2, "gradient_accumulation": 2 * ranks, "method": method}
    training = matrix_training(**settings, **({"lr": 5e-4} if method == "full" else {}))
    began = time.monotonic()
    matrix = Matrix(folder, model, samples, training)
    tried: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    regions: Counter[str] = Counter()
    for signal_name in ("SIGKILL", "SIGTERM"):
        for moment in matrix.draw_ranks(signal_name, count, seed):
            found = matrix.run(moment)
            tried[moment.target, signal_name] += 1
            equal[moment.target, signal_name] += not found
            regions[f"{moment.region}, rank {moment.rank}"] += 1
            if found:
                print(f"{moment}: {found}", flush=True)
    total = f"{sum(equal.values())} of {sum(tried.values())} resumed and equal bit for bit"
    print(f"{ranks} ranks, method {method}, seed {seed}: {total}")
    print(f"{'hit':<12}{'SIGKILL':>9}{'SIGTERM':>9}")
    for target in TARGETS:
        shown = [f"{equal[target, s]}/{tried[target, s]}" for s in ("SIGKILL", "SIGTERM")]
        print(f"{target:<12}{shown[0]:>9}{shown[1]:>9}")
    print("; ".join(f"{n} in {region}" for region, n in sorted(regions.items())))
    print(f"in {time.monotonic() - began:.0f} s")
    return 0 if equal == tried else 1


if __name__ == "__main__":
    sys.exit(main())
