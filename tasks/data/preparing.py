"""From drafts to samples: duplicates merged, lengths measured, the over-long rule applied, split, buckets."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specs.base import Language
from specs.parameters import DataParameters
from specs.stages import Progress
from tasks.data.duplicates import merge_duplicates, split_components
from tasks.data.lengths import Measured, bucket_edges, bucket_of, fit, measure
from tasks.data.records import Draft, Fate, Intake
from tasks.data.split import choose_held_out
from tasks.prompts import PromptTemplate


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of samples.parquet."""

    sample_id: str
    split: str
    measured: Measured
    text: str
    component: int
    bucket: int


@dataclass(slots=True)
class Prepared:
    """Everything the artifacts are written from."""

    samples: list[Sample] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    sample_ids: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    cut_tokens: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    review: list[dict[str, Any]] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    split_texts: int = 0
    shortened: int = 0


def prepare(
    intake: Intake, parameters: DataParameters, language: Language, template: PromptTemplate, progress: Progress
) -> Prepared:
    """Give every draft its fate and make the samples. Raises `InputError` for over-long samples that need an answer."""
    prepared = Prepared(fates=list(intake.fates))
    progress.start("measure lengths", len(intake.drafts))
    measured: list[Measured] = []
    for draft in intake.drafts:
        one = measure(draft, language, template)
        progress.advance()
        reason = _unusable(one, parameters)
        if reason:
            prepared.fates.append(Fate(draft.unit, "quarantined", reason))
        else:
            measured.append(one)
    progress.start("find duplicates")
    drafts = [m.draft for m in measured]
    merged = merge_duplicates(drafts, parameters.near_duplicate_threshold)
    prepared.review = merged.review
    for i, (target, reason) in merged.into.items():
        into = "|".join(drafts[target].unit.key)
        prepared.fates.append(Fate(drafts[i].unit, "merged", reason, into))
    fitted = fit([measured[i] for i in merged.kept], parameters, language, template)
    prepared.split_texts, prepared.shortened = fitted.split, fitted.shortened
    _make_samples(prepared, fitted.samples, parameters, template)
    kept = {s.measured.draft.unit.key: s.measured.draft.unit for s in prepared.samples}
    prepared.fates.extend(Fate(unit, "kept") for unit in kept.values())
    return prepared


def _unusable(one: Measured, parameters: DataParameters) -> str:
    """Why a rendered sample cannot be trained on, or an empty string."""
    if not one.answer.strip() or one.learnt < 2:
        return "no_trainable_token"
    if parameters.over_long == "drop_list" and parameters.max_length and one.n_tokens > parameters.max_length:
        return "over_long"
    return ""


def _make_samples(
    prepared: Prepared, measured: Sequence[Measured], parameters: DataParameters, template: PromptTemplate
) -> None:
    component = split_components(
        [m.draft.content() for m in measured],
        [f"{m.prompt}\n{m.answer}" for m in measured],
        [_group(m.draft) for m in measured],
    )
    fault_types = [m.draft.fault_type for m in measured]
    held_out = choose_held_out(component, fault_types, parameters.eval_share, parameters.seed)
    prepared.edges = bucket_edges([m.n_tokens for m in measured], parameters.buckets)
    for m, c in zip(measured, component, strict=True):
        key = m.draft.unit.key
        sample_id = identity(m.draft)
        prepared.sample_ids[key].append(sample_id)
        prepared.cut_tokens[key] += m.draft.cut_tokens
        prepared.samples.append(
            Sample(
                sample_id,
                "eval" if c in held_out else "train",
                m,
                template.text(m.prompt, m.answer),
                c,
                bucket_of(m.n_tokens, prepared.edges),
            )
        )


def _group(draft: Draft) -> str:
    """Samples that stay on one side: windows of one event, parts of one text."""
    return draft.group or "|".join(draft.unit.key)


def identity(draft: Draft) -> str:
    """A sample's id: 16 hexadecimal digits of SHA-256 over where it comes from."""
    where = f"{draft.unit.source}|{draft.unit.location}|{draft.part}"
    return hashlib.sha256(where.encode()).hexdigest()[:16]
