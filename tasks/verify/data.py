"""The data stage's metrics, recomputed from its artifacts and the raw files by code that the stage does not use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specs.criteria import Metric
from specs.metrics import definitions
from tasks.prompts import PromptTemplate
from tasks.verify.applicable import names_fault_types
from tasks.verify.data_answers import Answers, Codes
from tasks.verify.data_claims import cuts_of, cuts_unfounded, look_at_sides
from tasks.verify.data_fates import Gone, reasons_unknown
from tasks.verify.data_instructions import look_at_instructions
from tasks.verify.data_review import look_at_review
from tasks.verify.data_rows import RawFiles, characters_unexplained, rows_unaccounted
from tasks.verify.data_samples import Value, take_census
from tasks.verify.data_tables import look_at_tables
from tasks.verify.data_told import look_at_samples
from tasks.verify.findings import Findings
from tasks.verify.parent_leaks import parent_leakage
from tasks.verify.parquet_rows import Keys, difference, key_of, keys_of, place_of


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """Every metric of the data stage, by name. Files are streamed: memory grows by some 100 bytes a row."""
    files = RawFiles(attempt_dir / "artifacts", context)
    template = PromptTemplate.load(Path(context["base_model"]), own_ends=files.counts_messages)
    findings = Findings()
    census = take_census(files.samples, template, files.spec.get("personal_data_allowed") or ())
    answers, cut = Answers(files), cuts_of(files)
    gone = Gone(files)
    tables = look_at_tables(files, template, answers, cut, gone, findings)
    records = look_at_instructions(files, template, answers, cut, gone, findings)
    gone.judge(files, findings)
    cuts_unfounded(files, template, answers, cut, findings)
    del answers, gone
    look_at_samples(files, Codes(files), cut, findings)
    reasons_unknown(files, findings)
    look_at_review(files, findings)
    look_at_sides(files, findings)
    expected = files.expected_units(np.concatenate([tables.units, records]))
    fates = Counter(row["fate"] for batch in files.ledger.batches(["fate"]) for row in batch)
    in_scope = fates.total() - fates["out_of_scope"]
    kept = files.spec.get("personal_data") == "keep"
    values: dict[str, Value] = {
        "rows_total": len(expected),
        "rows_unaccounted": rows_unaccounted(files, expected, findings),
        "characters_unexplained": census.replacement_characters + characters_unexplained(files),
        "samples_train": census.train,
        "samples_eval": census.held_out,
        "samples_without_provenance": _without_provenance(files, *census.provenance()),
        "exact_duplicates_left": census.exact_duplicates_left(),
        "exact_duplicate_leakage": census.exact_leaks(),
        "near_duplicate_leakage": len(census.near),
        "code_variants_lost": 0,
        "claims_unfounded": census.lengths_wrong,
        "answer_tokens_cut": census.answer_tokens_cut + tables.answer_tokens_cut,
        "samples_not_trainable": census.not_trainable,
        "valid_format_share": census.valid / census.samples if census.samples else (None, "there is no sample"),
        "personal_data_left": 0 if kept else census.personal,
        "personal_data_kept": census.personal if kept else 0,
        "personal_data_masked": census.placeholders,
        "quarantined_share": fates["quarantined"] / in_scope if in_scope else (None, "no row is in scope"),
        "smallest_fault_type": census.smallest_fault_type(named=names_fault_types(files.spec)),
        "paragraph_length_spread": census.paragraph_spread(),
        "padding_share": census.padding(),
        "longest_sample": max(census.lengths, default=0),
    }
    units = {d.name: d.unit for d in definitions("data")}
    found = {name: _metric(value, units[name], findings, name) for name, value in values.items()}
    return {**found, "parent_leakage": parent_leakage(files.samples, context)}


def _metric(value: Value, unit: str, findings: Findings, name: str) -> Metric:
    """A metric with what was found besides: how often, and where first."""
    if isinstance(value, Metric):
        return value
    number, reason = value if isinstance(value, tuple) else (value, "")
    if number is not None and findings.counts[name]:
        return Metric(value=number + findings.counts[name], unit=unit, reason=findings.reason(name))
    return Metric(value=number, unit=unit, reason=reason)


def _without_provenance(files: RawFiles, ids: Keys, places: Keys) -> int:
    """Sample ids that only the samples or only the ledger has, and samples whose ledger row is another."""
    named: list[Keys] = []
    at: list[Keys] = []
    for batch in files.ledger.batches(["source", "location", "sample_ids"]):
        pairs = [(key_of(i), place_of(r["source"], r["location"])) for r in batch for i in r["sample_ids"]]
        named.append(keys_of(i for i, _ in pairs))
        at.append(keys_of(place for _, place in pairs))
    ledger_ids, ledger_places = np.concatenate([*named, ids[:0]]), np.concatenate([*at, ids[:0]])
    order = np.argsort(ledger_ids, kind="stable")
    found = np.searchsorted(ledger_ids[order], ids, side="right") - 1
    known = found >= 0
    known[known] = ledger_ids[order][found[known]] == ids[known]
    elsewhere = int((ledger_places[order][found[known]] != places[known]).sum())
    return difference(ids, ledger_ids) + elsewhere
