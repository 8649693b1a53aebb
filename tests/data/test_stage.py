"""A messy project through the data stage: nothing lost, nothing leaked, code variants kept, the same bytes twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from specs.errors import InputError
from specs.project import Project
from tasks.prompts import PromptTemplate
from tests.support.raw_project import (
    EXACT_OF,
    EXACT_ROW,
    NEAR_OF,
    NEAR_ROW,
    QUARANTINED_ROWS,
    VARIANT_ROWS,
    Finished,
    code_of,
    finish,
    make_project,
    run_stage,
    write_csv,
)


def target(row: dict) -> int:
    return int(row["merged_into"].rpartition("#")[2])


def test_planted_duplicates_are_merged_into_their_originals(finished: Finished):
    fates = finished.fates("raw/orders")
    assert {fates[EXACT_ROW]["reason"], fates[NEAR_ROW]["reason"]} == {"exact_duplicate", "near_duplicate"}
    assert target(fates[EXACT_ROW]) == EXACT_OF
    assert target(fates[NEAR_ROW]) == NEAR_OF
    assert [n for n, row in fates.items() if row["fate"] == "merged"] == [EXACT_ROW, NEAR_ROW]


def test_records_that_differ_only_in_their_code_all_survive_and_are_listed_for_review(finished: Finished):
    fates = finished.fates("raw/orders")
    assert {fates[n]["fate"] for n in VARIANT_ROWS} == {"kept"}
    listed = {
        int(p[k].rpartition("#")[2]) for p in finished.table("review_pairs") for k in ("location_a", "location_b")
    }
    assert set(VARIANT_ROWS) <= listed
    component = {s["location"]: (s["component"], s["split"]) for s in finished.table("samples")}
    places = {component[fates[n]["location"]] for n in VARIANT_ROWS}
    assert len(places) == 1


def test_only_records_of_one_kind_are_listed_for_review(finished: Finished):
    kind = {(s["source"], s["location"]): s["kind"] for s in finished.table("samples")}
    pairs = finished.table("review_pairs")
    assert pairs
    assert all(kind[p["source"], p["location_a"]] == kind[p["source_b"], p["location_b"]] for p in pairs)
    assert all(p["why"].startswith("differ in ") and "kind " not in p["why"] for p in pairs)


def test_unusable_rows_are_quarantined_with_their_reason_and_original(finished: Finished):
    fates = finished.fates("raw/orders")
    assert [fates[n]["reason"] for n in QUARANTINED_ROWS] == ["no_phenomenon", "no_repair", "damaged_text"]
    originals = {q["location"]: q["original"] for q in finished.table("quarantine")}
    assert "\ufffd" in originals[fates[QUARANTINED_ROWS[2]]["location"]]
    assert [n for n, row in fates.items() if row["fate"] == "quarantined"] == list(QUARANTINED_ROWS)


def test_every_unit_has_one_fate_and_every_kept_one_its_samples(finished: Finished):
    ledger = finished.table("row_ledger")
    assert max(Counter((r["source"], r["location"]) for r in ledger).values()) == 1
    samples = {s["sample_id"]: (s["source"], s["location"]) for s in finished.table("samples")}
    named = {i: (r["source"], r["location"]) for r in ledger for i in r["sample_ids"]}
    assert named == samples
    assert all(bool(r["sample_ids"]) == (r["fate"] == "kept") for r in ledger)
    assert len(finished.fates("raw/orders")) == 208
    assert len(finished.fates("raw/codes")) == 30


def test_no_component_straddles_the_split_and_no_fault_type_is_only_held_out(finished: Finished):
    samples = finished.table("samples")
    splits = defaultdict(set)
    for s in samples:
        splits[s["component"]].add(s["split"])
    assert all(len(found) == 1 for found in splits.values())
    trained = {s["fault_type"] for s in samples if s["split"] == "train"}
    assert {s["fault_type"] for s in samples} <= trained
    share = sum(s["split"] == "eval" for s in samples) / len(samples)
    assert 0.07 <= share <= 0.11


def test_answers_are_whole_and_lengths_are_those_of_the_template(finished: Finished):
    template = PromptTemplate.load(finished.context.base_model)
    for s in finished.table("samples"):
        encoded = template.encode(s["prompt"], s["answer"])
        assert s["n_tokens"] == len(encoded.input_ids)
        assert s["text"] == template.text(s["prompt"], s["answer"])
        assert s["repair"] in s["answer"]


def test_prompts_are_in_the_language_of_the_project(finished: Finished):
    orders = [s for s in finished.table("samples") if s["kind"] == "work_order"]
    word = "Machine: VMC-" if finished.language == "en" else "设备：VMC-"
    assert all(s["prompt"].startswith(word) for s in orders)
    assert all(s["steps"].count("\n") == 1 for s in orders)


def test_sensor_windows_never_span_the_gap_and_become_samples_only_before_the_fault(finished: Finished):
    windows = {w["location"]: w for w in finished.table("windows")}
    assert sum(w["rows"] for w in windows.values()) == 1200
    assert all((w["end"] - w["start"]).total_seconds() < 60 for w in windows.values())
    kept = [s for s in finished.table("samples") if s["kind"] == "sensor"]
    assert {s["fault_type"] for s in kept} == {code_of(2)}
    assert len(kept) == 5
    assert {w["segment"] for w in windows.values()} == {1, 2}
    assert {w["fault_type"] for w in windows.values()} == {"", code_of(2)}


def test_manual_paragraphs_are_of_similar_length_and_keep_their_headings(finished: Finished):
    manual = [s for s in finished.table("samples") if s["kind"] == "manual"]
    lengths = [s["n_tokens"] for s in manual]
    mean = sum(lengths) / len(lengths)
    assert (sum((n - mean) ** 2 for n in lengths) / len(lengths)) ** 0.5 / mean <= 0.25
    section = "Section about" if finished.language == "en" else "关于"
    assert all(section in s["answer"] for s in manual)
    assert {s["prompt"] for s in manual} == {""}


def test_notes_become_questions_where_a_repair_is_told_and_plain_text_elsewhere(finished: Finished):
    first, second = [s for s in finished.table("samples") if s["kind"] == "note"]
    assert first["device_model"] == "VMC-850"
    assert ("bearing" if finished.language == "en" else "轴承") in first["repair"]
    assert second["prompt"] == ""


def test_the_summary_counts_what_is_in_the_samples(finished: Finished):
    summary, samples = finished.json("summary.json"), finished.table("samples")
    assert sum(summary["samples"].values()) == len(samples)
    train = [s["n_tokens"] for s in samples if s["split"] == "train"]
    assert summary["tokens"]["max"] == max(train)
    assert sum(summary["tokens"]["histogram"]["counts"]) == len(train)
    assert sum(summary["sources"]["raw/codes.csv"].values()) == 30
    assert len(summary["fed_examples"]) == 3
    assert all(e["learnt"] and e["masked"] + e["learnt"] for e in summary["fed_examples"])
    assert finished.json("buckets.json")["edges"] == sorted({max(b) for b in _buckets(samples)})
    assert any("2" in note for note in finished.result.notes)


def _buckets(samples: list[dict]) -> list[list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for s in samples:
        found[s["bucket"]].append(s["n_tokens"])
    return list(found.values())


def test_two_runs_give_the_same_bytes(finished: Finished, tmp_path: Path):
    run_stage(finished.folder, finished.spec, finished.context.base_model, tmp_path)
    for path in sorted((finished.out / "artifacts").iterdir()):
        assert path.read_bytes() == (tmp_path / "artifacts" / path.name).read_bytes(), path.name


def test_another_seed_holds_out_other_samples(finished: Finished, tmp_path: Path):
    run_stage(finished.folder, finished.spec, finished.context.base_model, tmp_path, seed=5)
    other = replace(finished, out=tmp_path).table("samples")
    held = {s["sample_id"] for s in finished.table("samples") if s["split"] == "eval"}
    assert held != {s["sample_id"] for s in other if s["split"] == "eval"}
    assert {s["sample_id"] for s in other} == {s["sample_id"] for s in finished.table("samples")}


def test_over_long_samples_are_asked_about_with_three_ways_out(tmp_path: Path, tiny_model: Path):
    with pytest.raises(InputError) as caught:
        finish(tmp_path, "en", tiny_model, max_length=100)
    assert "raw/orders.xlsx Orders#" in caught.value.message
    assert all(way in caught.value.hint for way in ("raise max_length", "drop_list", "split", "truncate_prompt"))


def test_a_drop_list_quarantines_over_long_samples(tmp_path: Path, tiny_model: Path):
    run = finish(tmp_path, "zh", tiny_model, max_length=140, over_long="drop_list")
    assert max(s["n_tokens"] for s in run.table("samples")) <= 140
    dropped = [q for q in run.table("quarantine") if q["reason"] == "over_long"]
    assert dropped
    assert all(q["original"] for q in dropped)


def test_truncation_cuts_the_prompt_and_counts_it_but_never_the_answer(tmp_path: Path, tiny_model: Path, data_run):
    plain = data_run("en")
    longest = sorted(s["n_tokens"] for s in plain.table("samples") if s["kind"] == "work_order")[-1]
    spec = plain.spec.model_copy(
        update={"sources": [s for s in plain.spec.sources if s.kind in ("work_orders", "fault_codes")]}
    )
    run_stage(plain.folder, spec, tiny_model, tmp_path / "b", max_length=longest - 6, over_long="truncate_prompt")
    cut = replace(plain, out=tmp_path / "b")
    answers = {s["sample_id"]: s["answer"] for s in plain.table("samples")}
    shorter = [r for r in cut.table("row_ledger") if r["cut_tokens"]]
    assert shorter
    assert all(1 <= r["cut_tokens"] <= 40 for r in shorter)
    assert all(answers[s["sample_id"]] == s["answer"] for s in cut.table("samples"))
    assert max(s["n_tokens"] for s in cut.table("samples")) <= longest - 6


def test_plain_text_that_is_too_long_can_be_split(tmp_path: Path, tiny_model: Path, data_run):
    spec = make_project(tmp_path, "en")
    spec = spec.model_copy(update={"sources": [s for s in spec.sources if s.kind == "manuals"]})
    whole = data_run("en")
    run_stage(tmp_path, spec, tiny_model, tmp_path / "o", max_length=90, over_long="split")
    parts = replace(whole, out=tmp_path / "o")
    samples = parts.table("samples")
    assert max(s["n_tokens"] for s in samples) <= 90
    assert any(len(r["sample_ids"]) > 1 for r in parts.table("row_ledger"))
    letters = "".join(c for s in samples for c in s["answer"] if c.isalpha())
    original = "".join(c for s in whole.table("samples") if s["kind"] == "manual" for c in s["answer"] if c.isalpha())
    assert Counter(letters) == Counter(original)


def test_the_stage_itself_asks_for_no_torch():
    code = (
        "import sys, tasks.data.stage, tasks.data.probe, tasks.data.batch_plan, tasks.verify.data;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(("repair", "reason"), [("-", "2 x the repair is empty"), ("Replaced the belt", "longer than")])
def test_a_project_without_a_sample_is_told_why_every_row_went(tmp_path: Path, tiny_model: Path, repair, reason):
    columns = {"phenomenon": "Problem", "repair": "Repair"}
    write_csv(tmp_path / "a.csv", list(columns.values()), [[f"The belt {n} is very loud", repair] for n in (1, 2)])
    source = {"kind": "work_orders", "path": "a.csv", "columns": columns}
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    with pytest.raises(InputError, match=f"none of 2 rows became a sample: .*{reason}"):
        run_stage(tmp_path, spec, tiny_model, tmp_path / "out", max_length=16, over_long="drop_list")
