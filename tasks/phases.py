"""Memory by phase of a step, predicted and measured, as the artifacts of the stress test hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PHASE_ORDER = (
    *("load", "probe", "train", "forward", "loss", "recompute", "backward", "optimizer"),
    *("evaluate", "save", "resume"),
)


def phase_bytes(
    account: Mapping[str, Any], measurement: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """(predicted, measured) peak bytes by phase, in the same kind of bytes.

    What is measured of a training step as a whole (`train`) stands beside the predicted peak of the step. On a CPU the
    resident set is measured, so the framework's bytes are added to the predicted phases.
    """
    framework = account.get("framework_bytes") if measurement.get("device") == "cpu" else 0
    predicted = {name: value + (framework or 0) for name, value in _numbers(account.get("phases")).items()}
    if (peak := account.get("predicted_peak_bytes")) is not None:
        predicted["train"] = float(peak)
    return predicted, _numbers(measurement.get("phases"))


def phase_order(*found: Mapping[str, float]) -> list[str]:
    """Phases in the order of a training run; others after them by name."""
    names = {name for phases_found in found for name in phases_found}
    return sorted(names, key=lambda n: (PHASE_ORDER.index(n) if n in PHASE_ORDER else len(PHASE_ORDER), n))


def _numbers(found: Any) -> dict[str, float]:
    if not isinstance(found, Mapping):
        return {}
    return {str(k): float(v) for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}
