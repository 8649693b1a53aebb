"""The `stress_test` stage: the worst planned steps on the real device, measured, and set against the memory account.

It makes the batch plan of the whole run, which `train` then follows, and runs its worst steps and one of every bucket
of lengths with the real worker: training, save, evaluation, and a resume from the save that must reach the same
losses. Where memory runs out, the ladder is climbed (`tasks/stress/ladder.py`).
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from specs.canonical import canonical_bytes
from specs.errors import InputError, OutOfMemory
from specs.files import write_bytes, write_json
from specs.hardware import FILLED_TO
from specs.parameters import StressTestParameters, TrainingConfiguration
from specs.stages import Progress, StageContext, StageResult
from tasks.data.batch_plan import write_plan
from tasks.memory.account import Account, AccountCoefficients
from tasks.memory.devices import device_of_rank
from tasks.memory.measurement import measurement
from tasks.memory.prediction import plan_account
from tasks.pool import training_pool
from tasks.stress import buckets, calibration
from tasks.stress.climbing import RECORD, Climber, write_rungs
from tasks.stress.environment import allocator_settings, environment_of, fingerprint_of
from tasks.stress.ladder import PROBE_TOKENS, Rules, Rung, changes, climb, proposals
from tasks.stress.trial import Bench, Trial
from tasks.training.launch import keep_results
from tasks.training.models import check_possible

CONFIGURATION = "configuration.json"
"""The configuration that was measured in the end: the approved one, or what the ladder took instead."""


def run(context: StageContext, progress: Progress) -> StageResult:
    """Plan, predict, run, climb where memory runs out, and write what was measured.

    Raises `OutOfMemory` when nothing that the ladder may take runs.
    """
    parameters = StressTestParameters.model_validate(context.parameters)
    if context.base_model is None or context.base_model_sha256 is None:
        raise InputError("stress_test needs a base model", "set base_model in project.yaml")
    bench = _bench(context, parameters, progress)
    bound = usable_bound(context)
    climber = Climber(bench, parameters.training, bound)
    found = climb(parameters.training, _rules(bench), climber)
    if found.training is None:
        raise _nothing_runs(
            bench, parameters.training, climber.rungs, proposals(parameters.training, found, _longest(bench))
        )
    trial, rungs = climber.taken(found.training)
    write_rungs(context.artifacts / RECORD, rungs)
    _write(bench, trial, bound)
    return StageResult(notes=_notes(bench, trial, rungs))


def usable_bound(context: StageContext) -> float:
    """The share of usable memory that a rung of the ladder may fill: where the criteria of this stage block, else as
    much as plans fill."""
    found = context.spec.fillable
    return FILLED_TO if found is None else found


def _bench(context: StageContext, parameters: StressTestParameters, progress: Progress) -> Bench:
    import pyarrow.parquet as pq

    samples = context.inputs["data"] / "artifacts" / "samples.parquet"
    columns = ["sample_id", "split", "n_tokens"]
    columns += ["bucket"] if "bucket" in pq.read_schema(samples).names else []
    table = pq.read_table(samples, columns=columns).to_pylist()
    held_out = [(r["sample_id"], int(r["n_tokens"])) for r in table if r["split"] == "eval"]
    return Bench(
        context=context,
        progress=progress,
        device=device_of_rank(parameters.training.ranks, context.spec.launcher.memory_gb),
        samples=samples,
        pool=training_pool(samples, parameters.training, context.spec.rehearsal),
        held_out=sorted(held_out, key=lambda s: (-s[1], s[0])),
        buckets={r["sample_id"]: int(r["bucket"]) for r in table if r.get("bucket") is not None},
        growth_steps=parameters.growth_steps,
    )


def _longest(bench: Bench) -> int:
    return max((n_tokens for _, n_tokens in bench.pool.samples), default=0)


def _rules(bench: Bench) -> Rules:
    import sys

    kind = bench.device.kind

    def refuses(training: TrainingConfiguration) -> str:
        if kind == "cpu" and training.optimizer == "paged_adamw_8bit":
            return "paged states lie in host memory, which is where they are on a CPU anyway"
        try:
            check_possible(training, kind)
        except InputError as error:
            return error.message
        return ""

    gpu = kind == "cuda"
    return Rules(bench.context.spec, gpu, gpu and sys.platform == "linux", _longest(bench), refuses)


def _nothing_runs(bench: Bench, training: TrainingConfiguration, rungs: list[Rung], ways: list[str]) -> OutOfMemory:
    tried = [rung for rung in rungs if rung.outcome == "out_of_memory"]
    short = any(rung.rung == "probe" and rung.outcome in ("runs", "above_limit") for rung in rungs)
    one = f"one sample of at most {PROBE_TOKENS} tokens at a time"
    probe = f"{one} can be trained" if short else f"not even {one} can be trained"
    skipped = [f"{rung.rung}: {rung.why}" for rung in rungs if rung.outcome == "skipped" and rung.rung != "probe"]
    return OutOfMemory(
        f"out of memory with the approved configuration (micro batch {training.micro_batch} x "
        f"{training.gradient_accumulation}) and with all that may be taken instead: {len(tried)} configurations were "
        f"tried on {bench.device.name} with {bench.device.usable_bytes / 2**30:.2f} GiB usable; {probe}. "
        f"{rungs[0].why}" + (f". Not tried: {'; '.join(skipped)}" if skipped else ""),
        "a person decides (`gatewright resume --anew` opens the gate again): " + "; ".join(ways),
        tried[-1].model_dump(mode="json", include={"peak_bytes", "usable_bytes"}) if tried else None,
    )


# -- what is left behind


def _write(bench: Bench, trial: Trial, bound: float) -> None:
    context, device, artifacts = bench.context, bench.device, bench.context.artifacts
    training = trial.training
    write_plan(trial.rows, artifacts / "batch_plan.parquet")
    write_plan(trial.plan.rows, artifacts / "stress_plan.parquet")
    keep_results(trial.straight, artifacts)
    keep_results(trial.resumed, artifacts / "resumed")
    for folder in ("adapter", "model", "resumed/adapter", "resumed/model"):
        shutil.rmtree(artifacts / folder, ignore_errors=True)
    straight, resumed = trial.logs(trial.straight), trial.logs(trial.resumed)
    planned = trial.plan.planned
    found = measurement(straight=straight, resumed=resumed, worst=trial.worst, planned=planned, device=device)
    found |= {
        "free_bytes_before": device.free_bytes,
        "buckets": buckets.times(trial.rows, bench.buckets, planned, straight["metrics"]),
    }
    write_json(artifacts / "measurement.json", found)
    write_bytes(artifacts / CONFIGURATION, canonical_bytes(training))
    environment = environment_of(device, training)
    assert context.base_model is not None
    account, coefficients = plan_account(context.base_model, training, device, trial.rows, bench.progress)
    learnt = calibration.calibration_document(account, found, environment, training)
    write_json(artifacts / calibration.FILE, learnt)
    _write_account(bench, account, coefficients, found, learnt)
    settings = json.loads((trial.straight / "settings.json").read_bytes())
    write_json(
        artifacts / "device.json",
        {
            **device.model_dump(mode="json", exclude={"free_bytes"}),
            "worker": settings["device"],
            "versions": settings["versions"],
            "allocator": allocator_settings(training),
            "threads": training.threads,
            "environment": environment,
            "fingerprint": fingerprint_of(settings["fingerprint"], environment),
            "peak_bytes": found["peak_reserved_bytes"] or found["peak_bytes"],
            "usable_bound": bound,
        },
    )


def _write_account(
    bench: Bench, account: Account, coefficients: AccountCoefficients, found: dict[str, Any], learnt: dict[str, Any]
) -> None:
    """`account.json`. What was promised is the account, with the framework as measured on a CPU, and as calibrated by
    an earlier stress test where the approved proposal was."""
    device = bench.device
    measured = account.with_framework(found["baseline_bytes"]) if device.kind == "cpu" else account
    promised = measured.process_bytes if device.kind == "cpu" else account.peak_allocated_bytes
    used = bench.context.memory.calibration if bench.context.memory else None
    if used is not None and used.key == learnt["key"] and device.kind == "cpu":
        own = used.model_copy(update={"framework_bytes": measured.framework_bytes})
        promised = calibration.calibrated_bytes(account.peak_reserved_bytes, own)
    else:
        used = None
    write_json(
        bench.context.artifacts / "account.json",
        {
            **measured.on(device).model_dump(mode="json"),
            "predicted_peak_bytes": promised,
            "calibrated_by": used.model_dump(mode="json") if used else None,
            "coefficients": coefficients.model_dump(mode="json"),
        },
    )


def _notes(bench: Bench, trial: Trial, rungs: list[Rung]) -> list[str]:
    context, device = bench.context, bench.device
    zh = context.spec.language == "zh"
    steps, run_steps = trial.rows[-1].step, ("、" if zh else ", ").join(str(w.step) for w in trial.worst)
    notes = [
        f"计划共 {steps} 个优化步；已实测最坏的第 {run_steps} 步"
        if zh
        else f"the plan has {steps} optimizer steps; measured were its worst, {run_steps}"
    ]
    if context.spec.hardware != "auto":
        notes.append(
            f"spec 指定了 {context.spec.hardware.gpu}，但测量是在本机的 {device.name} 上做的"
            if zh
            else f"the spec names {context.spec.hardware.gpu}; what was measured is the {device.name} of this machine"
        )
    notes += bench.pool.notes(trial.rows, trial.training, context.spec.language)
    return notes + _ladder_notes(context, trial, rungs, zh)


def _ladder_notes(context: StageContext, trial: Trial, rungs: list[Rung], zh: bool) -> list[str]:
    """What the ladder took, and that only a person's approval at the next gate makes it what is trained."""
    approved = StressTestParameters.model_validate(context.parameters).training
    before = approved.model_dump(mode="json")
    took = [f"{path} {before[path]} -> {value}" for path, value in changes(approved, trial.training).items()]
    if not took:
        return []
    return [
        f"内存不足：阶梯共 {len(rungs)} 级，改用 {'、'.join(took)}；有效批量不变，训练前须在下一关口批准"
        if zh
        else f"out of memory: after {len(rungs)} rungs the ladder took {', '.join(took)}; the samples of a step are "
        "the same, and the next gate asks for approval before anything is trained with it"
    ]
