"""The limits of a stage's parameters: what `stages` and `caps` of the spec allow, by dotted path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from specs.parameters import PARAMETERS, TrainingConfiguration, leaves
from specs.project import Bounds, Project

_TRAINING_LEAVES = frozenset(leaves(TrainingConfiguration().model_dump(mode="json")))
_SHORT = {path.rpartition(".")[2]: f"training.{path}" for path in _TRAINING_LEAVES}


@dataclass(frozen=True)
class Limit:
    """What one parameter may be; `source` is where in project.yaml it says so. Both ends are included."""

    path: str
    source: str
    low: float | None = None
    high: float | None = None
    fixed: Any = None
    is_fixed: bool = False

    def broken_by(self, value: Any) -> str:
        """Why `value` is not allowed, or an empty string."""
        if self.is_fixed:
            return "" if value == self.fixed else f"{self.path} is fixed to {self.fixed!r} by {self.source}"
        if value is None:
            return f"{self.path} is unlimited, but {self.source} limits it" if self.high is not None else ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        if self.low is not None and value < self.low:
            return f"{self.path} {value:g} is below {self.low:g} ({self.source})"
        if self.high is not None and value > self.high:
            return f"{self.path} {value:g} is above {self.high:g} ({self.source})"
        return ""

    def nearest(self, value: Any) -> Any:
        """The allowed value nearest to `value`; integers stay integers."""
        if self.is_fixed:
            return self.fixed
        if value is None:
            return _whole(self.high, math.floor) if self.high is not None else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        whole = isinstance(value, int)
        if self.low is not None and value < self.low:
            return _whole(self.low, math.ceil) if whole else float(self.low)
        if self.high is not None and value > self.high:
            return _whole(self.high, math.floor) if whole else float(self.high)
        return value


def _whole(value: float, rounded: Any) -> int:
    return int(rounded(value))


def limits(spec: Project, gate: str) -> list[Limit]:
    """Every limit on the parameters of `gate`, bounds before caps, sorted by path.

    The gate before the stress test carries the training configuration of `train`, so limits of `train` hold there too.
    """
    found: list[Limit] = []
    for stage in ("stress_test", "train") if gate in ("stress_test", "train") else (gate,):
        for name, setting in sorted(spec.stages.get(stage, {}).items()):
            if path := _path(gate, name):
                found.append(_bound(path, f"stages.{stage}.{name}", setting))
        for name, cap in sorted(spec.caps.get(stage, {}).items()):
            if path := _path(gate, name):
                found.append(Limit(path, f"caps.{stage}.{name}", high=cap))
    return sorted(found, key=lambda limit: (limit.path, limit.source.startswith("caps")))


def _bound(path: str, source: str, setting: Any) -> Limit:
    if isinstance(setting, Bounds):
        return Limit(path, source, low=setting.min, high=setting.max)
    return Limit(path, source, fixed=setting, is_fixed=True)


def _path(gate: str, name: str) -> str | None:
    """The dotted path that a leaf name of the spec means at a gate; null where the gate has no such parameter."""
    fields = PARAMETERS[gate].model_fields
    if name in fields:
        return name
    return _SHORT.get(name) if "training" in fields else None


def upper(spec: Project, gate: str, name: str) -> float | None:
    """The lowest upper limit on a leaf, fixed values included; null where nothing limits it."""
    path = _path(gate, name)
    found: list[float] = []
    for limit in limits(spec, gate):
        if limit.path == path:
            value = limit.fixed if limit.is_fixed else limit.high
            if isinstance(value, int | float):
                found.append(value)
    return min(found, default=None)


def fit(spec: Project, gate: str, path: str, value: Any) -> tuple[Any, str]:
    """The allowed value nearest to `value`, and the source of the limit that moved it (empty: none did)."""
    moved = ""
    for limit in limits(spec, gate):
        if limit.path == path and limit.nearest(value) != value:
            value, moved = limit.nearest(value), limit.source
    return value, moved
