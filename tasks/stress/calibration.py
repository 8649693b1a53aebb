"""What a measurement teaches about the memory account, and how later accounts use it. Pure.

The rule: a process holds its framework (as measured before a model is loaded; on a GPU what the driver shows beyond
the reserved bytes) and `ratio` times what the account predicts beside it. `ratio` is what was measured beside the
framework over what was predicted, at the peak. A measurement within a tenth of the account confirms it, and changes
nothing. The rule goes both ways, and holds for one device, driver, software and kind
of training (`key`); micro batch, length, rank, optimizer and checkpointing may differ, because the account knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs.canonical import digest
from specs.parameters import TrainingConfiguration
from specs.proposals import Calibration, MemoryCheck
from tasks.memory.account import Account

FILE = "calibration.json"

CONFIRMED = 0.1
"""A measurement this near to the account confirms it: what is left is the noise of a heap, and carrying it over to
other configurations made them worse (benchmarks/calibration.py)."""

RULE = "process = framework + ratio x (predicted - predicted framework)"


def key_of(environment: Mapping[str, str], training: TrainingConfiguration) -> str:
    """What a calibration is good for: the environment and the kind of training."""
    return digest([dict(environment), training.method, training.weights, training.compute, training.attention])


def calibration_document(
    account: Account, found: Mapping[str, Any], environment: Mapping[str, str], training: TrainingConfiguration
) -> dict[str, Any]:
    """`calibration.json`: predicted, measured, and what follows. `found` is the measurement."""
    framework, held = _measured(account, found)
    return {
        "rule": RULE,
        "key": key_of(environment, training),
        "environment": dict(environment),
        "predicted": {
            "process_bytes": account.process_bytes,
            "held_bytes": account.peak_reserved_bytes,
            "framework_bytes": account.framework_bytes,
        },
        "measured": {"process_bytes": framework + held, "held_bytes": held, "framework_bytes": framework},
        "confirmed": abs((framework + held) / account.process_bytes - 1) <= CONFIRMED,
        "ratio": round(held / account.peak_reserved_bytes, 6),
        "framework_bytes": framework,
    }


def _measured(account: Account, found: Mapping[str, Any]) -> tuple[int, int]:
    """(framework, what is held beside it) in bytes."""
    if found["device"] != "cuda":
        framework = int(found["baseline_bytes"])
        return framework, int(found["peak_bytes"]) - framework
    reserved = int(found["peak_reserved_bytes"] or found["peak_bytes"])
    driver = found.get("peak_driver_bytes")
    framework = max(0, int(driver) - reserved) if driver else account.framework_bytes
    return framework, reserved


def read_calibration(document: Mapping[str, Any], evidence: str) -> Calibration:
    """The calibration in a published `calibration.json`, whose digest is `evidence`."""
    ratio, framework = document["ratio"], document["framework_bytes"]
    if document.get("confirmed"):
        ratio, framework = 1.0, document["predicted"]["framework_bytes"]
    return Calibration(ratio=ratio, framework_bytes=framework, key=document["key"], evidence=evidence)


def matching(calibrations: Sequence[Calibration], key: str) -> Calibration | None:
    """The first, which is the newest, that is good for `key`."""
    return next((c for c in calibrations if c.key == key), None)


def calibrated_bytes(held_bytes: int, calibration: Calibration) -> int:
    """Process bytes for predicted bytes beside the framework."""
    return calibration.framework_bytes + round(calibration.ratio * held_bytes)


def calibrated(check: MemoryCheck, calibration: Calibration) -> MemoryCheck:
    """The check with the calibrated peak. Host memory and disk that did not fit before do not fit now either."""
    peak = calibrated_bytes(check.peak_bytes - check.residents.get("framework", 0), calibration)
    elsewhere = not check.fits and check.peak_bytes <= check.usable_bytes
    return check.model_copy(
        update={
            "peak_bytes": peak,
            "fits": peak <= check.usable_bytes and not elsewhere,
            "account_bytes": check.peak_bytes,
            "calibration": calibration,
        }
    )
