"""Accounts for callers without torch: answered from stored coefficients, else traced in a process of its own."""

from __future__ import annotations

import json
import os
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from specs import places
from specs.canonical import canonical_bytes, digest, sha256_file
from specs.files import keep_if_possible, write_bytes
from specs.parameters import TrainingConfiguration
from specs.proposals import MemoryCheck
from specs.stages import Progress, Quiet
from tasks.memory.account import Account, AccountCoefficients
from tasks.memory.architecture import architecture_of
from tasks.memory.devices import Device
from tasks.memory.settings import TraceSettings, from_training

PROGRAM = "tasks.memory.estimate_program"


def estimate(settings: TraceSettings, device: Device | None = None, progress: Progress | None = None) -> Account:
    """One account, traced; from the cache when it was asked before. `device` adds whether it fits."""
    path = _place(_key(settings))
    found, progress = _read(path), progress or Quiet()
    if found is None:
        found = _run(settings, progress, False)
        keep_if_possible(path, canonical_bytes(found), progress.say)
    account = Account.model_validate(found["account"])
    return account.on(device) if device else account


def coefficients_for(settings: TraceSettings, progress: Progress | None = None) -> AccountCoefficients:
    """Coefficients for the neighbourhood of one batch; from the cache when a wide enough set is there."""
    path = _place(_family_key(settings))
    found, progress = _read(path), progress or Quiet()
    if found is None or not _covers(found, settings):
        both = _run(settings, progress, True)["coefficients"]
        for micro_batches, made in zip((1, 2), both, strict=True):
            other = settings.model_copy(update={"gradient_accumulation": micro_batches})
            document = canonical_bytes({"account": None, "coefficients": made})
            keep_if_possible(_place(_family_key(other)), document, progress.say)
        found = {"coefficients": both[settings.gradient_accumulation > 1]}
    return AccountCoefficients.model_validate(found["coefficients"])


def account_for(base_model: Path, training: TrainingConfiguration, device: Device, longest: int) -> MemoryCheck:
    """What a proposal carries: the heaviest micro batch of a training configuration on a device.

    `longest` is the longest sample in tokens. Raises `ModelError` for a model that cannot be built.
    """
    device = device.per_rank(training.ranks)
    return account_of(base_model, training, device, longest).check(device)


def account_of(base_model: Path | str, training: TrainingConfiguration, device: Device, longest: int) -> Account:
    """The account behind `account_for`."""
    settings = from_training(architecture_of(base_model), training, longest, device.kind)
    return coefficients_for(settings).account(settings.micro_batch, settings.seq_len).on(device)


def code_digest() -> str:
    """Digest of the tracing code, so that a change of it asks again."""
    return digest({p.name: sha256_file(p) for p in sorted(Path(__file__).parent.glob("*.py"))})


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "transformers", "peft", "accelerate"):
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            found[name] = ""
    return found


def _key(settings: TraceSettings) -> str:
    return digest({"code": code_digest(), "versions": versions(), "settings": settings})


def _family_key(settings: TraceSettings) -> str:
    """One key for all batches: what coefficients are good for. Accumulation beyond two changes no peak."""
    same = {"micro_batch": 1, "seq_len": 8, "padded": False, "evaluation_batch": 1}
    same["gradient_accumulation"] = min(settings.gradient_accumulation, 2)
    return "family-" + _key(settings.model_copy(update=same))


def _place(key: str) -> Path:
    return places.home() / "accounts" / f"{key}.json"


def _covers(found: dict[str, Any], settings: TraceSettings) -> bool:
    try:
        known = AccountCoefficients.model_validate(found["coefficients"])
    except (ValidationError, KeyError):
        return False
    return known.covers(settings.micro_batch, settings.seq_len)


def _read(path: Path) -> dict[str, Any] | None:
    """A stored answer; none when there is none or it cannot be read, and then it is made again."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "account" in found else None


def _run(settings: TraceSettings, progress: Progress, coefficients: bool) -> dict[str, Any]:
    from tasks.workers import run_worker

    with tempfile.TemporaryDirectory(prefix="gatewright-account-") as folder:
        job = Path(folder) / "job.json"
        write_bytes(job, json.dumps({"settings": settings.model_dump(), "coefficients": coefficients}).encode())
        progress.start("tracing the memory account")
        answer = run_worker(PROGRAM, job, Path(folder) / "log.txt", progress, threads=os.cpu_count() or 1)
    return {"account": answer["account"], "coefficients": answer["coefficients"]}
