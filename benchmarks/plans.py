"""What the plan search rests on, checked: derived against traced accounts, its cost, and times against published ones.

    python benchmarks/plans.py agreement [MODEL ...] [--candidates 20]
    python benchmarks/plans.py cost [--model MODEL] [--gpu "RTX 4090"]
    python benchmarks/plans.py throughput "A100 SXM4 80GB=a100_80gb.csv" ["L40=l40.csv" ...]

`throughput` reads tables in the layout of foundation-model-stack/fms-acceleration, scripts/benchmarks/refs: columns
`framework_config, model_name_or_path, num_gpus, peft_method, per_device_train_batch_size, train_tokens_per_second,
train_samples_per_second` (tokens per second are of one GPU). Rows without a figure, with other software than the
loss paths `hf-2024` and `fused`, or of a model that the catalog lacks are counted, not predicted.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specs.errors import ModelError
from specs.hardware import find_model
from tasks.memory.settings import TraceSettings
from tasks.planning.machine import Machine, machine_named
from tasks.planning.plans import Configuration, Limits
from tasks.planning.workload import Sums, Workload

OPTIMIZERS = ("adamw", "adamw_fused", "adamw_8bit", "paged_adamw_8bit")
FAMILIES: tuple[dict[str, Any], ...] = (
    {"method": "full", "weights": "fp32", "compute": "amp-bf16"},
    {"method": "full"},
    {"method": "lora", "compute": "amp-bf16"},
    {"method": "qlora", "weights": "nf4-dq", "compute": "amp-bf16"},
)
SHARED = (("none", "none", 1), ("ddp", "none", 4), ("zero2", "none", 2), ("zero3", "none", 8), ("fsdp", "none", 4))
SOFTWARE = {"none": "hf-2024", "": "hf-2024", "foak-fast-kernels": "fused"}
QLORA = {"baseline-peft-bnb": "hf-2024", "accelerated-peft-bnb": "hf-2024", "accelerated-peft-bnb-foak": "fused"}


def agreement(models: list[str], count: int) -> None:
    """Random candidates: the derived account against the trace of the same batch."""
    from tasks.memory.fit import divided
    from tasks.memory.recording import family

    rng = random.Random(7)
    errors: list[float] = []
    for name in models:
        architecture = find_model(name).architecture
        for values in FAMILIES:
            for attention in ("sdpa", "flash"):
                checkpointing = rng.random() < 0.6
                base = TraceSettings(
                    **{"weights": "bf16", "compute": "bf16", **values},
                    architecture=architecture,
                    activation_checkpointing=checkpointing,
                    attention=attention,  # type: ignore[arg-type]
                )
                recorded = family(base, OPTIMIZERS, 8192)  # type: ignore[arg-type]
                worst = 0.0
                for _ in range(max(1, count // (len(FAMILIES) * 2 * len(models)))):
                    asked = _drawn(base, rng)
                    traced, derived = divided(asked), recorded.account(asked)
                    off = [abs(derived.phases[p] / traced.phases[p] - 1) for p in traced.phases]
                    off.append(abs(derived.peak_allocated_bytes / traced.peak_allocated_bytes - 1))
                    worst = max(worst, *off)
                    errors.append(max(off))
                line = f"{name:32s} {base.method:6s} {base.weights:7s} {attention:6s}"
                print(f"{line} checkpointing {checkpointing!s:5s} worst {worst:.5%}", flush=True)
    print(f"{len(errors)} candidates: worst of any phase {max(errors):.5%}, median {statistics.median(errors):.5%}")


def _drawn(base: TraceSettings, rng: random.Random) -> TraceSettings:
    """A member of the family at random. A 4-bit family is recorded for one device or for shards, not for both."""
    size = rng.choice([1, 2, 3, 4, 6, 8])
    sharding, offload, gpus = rng.choice(SHARED if base.method != "qlora" else SHARED[:2])
    if base.method == "full" and base.weights == "fp32" and sharding == "fsdp":
        sharding, gpus = "none", 1
    return base.model_copy(
        update={
            "micro_batch": size,
            "seq_len": 128 * rng.randint(1, 40),
            "padded": size > 1,
            "evaluation_batch": size,
            "gradient_accumulation": rng.choice([1, 4]),
            "optimizer": rng.choice(OPTIMIZERS),
            "sharding": sharding,
            "offload": offload,
            "gpus": gpus,
        }
    )


def cost(model: str, gpu: str) -> None:
    """CPU seconds of a whole search: recording in worker processes with their imports, and the search itself."""
    import os
    import resource
    import tempfile

    from tasks.planning.search import find_plans

    with tempfile.TemporaryDirectory() as home:
        os.environ["GATEWRIGHT_HOME"] = home
        rng = random.Random(3)
        lengths = tuple(int(min(4000, rng.lognormvariate(6, 0.8))) for _ in range(5000))
        machine, workload = machine_named(gpu, 1), Workload(lengths=lengths, effective_batch=16)
        for what in ("first", "again"):
            began = time.perf_counter(), _cpu(resource)
            found = find_plans(model, find_model(model).architecture, machine, workload, Limits())
            wall, spent = time.perf_counter() - began[0], _cpu(resource) - began[1]
            print(
                f"{what}: {found.candidates} candidates, {len(found.plans)} feasible, {wall:.1f} s, {spent:.1f} CPU s"
            )


def _cpu(resource: Any) -> float:
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def throughput(tables: list[str]) -> None:
    """Predicted seconds per step against published ones, and how often the interval holds them."""
    families: dict[str, Any] = {}
    errors: dict[str, list[tuple[float, bool]]] = {}
    left: Counter[str] = Counter()
    for table in tables:
        card, _, path = table.partition("=")
        for row in csv.DictReader(Path(path).read_text("utf-8").splitlines()):
            found = _row(row)
            if isinstance(found, str):
                left[found] += 1
                continue
            base, configuration = found
            machine = machine_named(card, configuration.data_ranks)
            measured = configuration.micro_batch * configuration.seq_len / float(row["train_tokens_per_second"])
            predicted = _predicted(base, configuration, machine, families)
            error, inside = predicted.expected / measured - 1, predicted.low <= measured <= predicted.high
            kind = f"{card}, {configuration.data_ranks} GPU"
            errors.setdefault(kind, []).append((error, inside))
            line = f"{kind:24s} {row['model_name_or_path'][-24:]:24s} {configuration.method:6s} {base.loss_path:8s}"
            print(
                f"{line} {configuration.micro_batch}x{configuration.seq_len} {measured:7.2f} s {error:+7.1%} "
                f"{'' if inside else 'outside '}{predicted.bound}",
                flush=True,
            )
    for kind, pairs in errors.items():
        sizes = sorted(abs(e) for e, _ in pairs)
        print(
            f"{kind:24s} {len(pairs):3d} rows: median {statistics.median(sizes):.1%}, worst {sizes[-1]:.1%}, "
            f"bias {statistics.median(e for e, _ in pairs):+.1%}, {sum(i for _, i in pairs)} within the interval"
        )
    print("not predicted:", ", ".join(f"{n} {why}" for why, n in left.most_common()))


def _row(row: dict[str, str]) -> tuple[TraceSettings, Configuration] | str:
    if not row.get("train_tokens_per_second"):
        return "without a figure"
    software, lora = row["framework_config"], row["peft_method"] == "lora"
    path = SOFTWARE.get(software) or QLORA.get(software)
    if path is None:
        return f"with {software}"
    try:
        architecture = find_model(row["model_name_or_path"]).architecture
    except ModelError:
        return "of models that the catalog lacks"
    method = "qlora" if software in QLORA else "lora" if lora else "full"
    gpus, size = int(row["num_gpus"]), int(row["per_device_train_batch_size"])
    tokens = float(row["train_tokens_per_second"]) * gpus / float(row["train_samples_per_second"])
    base = TraceSettings(
        architecture=architecture,
        method=method,  # type: ignore[arg-type]
        targets=(row.get("target_modules") or "q_proj k_proj v_proj o_proj").replace("c_attn", "").split(),
        dropout=float(row["lora_dropout"] or 0.0) if lora else 0.0,
        weights="nf4" if method == "qlora" else "bf16",
        compute="amp-bf16" if method == "qlora" else "bf16",
        activation_checkpointing=True,
        attention="flash",
        loss_path=path,  # type: ignore[arg-type]
        sharding="fsdp" if gpus > 1 else "none",
        gpus=gpus,
    )
    configuration = Configuration(
        method=method,  # type: ignore[arg-type]
        weights=base.weights,
        compute=base.compute,
        optimizer="adamw",
        micro_batch=size,
        gradient_accumulation=1,
        data_ranks=gpus,
        seq_len=round(tokens / 128) * 128,
        activation_checkpointing=True,
        attention="flash",
        sharding=base.sharding,
    )
    return base, configuration


def _predicted(base: TraceSettings, c: Configuration, machine: Machine, families: dict[str, Any]) -> Any:
    from tasks.memory.recording import family
    from tasks.planning.timing import step_seconds

    key = str((base.architecture, base.method, base.loss_path, base.targets, base.sharding, base.dropout))
    if key not in families:
        families[key] = family(base, ("adamw",), 8192)
    update = {"micro_batch": c.micro_batch, "seq_len": c.seq_len, "optimizer": "adamw", "padded": c.micro_batch > 1}
    account = families[key].account(base.model_copy(update=update))
    tokens = float(c.micro_batch * c.seq_len)
    sums = Sums(1, tokens, tokens * c.seq_len, 0, c.seq_len)
    return step_seconds(c, account, families[key], machine, sums)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    what = parser.add_subparsers(dest="what", required=True)
    agreeing = what.add_parser("agreement")
    agreeing.add_argument("models", nargs="*", default=["meta-llama/Meta-Llama-3-8B"])
    agreeing.add_argument("--candidates", type=int, default=24)
    costing = what.add_parser("cost")
    costing.add_argument("--model", default="meta-llama/Meta-Llama-3-8B")
    costing.add_argument("--gpu", default="RTX 4090")
    what.add_parser("throughput").add_argument("tables", nargs="+")
    options = parser.parse_args()
    if options.what == "agreement":
        agreement(options.models, options.candidates)
    elif options.what == "cost":
        cost(options.model, options.gpu)
    else:
        throughput(options.tables)


if __name__ == "__main__":
    main()
