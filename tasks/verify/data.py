"""The data stage's metrics, recomputed from its artifacts and the raw files by code that the stage does not use."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.metrics import definitions
from tasks.prompts import PromptTemplate
from tasks.verify import data_texts as texts
from tasks.verify import personal
from tasks.verify.data_rows import RawFiles, characters_unexplained, expected_units, rows_unaccounted

REQUIRED = {
    "work_order": ("phenomenon", "repair", "prompt", "answer"),
    "fault_code": ("fault_type", "phenomenon", "prompt", "answer"),
    "note": ("answer",),
    "manual": ("answer",),
    "sensor": ("fault_type", "phenomenon", "repair", "prompt", "answer"),
    "instruction": ("prompt", "answer"),
}
Rows = Sequence[Mapping[str, Any]]


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """Every metric of the data stage, by name."""
    files = RawFiles(attempt_dir / "artifacts", context)
    samples: Rows = files.samples
    template = PromptTemplate.load(Path(context["base_model"]))
    train = [s for s in samples if s["split"] == "train"]
    held_out = [s for s in samples if s["split"] == "eval"]
    fates = Counter(row["fate"] for row in files.ledger)
    in_scope = len(files.ledger) - fates["out_of_scope"]
    values: dict[str, float | tuple[float | None, str]] = {
        "rows_total": expected_units(files).total(),
        "rows_unaccounted": rows_unaccounted(files),
        "characters_unexplained": characters_unexplained(files),
        "samples_train": len(train),
        "samples_eval": len(held_out),
        "samples_without_provenance": _without_provenance(files),
        "exact_duplicates_left": len(samples) - len({texts.fold(texts.content(s)) for s in samples}),
        "exact_duplicate_leakage": _exact_leaks(train, held_out),
        "near_duplicate_leakage": _near_leaks(train, held_out),
        "code_variants_lost": _variants_lost(files),
        "answer_tokens_cut": sum(_answer_cut(s, template) for s in samples) + _raw_answers_cut(files, template),
        "samples_not_trainable": sum(not _trainable(s, template) for s in samples),
        "valid_format_share": sum(map(_valid, samples)) / len(samples) if samples else (None, "there is no sample"),
        **_personal(samples, files.spec),
        "quarantined_share": fates["quarantined"] / in_scope if in_scope else (None, "no row is in scope"),
        "smallest_fault_type": _smallest(train, samples),
        "paragraph_length_spread": _spread([s["n_tokens"] for s in samples if s["kind"] == "manual"]),
        "padding_share": _padding(samples),
        "longest_sample": max((s["n_tokens"] for s in samples), default=0),
    }
    units = {d.name: d.unit for d in definitions("data")}
    return {name: _metric(value, units[name]) for name, value in values.items()}


def _metric(value: float | tuple[float | None, str], unit: str) -> Metric:
    number, reason = value if isinstance(value, tuple) else (value, "")
    return Metric(value=number, unit=unit, reason=reason)


def _without_provenance(files: RawFiles) -> int:
    """Sample ids that only the samples or only the ledger has, and samples whose ledger row is another."""
    known = Counter(s["sample_id"] for s in files.samples)
    named = Counter(i for row in files.ledger for i in row["sample_ids"])
    place = {i: (row["source"], row["location"]) for row in files.ledger for i in row["sample_ids"]}
    elsewhere = sum(
        place.get(s["sample_id"], ()) != (s["source"], s["location"]) for s in files.samples if s["sample_id"] in place
    )
    return (known - named).total() + (named - known).total() + elsewhere


def _exact_leaks(train: Rows, held_out: Rows) -> int:
    seen = {texts.fold(texts.content(s)) for s in train} | {texts.fold(texts.question_and_answer(s)) for s in train}
    return sum(
        texts.fold(texts.content(s)) in seen or texts.fold(texts.question_and_answer(s)) in seen for s in held_out
    )


def _near_leaks(train: Rows, held_out: Rows) -> int:
    """Held-out samples near a training sample, by what they say or by question and answer."""
    leaks: set[int] = set()
    for view in (texts.content, texts.question_and_answer):
        leaks |= texts.near_leaks([view(s) for s in train], [view(s) for s in held_out])
    return len(leaks)


def _variants_lost(files: RawFiles) -> int:
    """Merged rows whose raw text names other codes, models or numbers than the row they were merged into."""
    raw = files.texts()
    lost = 0
    for row in files.ledger:
        if row["fate"] != "merged":
            continue
        source, _, location = str(row["merged_into"]).rpartition("|")
        a, b = raw.get((row["source"], row["location"])), raw.get((source, location))
        lost += a is not None and (b is None or texts.differs_in_code(a, b))
    return lost


def _answer_cut(sample: Mapping[str, Any], template: PromptTemplate) -> int:
    """Answer tokens that the stored text or the stored length does not hold."""
    tokens = template.encode(sample["prompt"], sample["answer"])
    missing = max(0, len(tokens.input_ids) - int(sample["n_tokens"]))
    if str(sample["text"]).endswith(f"{sample['answer']}{template.end}"):
        return missing
    stored = str(sample["text"]).removesuffix(template.end)
    kept = next((n for n in range(len(sample["answer"]), 0, -1) if stored.endswith(sample["answer"][:n])), 0)
    cut = len(template.encode("", sample["answer"][kept:]).input_ids) - 1
    return max(missing, cut, 1)


def _raw_answers_cut(files: RawFiles, template: PromptTemplate) -> int:
    """Tokens of raw repair and remedy cells whose last letters the answers made of them do not end with."""
    cut = 0
    answers: dict[tuple[str, str], str] = defaultdict(str)
    for s in files.samples:
        answers[s["source"], s["location"]] += s["answer"]
    for key, row in files.tables().items():
        said = _letters(row.get("repair") or row.get("remedy") or "")
        if key in answers and said and not _ends_alike(answers[key], said):
            cut += max(1, len(template.encode("", said).input_ids) - 1)
    return cut


def _ends_alike(answer: str, said: str) -> bool:
    """Whether an answer ends as the raw cell does, or with what stood before masked personal data at its end."""
    piece, masked_behind = personal.end_of(answer)
    tail = _letters(piece)[-4:]
    if masked_behind:
        return tail in said
    return said.endswith(tail) if len(tail) < 4 and piece != answer else tail.endswith(said[-4:])


def _personal(samples: Rows, spec: Mapping[str, Any]) -> dict[str, float]:
    """What was masked, and what a search by other rules still finds: left, or kept because the spec says so."""
    found = personal.in_samples(samples, spec.get("personal_data_allowed") or ())
    kept = spec.get("personal_data") == "keep"
    return {
        "personal_data_left": 0 if kept else found,
        "personal_data_kept": found if kept else 0,
        "personal_data_masked": sum(personal.placeholders(f"{s['prompt']}\n{s['answer']}") for s in samples),
    }


def _letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def _trainable(sample: Mapping[str, Any], template: PromptTemplate) -> bool:
    """An answer token and the end token are learnt, each special token stands once, and the text is as rendered."""
    encoded = template.encode(sample["prompt"], sample["answer"])
    learnt = encoded.input_ids[encoded.trainable_from :]
    end, begin = template.tokenizer.eos_token_id, template.tokenizer.bos_token_id
    doubled = learnt[-2:] == [end, end] or (begin is not None and begin != end and encoded.input_ids[:2] == [begin] * 2)
    rendered = template.text(sample["prompt"], sample["answer"])
    return len(learnt) >= 2 and learnt[-1] == end and not doubled and rendered == sample["text"]


def _valid(sample: Mapping[str, Any]) -> bool:
    required = REQUIRED.get(sample["kind"])
    return (
        required is not None
        and all(str(sample[name]).strip() for name in required)
        and sample["split"] in ("train", "eval")
        and "#" in sample["location"]
        and sample["location"].rpartition("#")[2].isdigit()
    )


def _smallest(train: Rows, samples: Rows) -> float | tuple[float | None, str]:
    types = {s["fault_type"] for s in samples} - {""}
    counts = Counter(s["fault_type"] for s in train)
    return min(counts[t] for t in types) if types else (None, "no sample has a fault type")


def _spread(lengths: Sequence[int]) -> float | tuple[float | None, str]:
    if len(lengths) < 2:
        return 0.0, "fewer than two manual paragraphs"
    return statistics.pstdev(lengths) / statistics.fmean(lengths)


def _padding(samples: Rows) -> float | tuple[float | None, str]:
    buckets: dict[int, list[int]] = defaultdict(list)
    for s in samples:
        buckets[s["bucket"]].append(s["n_tokens"])
    padded = sum(max(lengths) * len(lengths) for lengths in buckets.values())
    filled = sum(sum(lengths) for lengths in buckets.values())
    return (padded - filled) / padded if padded else (None, "there is no sample")
