"""How far a curve of losses is from noise, and how fast samples of each length were trained. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specs.criteria import Metric
from tasks.verify import training_logs as logs

Lines = Sequence[Mapping[str, Any]]

MAD_TO_SIGMA = 1.4826
"""The median absolute deviation of normal noise times this is its standard deviation."""

FEWEST = 4
"""Steps below which no trend is told from noise."""

CLASSES = 4
"""Classes of lengths, each with as many steps as the others."""


def _curve(lines: Lines) -> list[tuple[float, float]]:
    return [(float(line["step"]), float(line["loss"])) for line in lines if line.get("loss") is not None]


def loss_noise(lines: Lines) -> Metric:
    """Robust standard deviation of the losses around their own trend: how much batches differ."""
    points = _curve(lines)
    if len(points) < FEWEST:
        return logs.missing("nats/token", f"a loss of {FEWEST} steps in metrics.jsonl")
    slope = logs.theil_sen(points)
    rest = [loss - slope * step for step, loss in points]
    middle = statistics.median(rest)
    return Metric(value=MAD_TO_SIGMA * statistics.median(abs(r - middle) for r in rest), unit="nats/token")


def trend_certainty(lines: Lines) -> Metric:
    """How many standard errors the fall of the losses is from none: Mann and Kendall's test, which looks at the order
    of the losses alone, so that neither one wild batch nor the size of the noise decides. Positive: falling."""
    import numpy as np

    losses = [loss for _, loss in _curve(lines)]
    n = len(losses)
    if n < FEWEST:
        return logs.missing("standard errors", f"a loss of {FEWEST} steps in metrics.jsonl")
    values, falling = np.asarray(losses, np.float64), 0
    for i in range(n):  # every pair, a row at a time: thousands of steps have millions of them
        later = values[i + 1 :]
        falling += int((later < values[i]).sum()) - int((later > values[i]).sum())
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return Metric(value=(falling - _sign(falling)) / spread, unit="standard errors")


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


@dataclass(frozen=True)
class Throughput:
    """Steps whose samples have `shortest` to `longest` tokens in the mean, and their real tokens per second."""

    shortest: int
    longest: int
    steps: int
    tokens_per_second: float


def throughput_by_length(planned: Lines, lines: Lines) -> list[Throughput]:
    """The steps by the mean length of their samples, in classes of equal count. The first step warms up: left out."""
    lengths: dict[int, list[int]] = defaultdict(list)
    for row in planned:
        lengths[int(row["step"])].append(int(row["n_tokens"]))
    first = min((int(line["step"]) for line in lines), default=0)
    timed = sorted(
        (round(statistics.fmean(lengths[line["step"]])), int(line["step"]), line["tokens"], float(line["seconds"]))
        for line in lines
        if int(line["step"]) != first and line["step"] in lengths and line.get("seconds")
    )
    count = min(CLASSES, len(timed))
    groups = [timed[k * len(timed) // count : (k + 1) * len(timed) // count] for k in range(count)]
    return [Throughput(g[0][0], g[-1][0], len(g), sum(t[2] for t in g) / sum(t[3] for t in g)) for g in groups]


def slowest_length(planned: Lines, lines: Lines) -> Metric:
    """Real tokens per second of the class of lengths that is trained most slowly."""
    classes = throughput_by_length(planned, lines)
    if not classes:
        return logs.missing("tokens/s", "seconds of two steps in metrics.jsonl")
    return Metric(value=min(c.tokens_per_second for c in classes), unit="tokens/s")


def tokens_per_second(lines: Lines) -> Metric:
    """Real tokens over the seconds of all steps."""
    seconds = sum(float(line["seconds"]) for line in lines)
    if not seconds:
        return logs.missing("tokens/s", "seconds in metrics.jsonl")
    return Metric(value=sum(int(line["tokens"]) for line in lines) / seconds, unit="tokens/s")
