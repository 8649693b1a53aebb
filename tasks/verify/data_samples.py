"""Everything that is asked of each finished sample, in one pass over the samples."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specs.criteria import Metric
from tasks.prompts import Encoded, PromptTemplate
from tasks.turns import turns_of
from tasks.verify import data_texts as texts
from tasks.verify import personal
from tasks.verify.applicable import NO_FAULT_TYPE, not_applicable
from tasks.verify.data_leaks import HeldOut
from tasks.verify.pair_leaks import PairLeaks
from tasks.verify.parquet_rows import Keys, ParquetRows, key_of, keys_of, place_of

REQUIRED = {
    "work_order": ("phenomenon", "repair", "prompt", "answer"),
    "fault_code": ("fault_type", "phenomenon", "prompt", "answer"),
    "note": ("answer",),
    "manual": ("answer",),
    "sensor": ("fault_type", "phenomenon", "repair", "prompt", "answer"),
    "instruction": ("prompt", "answer"),
}
Sample = Mapping[str, Any]
VIEWS: tuple[Callable[[Sample], str], ...] = (
    lambda s: texts.fold(texts.content(s)),
    lambda s: texts.fold(texts.question_and_answer(s)),
)
"""What similarity is measured on, folded: what a sample says, and its question with its answer."""
Value = float | tuple[float | None, str] | Metric


@dataclass(slots=True)
class Census:
    """What one pass over the samples counts; numbers per sample are packed, eight bytes each."""

    train: int = 0
    held_out: int = 0
    answer_tokens_cut: int = 0
    not_trainable: int = 0
    valid: int = 0
    personal: int = 0
    placeholders: int = 0
    replacement_characters: int = 0
    lengths_wrong: int = 0
    fault_types: Counter[str] = field(default_factory=Counter)
    trained_types: Counter[str] = field(default_factory=Counter)
    lengths: array[int] = field(default_factory=lambda: array("q"))
    buckets: array[int] = field(default_factory=lambda: array("q"))
    manual_lengths: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))
    said: array[int] = field(default_factory=lambda: array("Q"))
    trained: array[int] = field(default_factory=lambda: array("Q"))
    sought: list[tuple[int, int]] = field(default_factory=list)
    near: set[int] = field(default_factory=set)
    pairs: PairLeaks = field(default_factory=PairLeaks)

    @property
    def samples(self) -> int:
        """All samples."""
        return len(self.ids)

    def exact_duplicates_left(self) -> int:
        """Samples that say to the letter what another says; a record that was divided says what its parts do together.

        Two conversations with the same beginning may have an equal part, and are not the same.
        """
        said, places = keys_of(self.said), keys_of(self.places)
        _, place = np.unique(places, return_inverse=True)
        whole = np.zeros(len(np.unique(places)), np.uint64)
        np.add.at(whole, place, said)
        twice = len(said) - len(np.unique(np.stack([places, said]), axis=1).T)
        return twice + len(whole) - len(np.unique(whole))

    def exact_leaks(self) -> int:
        """Held-out samples that say or ask to the letter what a training sample does, as a whole or in one turn."""
        return len(exact_leaks(self.sought, self.trained, self.pairs))

    def smallest_fault_type(self, *, named: bool) -> Value:
        """Training samples of the rarest fault type; `named` says whether a source maps or names fault types."""
        types = self.fault_types
        if types:
            return min(self.trained_types[t] for t in types)
        return (None, "no sample has a fault type") if named else not_applicable("samples", NO_FAULT_TYPE)

    def paragraph_spread(self) -> Value:
        """Standard deviation over mean of the lengths of manual paragraphs."""
        if len(self.manual_lengths) < 2:
            return not_applicable("share", "fewer than two manual paragraphs", 0.0)
        return statistics.pstdev(self.manual_lengths) / statistics.fmean(self.manual_lengths)

    def padding(self) -> Value:
        """Share of padding when every sample is as long as the longest of its bucket."""
        lengths, buckets = np.asarray(self.lengths), np.asarray(self.buckets)
        if not len(lengths):
            return None, "there is no sample"
        longest = np.zeros(int(buckets.max()) + 1, np.int64)
        np.maximum.at(longest, buckets, lengths)
        padded = int(longest[buckets].sum())
        return (padded - int(lengths.sum())) / padded

    def provenance(self) -> tuple[Keys, Keys]:
        """(ids, places) of the samples."""
        return keys_of(self.ids), keys_of(self.places)


def take_census(samples: ParquetRows, template: PromptTemplate, allowed: Sequence[str]) -> Census:
    """Look at every sample once, and at the held-out ones before, because all others are compared with them."""
    held_out = samples.where("split", "eval")
    near = [HeldOut([view(s) for s in held_out]) for view in VIEWS]
    census = Census(sought=[tuple_of_keys(s) for s in held_out])
    for batch in samples.batches():
        folded = [[view(s) for s in batch] for view in VIEWS]
        _count(census, batch, list(zip(*folded, strict=True)), template, allowed)
        for said, index in zip(folded, near, strict=True):
            index.compare([text for text, s in zip(said, batch, strict=True) if s["split"] == "train"])
    census.near = set().union(*(index.near for index in near))
    return census


def exact_leaks(sought: Sequence[tuple[int, int]], trained: Iterable[int], pairs: PairLeaks) -> set[int]:
    """Numbers of held-out samples, by the keys of what they say and ask, and by the questions with their answers."""
    whole = np.isin(np.asarray(sought, np.uint64).reshape(-1, 2), np.unique(keys_of(trained))).any(axis=1)
    return set(np.flatnonzero(whole).tolist()) | pairs.leaks()


def tuple_of_keys(sample: Sample) -> tuple[int, int]:
    """The keys of what a sample says, and of its question with its answer."""
    said, asked = (key_of(view(sample)) for view in VIEWS)
    return said, asked


def _count(
    census: Census,
    batch: Sequence[Sample],
    folded: Sequence[tuple[str, ...]],
    template: PromptTemplate,
    allowed: Sequence[str],
) -> None:
    before = [turns_of(s) for s in batch]
    encoded = template.encode_many([s["prompt"] for s in batch], [s["answer"] for s in batch], before)
    census.personal += personal.in_samples(batch, allowed)
    for sample, tokens, views in zip(batch, encoded, folded, strict=True):
        train = sample["split"] == "train"
        census.train += train
        census.held_out += sample["split"] == "eval"
        census.answer_tokens_cut += answer_cut(sample, tokens, template)
        census.lengths_wrong += sample["n_tokens"] > len(tokens.input_ids)
        census.not_trainable += not trainable(sample, tokens, template)
        census.valid += valid(sample)
        said = (*(turn.text for turn in turns_of(sample)), sample["prompt"], sample["answer"])
        census.placeholders += personal.placeholders("\n".join(said))
        census.replacement_characters += str(sample["text"]).count("\ufffd")
        if sample["fault_type"]:
            census.fault_types[sample["fault_type"]] += 1
            census.trained_types[sample["fault_type"]] += train
        census.lengths.append(sample["n_tokens"])
        census.buckets.append(sample["bucket"])
        if sample["kind"] == "manual":
            census.manual_lengths.append(sample["n_tokens"])
        census.ids.append(key_of(sample["sample_id"]))
        census.places.append(place_of(sample["source"], sample["location"]))
        census.said.append(key_of(texts.to_the_letter(sample)))
        census.pairs.take(sample)
        if train:
            census.trained.extend(key_of(text) for text in views)


def answer_cut(sample: Sample, tokens: Encoded, template: PromptTemplate) -> int:
    """Answer tokens that the stored text or the stored length does not hold."""
    missing = max(0, len(tokens.input_ids) - int(sample["n_tokens"]))
    end = template.end_of(sample["prompt"]).text
    if str(sample["text"]).endswith(f"{sample['answer']}{end}"):
        return missing
    stored = str(sample["text"]).removesuffix(end)
    kept = next((n for n in range(len(sample["answer"]), 0, -1) if stored.endswith(sample["answer"][:n])), 0)
    cut = len(template.encode("", sample["answer"][kept:]).input_ids) - 1
    return max(missing, cut, 1)


def trainable(sample: Sample, tokens: Encoded, template: PromptTemplate) -> bool:
    """Each answer is learnt with its end token, special tokens stand once, and the text is as rendered."""
    answers = [tokens.input_ids[start:after] for start, after in tokens.answers]
    end, begin = template.end_of(sample["prompt"]).id, template.tokenizer.bos_token_id
    ended = all(len(one) >= 2 and one[-1] == end != one[-2] for one in answers)
    doubled = begin is not None and begin != end and tokens.input_ids[:2] == [begin] * 2
    rendered = template.text(sample["prompt"], sample["answer"], turns_of(sample))
    return ended and not doubled and rendered == sample["text"]


def valid(sample: Sample) -> bool:
    """Whether every field that its kind needs is filled, and its place is one."""
    required = REQUIRED.get(sample["kind"])
    return (
        required is not None
        and all(str(sample[name]).strip() for name in required)
        and sample["split"] in ("train", "eval")
        and "#" in sample["location"]
        and sample["location"].rpartition("#")[2].isdigit()
    )
