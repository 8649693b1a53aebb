"""The frozen job of a training worker: everything it needs, in one file, written before it starts."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from specs.base import Sha256, Strict
from specs.parameters import TrainingConfiguration


class Job(Strict):
    """`job.json`. A worker that is started again with the same job goes on from its newest complete checkpoint.

    The worker writes its append-only files to `out` (`metrics.jsonl`, `micro_batches.jsonl`, `fed.jsonl`,
    `census.jsonl`, `sessions.jsonl`, `memory.jsonl`, `continuity.jsonl`, `spikes.jsonl`, `probes.jsonl`), then
    `settings.json`, `judgement.json`, `probe.json`, `evaluation.json`, `result.json` and `adapter/` (`model/` with
    method full). `out` and `checkpoints` belong together: neither resumes without the other.
    """

    training: TrainingConfiguration
    base_model: Path = Field(description="local folder with safetensors weights and tokenizer")
    base_model_name: str = Field("", description="as in the spec; written into the adapter's configuration")
    base_model_sha256: Sha256
    parent: Path | None = Field(None, description="folder with the adapter/ that training begins with; null: a new one")
    parent_sha256: Sha256 | None = Field(None, description="of that adapter/")
    samples: Path = Field(description="samples.parquet")
    samples_sha256: Sha256
    plan: Path = Field(description="batch_plan.parquet: the only source of order")
    whole_plan: bool = Field(True, description="false: the plan holds only some steps of a run, to measure them")
    out: Path
    checkpoints: Path
    probe_sample_ids: list[str] = Field(
        default_factory=list, description="loss without dropout before the first and after the last step"
    )
    probe_every: int | None = Field(
        None, ge=1, description="steps between further losses of the probe, in probes.jsonl; null: none"
    )
    evaluation_sample_ids: list[str] = Field(default_factory=list, description="evaluated after the last step's save")
    evaluation_batch: int = Field(1, ge=1, description="samples per forward pass of probe and evaluation")
    judge_after_step: int | None = Field(None, ge=1, description="the early judgement follows this step's save")
    judge_sample_ids: list[str] = Field(default_factory=list, description="held-out samples that it measures")
    judge_too_long: int = Field(0, ge=0, description="held-out samples with more tokens than any micro batch")
    judge_acts: bool = Field(True, description="false: the verdict is only recorded, as in a rehearsal")
    judge_bound: float = Field(0.0, description="what the change of the held-out loss must be below, in nats/token")
    memory_limit_bytes: int | None = Field(None, ge=1, description="the process may not hold more; null: no limit")
    collective_timeout_s: float = Field(1800, gt=0, description="how long ranks wait for one that does not come")
    fed_samples: int = Field(8, ge=0, description="samples written to fed.jsonl, decoded from the tensors as fed")
    checks: bool = Field(False, description="show after the last step that batches, masks and ends do what they should")
    save_at: list[int] = Field(default_factory=list, description="steps to save at, beside every save_steps")
    stop_after_step: int | None = Field(None, ge=1, description="end here with everything saved, unfinished")
    kill_after_step: int | None = Field(
        None, ge=1, description="the worker kills itself after this step, to prove that a killed run resumes"
    )


class WorkerResult(Strict):
    """`result.json`, and the last line of a worker that ended well. Finished only when `steps` equals `planned`."""

    steps: int
    planned: int
    resumed_from: int = Field(description="step of the checkpoint this worker began with; 0: from the start")
    checkpoint: str = Field(description="name of the newest checkpoint")
    finished: bool
