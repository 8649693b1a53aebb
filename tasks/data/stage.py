"""The data stage: raw files to samples, row ledger and everything a person needs to trust them. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from specs.canonical import digest, sha256_file
from specs.errors import InputError, ModelError
from specs.fates import reason_text
from specs.files import write_json
from specs.parameters import DataParameters
from specs.stages import Progress, StageContext, StageResult
from tasks.data.artifacts import fates, write_artifacts
from tasks.data.clock import parse_time
from tasks.data.preparing import Prepared, prepare
from tasks.data.privacy import Masker
from tasks.data.reading import claimed_files, read_sources
from tasks.data.shards import VERSION, Recipe, Shards
from tasks.data.shingles import F64
from tasks.data.summary import notes, summarise
from tasks.parents import learnt_samples, require_parent
from tasks.prompts import PromptTemplate


def run(context: StageContext, progress: Progress) -> StageResult:
    """Read, align, deduplicate, split, measure and write. Raises `SourceError` or `InputError` for what is wrong.

    What has been read lies in shards below `checkpoints_dir` until the artifacts are written, so that a preparation
    that was interrupted goes on after its last complete shard.
    """
    if context.base_model is None:
        raise ModelError("the data stage needs the base model's tokenizer", "set base_model in project.yaml")
    spec = context.spec
    require_parent(context)
    learnt = learnt_samples(context.project_dir, spec.parent_record.learnt) if spec.parent_record else []
    recipe = Recipe(
        DataParameters.model_validate(context.parameters),
        spec.language,
        PromptTemplate.load(context.base_model),
        tuple(spec.personal_data_allowed),
        spec.personal_data == "mask",
        spec.extraction == "llm",
    )
    shards = Shards(context.checkpoints_dir / f"shards-{_key(context)[:16]}", recipe)
    intake = read_sources(context.project_dir, spec, recipe.parameters, _counter(recipe.template), progress, shards.add)
    if recipe.masks:
        intake.paragraphs = [shards.masker.paragraph(unit) for unit in intake.paragraphs]
    if shards.reused:
        progress.say(f"{shards.reused} of {len(shards.counts)} shards were complete already")
    times = _times(shards, spec.time_zone) if spec.split.by == "time" else None
    prepared = prepare(shards, times, progress, learnt)
    if not len(prepared.samples):
        raise _nothing_kept(shards, prepared)
    intake.counts.update(shards.asked)
    intake.counts["plain_notes"] -= shards.asked["llm_structured"]
    progress.start("write artifacts")
    masker = shards.masker
    ledger = fates(shards, prepared)
    _settle(masker, ledger)
    write_artifacts(context.artifacts, shards, intake, prepared, ledger, masker.rows())
    summary = {**summarise(intake, prepared, ledger), "personal_data": masker.counts()}
    write_json(context.artifacts / "summary.json", summary)
    told = [*notes(intake, prepared, ledger, spec.language), *masker.notes(keep=not recipe.masks)]
    shards.remove()
    return StageResult(notes=told)


def _nothing_kept(shards: Shards, prepared: Prepared) -> InputError:
    """Says where every row went, the most frequent reasons first."""
    reasons = Counter(reason for frame in shards.fates() for reason in frame["reason"].to_list())
    reasons.update(reason for reason in prepared.rows["unusable"].to_list() if reason)
    told = "; ".join(f"{count} x {reason_text(reason, 'en')}" for reason, count in reasons.most_common(5))
    return InputError(
        f"none of {reasons.total()} rows became a sample: {told or 'there is no row'}",
        "complete these rows, or correct `columns` in project.yaml (`gatewright check` shows how they are read)",
    )


def _settle(masker: Masker, ledger: pl.DataFrame) -> None:
    """Tell what was masked in samples from what was masked in rows that were merged or left out."""
    places = sorted({(source, location) for source, location, _, _ in masker.items})
    if places:
        masked = pl.DataFrame(places, schema=["source", "location"], orient="row")
        kept = ledger.filter(fate="kept").join(masked, on=["source", "location"], how="semi")
        masker.leave_out(set(kept.select("source", "location").iter_rows()))


def _counter(template: PromptTemplate) -> Callable[[str], int]:
    return lambda text: len(template.encode("", text).input_ids)


def _key(context: StageContext) -> str:
    """What the shards depend on: raw files, spec, parameters, tokenizer and the version of the code that makes them."""
    files, _ = claimed_files(context.project_dir, context.spec)
    model = context.base_model or Path()
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
    tokenizer = {name: sha256_file(model / name) for name in names if (model / name).is_file()}
    return digest(
        {
            "version": VERSION,
            "files": [[file.name, sha256_file(file.path)] for _, file in files],
            "spec": context.spec.model_dump(mode="json"),
            "parameters": context.parameters,
            "tokenizer": tokenizer,
        }
    )


def _times(shards: Shards, zone: str) -> F64:
    """The time of every row in seconds since the epoch; NaN where there is none that can be read."""
    place = ZoneInfo(zone)
    texts = [text for _, frame in shards.rows(["date"]) for text in frame["date"].to_list()]
    read = {text: parse_time(text, place) if text else None for text in set(texts)}
    return np.asarray([np.nan if read[text] is None else read[text] for text in texts], np.float64)
