"""From shards of rows to samples: duplicates merged, the over-long rule applied, split, leakage removed, buckets.

Nothing here holds a Python object per row: what is needed of all rows at once is a column.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from specs.errors import InputError
from specs.stages import Progress
from tasks.data.clusters import components, similar_pairs
from tasks.data.leakage import NearIndex
from tasks.data.lengths import bucket_edges, measure_many
from tasks.data.merging import SPLIT_THRESHOLD, Fingerprints, Flags, Merged, guard_of, merge_duplicates
from tasks.data.over_long import fit
from tasks.data.records import Draft
from tasks.data.shards import Recipe, Shards
from tasks.data.shingles import F64, I64, U64, ShingleSets, joined, shingle_sets
from tasks.data.sketches import Sketches
from tasks.data.split import choose_held_out, choose_newest, held_out_target
from tasks.data.system_texts import MARK
from tasks.data.taught import taught
from tasks.data.teaching import Pairs, teaches
from tasks.prompts import PromptTemplate

VIEWS = ("content", "asked")
"""What similarity is measured on: what a record says, and its question with its answer."""


@dataclass(slots=True)
class Samples:
    """The samples: rows of the shards in their order, then the pieces that the over-long rule made of rows.

    `frame` holds their narrow columns with `row`, their number in the shards they come from, and, once they are
    there, `sample_id`, `split`, `component` and `bucket`.
    """

    shards: Shards
    pieces: Shards
    frame: pl.DataFrame
    whole: int

    def __len__(self) -> int:
        return len(self.frame)

    def _parts(self, samples: I64) -> Iterator[tuple[Shards, I64]]:
        rows = self.frame["row"].to_numpy()[samples]
        cut = int(np.searchsorted(samples, self.whole))
        yield self.shards, rows[:cut]
        yield self.pieces, rows[cut:]

    def sets_of(self, view: str, samples: I64) -> ShingleSets:
        """Shingle sets of some samples, ascending."""
        parts = [(shards, rows) for shards, rows in self._parts(samples) if len(rows)]
        if len(parts) == 1:  # nearly always: nothing to join, and nothing held twice
            return parts[0][0].sets_of(view, parts[0][1])
        return joined(shards.sets_of(view, rows) for shards, rows in parts)

    def sketches(self, view: str) -> Sketches:
        """Sketches of all samples."""
        parts = [shards.sketches(view, rows) for shards, rows in self._parts(np.arange(len(self)))]
        return Sketches(np.concatenate([p.bands for p in parts]), np.concatenate([p.signature for p in parts]))

    def select(self, columns: list[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """(number of the first sample, columns) of all samples, shard by shard."""
        start = 0
        for shards, rows in self._parts(np.arange(len(self))):
            for frame in shards.select(columns, rows):
                yield start, frame
                start += len(frame)

    def pairs(self) -> Pairs:
        """What each sample teaches."""
        return Pairs.of([keys for _, frame in self.select(["pairs"]) for keys in frame["pairs"].to_list()])

    def draft(self, sample: int) -> Draft:
        """One sample as a draft."""
        return next(shards.drafts(rows)[0] for shards, rows in self._parts(np.asarray([sample])) if len(rows))


@dataclass(slots=True)
class Prepared:
    """Everything the artifacts are written from. `rows` are the narrow columns of all rows of the shards."""

    rows: pl.DataFrame
    merged: Merged
    review: pl.DataFrame
    samples: Samples
    edges: list[int]
    counts: Counter[str] = field(default_factory=Counter)


def prepare(shards: Shards, by_time: F64 | None, progress: Progress, learnt: Sequence[Path] = ()) -> Prepared:
    """Give every row its fate and make the samples. Raises `InputError` for over-long samples that need an answer.

    `by_time` holds the time of every row (NaN: none) when the newest are to be held out. `learnt` are samples of
    earlier trainings that this one goes on from: what is like them is not held out.
    """
    recipe = shards.recipe
    rows = shards.narrow()
    progress.start("find duplicates")
    merged = _merge(shards, rows)
    counts: Counter[str] = Counter()
    kept = np.flatnonzero((merged.into < 0) & (rows["unusable"] == "").to_numpy())
    samples = _fit(shards, rows, kept, counts)
    progress.start("split")
    pairs = samples.pairs()
    component = _components(samples, merged, len(rows), pairs)
    seen = taught(samples, pairs, learnt)
    counts["learnt_by_parent"] = int(seen.sum())
    common = pairs.common()
    only_common = pairs.given_away(common)
    counts["commonplaces"], counts["only_commonplaces"] = len(np.unique(pairs.key[common])), int(only_common.sum())
    barred = frozenset(component[seen | only_common].tolist())
    held_out = _held_out(samples, component, by_time, recipe, counts, barred)
    progress.start("search for leakage")
    component, held_out = _without_leakage(samples, component, held_out, counts)
    lengths = samples.frame["n_tokens"].to_numpy()
    edges = bucket_edges(lengths, recipe.parameters.buckets)
    samples.frame = samples.frame.with_columns(
        pl.Series("component", component, pl.Int32),
        pl.Series("split", np.where(held_out, "eval", "train"), pl.String),
        pl.Series("bucket", np.searchsorted(np.asarray(edges, np.int64), lengths), pl.Int32),
        pl.Series("sample_id", _identities(samples.frame), pl.String),
    )
    counts["merged"] = int((merged.into >= 0).sum())
    _count_conversations(samples, recipe.template, counts)
    return Prepared(rows, merged, _review(shards, rows, merged), samples, edges, counts)


def _count_conversations(samples: Samples, template: PromptTemplate, counts: Counter[str]) -> None:
    """Samples in which the chat template has no place for something, or ends answers otherwise than texts."""
    system = several = 0
    for _, frame in samples.select(["system", "earlier"]):
        system += int((frame["system"] != "").sum())
        several += int((frame["earlier"].list.len() > 0).sum())
    if system and template.system_stands_in_question():
        counts["system_in_question"] = system
    if several and not template.closes_answers():
        counts["end_added"] = several
    if template.answer_end.text != template.end:
        counts["ends_otherwise"] = len(samples) - int(samples.frame["plain_text"].sum())


def _merge(shards: Shards, rows: pl.DataFrame) -> Merged:
    everything = np.arange(len(rows))
    prints = Fingerprints(rows["exact"].to_numpy(), rows["guard"].to_numpy(), shards.sketches("content", everything))
    return merge_duplicates(
        prints,
        rows["filled"].to_numpy().astype(np.int64),
        (rows["unusable"] == "").to_numpy(),
        (rows["kind"] != "sensor").to_numpy(),
        shards.recipe.parameters.near_duplicate_threshold,
        lambda some: shards.sets_of("content", some),
        _Taught(shards, rows["teaches"].to_numpy()),
    )


class _Taught:
    """A record goes only into one that teaches every answer that it teaches. `taught` are hashes of all of them."""

    def __init__(self, shards: Shards, taught: U64) -> None:
        self.shards, self.taught = shards, taught
        self.threshold = shards.recipe.parameters.near_duplicate_threshold
        self.known: dict[tuple[int, int], bool] = {}

    def may(self, stays: I64, goes: I64) -> Flags:
        """Whether one teaches what the other does; a pair is looked at once, however often it is asked about."""
        allowed: Flags = self.taught[stays] == self.taught[goes]
        differing = np.flatnonzero(~allowed)
        pairs = list(zip(stays[differing].tolist(), goes[differing].tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        a, b = np.asarray(new, np.int64).reshape(-1, 2).T
        self.known.update(zip(new, teaches(*self._answers(a, b), self.threshold), strict=True))
        allowed[differing] = [self.known[pair] for pair in pairs]
        return allowed

    def lacking(self, stays: I64, goes: I64) -> list[list[str]]:
        """What one teaches and the other does not."""
        return [sorted(set(gone) - set(kept)) for kept, gone in zip(*self._answers(stays, goes), strict=True)]

    def _answers(self, stays: I64, goes: I64) -> tuple[list[list[str]], list[list[str]]]:
        involved = np.unique(np.concatenate([stays, goes]))
        answers = [found for frame in self.shards.select(["taught"], involved) for found in frame["taught"].to_list()]
        kept, gone = ([answers[i] for i in np.searchsorted(involved, rows).tolist()] for rows in (stays, goes))
        return kept, gone


def _fit(shards: Shards, rows: pl.DataFrame, kept: I64, counts: Counter[str]) -> Samples:
    """The kept rows as samples; those past the limit as what the over-long rule makes of them."""
    recipe = shards.recipe
    limit = recipe.parameters.max_length
    over = kept[rows["n_tokens"].to_numpy()[kept] > limit] if limit is not None else kept[:0]
    pieces = Shards(shards.folder / "pieces", Recipe(recipe.parameters, recipe.language, recipe.template, masks=False))
    if len(over):
        measured = measure_many(shards.drafts(over), recipe.language, recipe.template)
        fitted = fit(measured, recipe.parameters, recipe.language, recipe.template)
        counts.update(fitted.counts)
        pieces.add([m.draft for m in fitted.samples], [])
    whole = kept[~np.isin(kept, over)]
    columns = ("source", "location", "kind", "device_model", "fault_type", "group", "part", "cut_tokens", "left_out")
    names = [*columns, "n_tokens", "learnt", "plain_text"]
    made = pieces.narrow()
    frame = pl.concat(
        [
            rows.select(names)[whole].with_columns(pl.Series("row", whole, pl.Int64)),
            made.select(names).with_columns(pl.Series("row", np.arange(len(made)), pl.Int64)),
        ]
    )
    return Samples(shards, pieces, frame, len(whole))


def _components(samples: Samples, merged: Merged, rows: int, pairs: Pairs) -> I64:
    """Components of what is similar by content, or as question and answer, or belongs to one event or one text, or
    teaches one question with the same answer.

    No guard here: variants that differ in a code are kept, and stay on one side of the split.
    """
    count = len(samples)
    group = samples.frame.select(
        pl.when(pl.col("group") != "").then(pl.col("group")).otherwise(_key()).alias("group")
    ).to_series()
    first = _first_of_its_kind(group)
    everyone = np.arange(count)
    links = [(everyone, first), pairs.links()]
    if samples.whole == count:
        near = merged.pairs.similarity >= SPLIT_THRESHOLD
        of_row = np.full(rows, -1, np.int64)
        of_row[samples.frame["row"].to_numpy()] = everyone
        links.append((of_row[merged.pairs.a[near]], of_row[merged.pairs.b[near]]))
    for view in VIEWS if samples.whole < count else VIEWS[1:]:
        alike = similar_pairs(samples.sketches(view), everyone, None, SPLIT_THRESHOLD, partial(samples.sets_of, view))
        links.append((alike.a, alike.b))
    return _connected(count, links)


def _connected(count: int, links: Sequence[tuple[I64, I64]]) -> I64:
    return components(count, np.concatenate([a for a, _ in links]), np.concatenate([b for _, b in links]))


def _key() -> pl.Expr:
    return pl.concat_str("source", "location", separator="|")


def _first_of_its_kind(values: pl.Series) -> I64:
    """For each value, the number of the first equal one."""
    numbers = values.cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)
    _, first, back = np.unique(numbers, return_index=True, return_inverse=True)
    result: I64 = first[back]
    return result


def _held_out(
    samples: Samples,
    component: I64,
    by_time: F64 | None,
    recipe: Recipe,
    counts: Counter[str],
    barred: Collection[int],
) -> Flags:
    parameters = recipe.parameters
    target = held_out_target(len(samples), parameters.eval_share, parameters.eval_at_most)
    counts["eval_capped"] = round(parameters.eval_share * len(samples)) - target
    types = samples.frame["fault_type"].to_list()
    if by_time is None:
        models = samples.frame["device_model"].to_list()
        chosen = choose_held_out(component, types, models, target, parameters.seed, barred)
    else:
        time = np.concatenate(
            [by_time[samples.frame["row"].to_numpy()[: samples.whole]], np.full(len(samples) - samples.whole, np.nan)]
        )
        counts["samples_without_time"] = int(np.isnan(time).sum())
        if counts["samples_without_time"] == len(samples):
            raise InputError(
                "split: {by: time} needs times, and no sample has one",
                "map the date column of the work orders (columns: {date: ...}), or set split: {by: component}",
            )
        chosen = choose_newest(component, types, time, target, barred)
    held_out: Flags = np.isin(component, np.fromiter(chosen, np.int64, len(chosen)))
    counts["held_out_short"] = target - int(held_out.sum())
    return held_out


def _without_leakage(
    samples: Samples,
    component: I64,
    held_out: Flags,
    counts: Counter[str],
) -> tuple[I64, Flags]:
    """Compare the held-out samples with all samples, exactly; what is near a training sample goes to train with it."""
    sought = np.flatnonzero(held_out)
    links = [(np.arange(len(component)), component)]
    for view in VIEWS if len(sought) else ():
        index = NearIndex(samples.sets_of(view, sought), SPLIT_THRESHOLD)
        for start, frame in samples.select([view]):
            a, b = index.near(shingle_sets(frame[view].to_list()))
            links.append((sought[a], b + start))
    whole = _connected(len(component), links)
    trained = np.isin(whole, whole[~held_out])
    clean = held_out & ~trained
    counts["moved_to_train"] = int((held_out & trained).sum())
    return whole, clean


def _review(shards: Shards, rows: pl.DataFrame, merged: Merged) -> pl.DataFrame:
    """The pairs of a kind that both stay because a code, number or answer differs, with texts and what differs."""
    kind = rows["kind"].to_numpy()
    chosen = merged.review[kind[merged.pairs.a[merged.review]] == kind[merged.pairs.b[merged.review]]]
    a, b = merged.pairs.a[chosen], merged.pairs.b[chosen]
    involved = np.unique(np.concatenate([a, b]))
    content: list[str] = []
    guards: list[frozenset[str]] = []
    for at in range(0, len(involved), _DRAFTS_AT_ONCE):
        for draft in shards.drafts(involved[at : at + _DRAFTS_AT_ONCE]):
            content.append(draft.content())
            guards.append(guard_of(draft))
    left, right = np.searchsorted(involved, a), np.searchsorted(involved, b)
    texts = pl.Series(content, dtype=pl.String)
    differing = [
        "differ in " + (_told_apart(guards[i] ^ guards[j]) or ANSWERS)
        for i, j in zip(left.tolist(), right.tolist(), strict=True)
    ]
    return pl.DataFrame(
        {
            "source": rows["source"][a],
            "location_a": rows["location"][a],
            "source_b": rows["source"][b],
            "location_b": rows["location"][b],
            "similarity": merged.pairs.similarity[chosen],
            "why": pl.Series(differing, dtype=pl.String),
            "text_a": texts[left],
            "text_b": texts[right],
        }
    )


def _told_apart(differing: Collection[str]) -> str:
    """What differs, in words. System texts may be long, and stand in the samples."""
    others = sorted(token for token in differing if not token.startswith(MARK))
    return ", ".join([*others, *([SYSTEM] if len(others) < len(differing) else [])])


_DRAFTS_AT_ONCE = 16_384
SYSTEM = "what the system text says"
ANSWERS = "an answer that only one of them teaches"
"""What keeps two records apart that have the same critical tokens."""


def _identities(frame: pl.DataFrame) -> list[str]:
    """16 hexadecimal digits of SHA-256 over where each sample comes from."""
    where = frame.select(pl.concat_str("source", "location", "part", separator="|")).to_series()
    return [hashlib.sha256(text.encode()).hexdigest()[:16] for text in where.to_list()]
