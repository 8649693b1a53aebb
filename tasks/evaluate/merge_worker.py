"""The merging worker: `python -m tasks.evaluate.merge_worker job.json` adds the adapter to the base weights."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.base import Strict
from tasks.interrupts import StopRequest
from tasks.prompts import PromptTemplate
from tasks.storage import library_storage_errors
from tasks.worker_side import Channel, work


class MergeJob(Strict):
    """`trained` holds adapter/; the merged model goes to `out`, with the tokenizer of the base model."""

    base_model: Path
    trained: Path
    weights: str
    out: Path


def main() -> int:
    """The program."""
    return work(_body)


def _body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
    job = MergeJob.model_validate_json(job_file.read_bytes())
    channel.start("merging the adapter into the base model")
    import shutil

    from tasks.training.models import TOKENIZER_FILES, load_trained

    adapted: Any = load_trained(job.base_model, job.trained, job.weights)
    stop.raise_if_requested("nothing is written yet")
    merged = adapted.merge_and_unload(safe_merge=True)
    _stop_where_answers_end(merged, PromptTemplate.load(job.base_model).ends)
    with library_storage_errors(job.out):
        job.out.mkdir(parents=True, exist_ok=True)
        merged.save_pretrained(job.out, safe_serialization=True)
        for pattern in TOKENIZER_FILES:
            for source in sorted(job.base_model.glob(pattern)):
                shutil.copyfile(source, job.out / source.name)
    channel.result(parameters=sum(p.numel() for p in merged.parameters()))


def _stop_where_answers_end(model: Any, ends: Sequence[int]) -> None:
    """Let generation stop at what was learnt as the end of an answer; the base model may name another token only."""
    known = model.generation_config.eos_token_id
    known = known if isinstance(known, list) else [known] if known is not None else []
    if not set(ends) <= set(known):
        model.generation_config.eos_token_id = list(dict.fromkeys([*known, *ends]))


if __name__ == "__main__":
    sys.exit(main())
