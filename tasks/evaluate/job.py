"""The frozen job of the evaluation worker: everything it needs, in one file, written before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from specs.base import Sha256, Strict
from specs.parameters import EvaluateParameters
from tasks.turns import Turns, as_context, turns_of


class EvaluatedSample(Strict):
    """A held-out sample. `mispaired_with`: the sample whose answer is put to this question, if there is one."""

    sample_id: str
    kind: str
    fault_type: str
    prompt: str
    answer: str
    earlier: list[dict[str, Any]] | None = Field(None, description="turns before the question, as in samples.parquet")
    mispaired_with: str | None = None

    @property
    def turns(self) -> Turns:
        """The turns before the question, none of them learnt."""
        return as_context(turns_of(self.model_dump()))


class GeneralPassage(Strict):
    """A piece of general text, on which forgetting is measured."""

    source: str
    location: str
    text: str
    encoding: str


class EvaluateJob(Strict):
    """`job.json`. The worker writes `eval_losses.parquet`, `generations.jsonl` and `evaluated.json` to `out`, and
    `general_losses.parquet` where there is general text."""

    base_model: Path = Field(description="local folder with safetensors weights and tokenizer")
    base_model_sha256: Sha256
    trained: Path = Field(description="artifacts of train: adapter/, or model/ with method full")
    parent: Path | None = Field(None, description="folder with the adapter/ that training went on from; null: none")
    parent_sha256: Sha256 | None = Field(None, description="of that adapter/")
    weights: str = Field("fp32", description="format that base and trained weights are loaded in")
    attention: str = "sdpa"
    samples: list[EvaluatedSample]
    general: list[GeneralPassage] = Field(default_factory=list, description="general text; empty: none is measured")
    generate: list[str] = Field(description="sample ids to answer in full")
    parameters: EvaluateParameters
    out: Path
