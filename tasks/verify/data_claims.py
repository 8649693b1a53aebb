"""What the artifacts claim of themselves, held against each other and the raw files: cuts, lengths, sides, figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tasks.prompts import PromptTemplate
from tasks.turns import turns_of
from tasks.verify.data_answers import Answers
from tasks.verify.data_rows import MESSAGES, RawFiles
from tasks.verify.findings import CLAIMS, Findings
from tasks.verify.parquet_rows import place_of


def cuts_of(files: RawFiles) -> dict[int, int]:
    """Tokens that are said to be cut from the prompt, by place."""
    batches = files.ledger.batches(["source", "location", "cut_tokens"])
    return {
        place_of(r["source"], r["location"]): r["cut_tokens"] for batch in batches for r in batch if r["cut_tokens"]
    }


def messages_left_out(files: RawFiles) -> dict[int, int]:
    """Messages that are said to be in no sample, by place; none where the run is older than the count."""
    names = ["source", "location", MESSAGES]
    batches = files.ledger.batches(names) if files.counts_messages else ()
    return {place_of(r["source"], r["location"]): r[MESSAGES] for batch in batches for r in batch if r[MESSAGES]}


def cuts_unfounded(
    files: RawFiles, template: PromptTemplate, answers: Answers, cut: Mapping[int, int], findings: Findings
) -> None:
    """Cuts that no rule allows: only prompts are shortened, under `truncate_prompt`, to the limit and no further."""
    limit = files.parameters.max_length
    allowed = files.parameters.over_long == "truncate_prompt" and limit is not None
    conversations = {name for name, _, _ in files.files("instructions")} if files.whole_conversations else set()
    for batch in files.ledger.batches(["source", "location", "fate", "cut_tokens"]) if cut else ():
        for row in batch:
            if not row["cut_tokens"]:
                continue
            name = f"{row['source']}|{row['location']}"
            found = answers.rows(place_of(row["source"], row["location"]))
            if not allowed or limit is None:
                findings.add(CLAIMS, name, "tokens said to be cut, and the parameters allow no cut")
            elif row["cut_tokens"] < 0 or not found or not found[0]["prompt"]:
                findings.add(CLAIMS, name, "tokens said to be cut where there is no prompt to cut")
            elif row["source"] in conversations:
                continue  # what was left out of them is compared turn by turn with their records
            elif not limit - CUT_STEP <= _tokens(found[0], template) <= limit:
                findings.add(CLAIMS, name, f"said to be cut, and not as long as the limit of {limit} tokens")


def _tokens(sample: Mapping[str, Any], template: PromptTemplate) -> int:
    return len(template.encode(sample["prompt"], sample["answer"], turns_of(sample)).input_ids)


CUT_STEP = 8
"""Tokens that the last character before the cut can be at most: a prompt is cut between characters."""


def look_at_sides(files: RawFiles, findings: Findings) -> None:
    """Samples on another side than `held_out.json` says, components on both sides, wrong buckets, figures told."""
    sides: dict[int, str] = {}
    astride: set[int] = set()
    count: Counter[str] = Counter()
    folder, limit = files.samples.path.parent, files.parameters.max_length
    edges = json.loads((folder / "buckets.json").read_bytes())["edges"]
    told = folder / "held_out.json"
    held_out = set(json.loads(told.read_bytes())["sample_ids"]) if told.is_file() else None
    for batch in files.samples.batches(["sample_id", "source", "location", "split", "component", "bucket", "n_tokens"]):
        for s in batch:
            count[s["split"]] += 1
            name, bucket = f"{s['source']}|{s['location']}", s["bucket"]
            if held_out is not None and (s["split"] == "eval") != (s["sample_id"] in held_out):
                side = "training" if s["split"] == "train" else "held-out"
                findings.add(CLAIMS, name, f"it is a {side} sample, and held_out.json says the other side")
            if limit is not None and s["n_tokens"] > limit:
                findings.add(CLAIMS, name, f"{s['n_tokens']} tokens, above the limit of {limit}")
            if sides.setdefault(s["component"], s["split"]) != s["split"] and s["component"] not in astride:
                astride.add(s["component"])
                findings.add(CLAIMS, name, "samples that resemble it are on the other side of the split")
            below = edges[bucket - 1] if 0 < bucket <= len(edges) else 0
            if not 0 <= bucket < len(edges) or not below < s["n_tokens"] <= edges[bucket]:
                findings.add(CLAIMS, name, f"{s['n_tokens']} tokens in bucket {bucket}")
    _figures_told(files, count, findings)


def _figures_told(files: RawFiles, count: Counter[str], findings: Findings) -> None:
    """`summary.json` against the tables that it sums up: what the report shows."""
    path = files.samples.path.parent / "summary.json"
    if not path.is_file():
        return
    told = json.loads(path.read_bytes())
    fates: dict[str, Counter[str]] = {}
    for batch in files.ledger.batches(["source", "fate"]):
        for row in batch:
            fates.setdefault(row["source"], Counter())[row["fate"]] += 1
    pairs = [
        ("samples", told.get("samples"), {"train": count["train"], "eval": count["eval"]}),
        ("review_pairs", told.get("review_pairs"), len(files.review)),
        ("sources", {s: +Counter(f) for s, f in (told.get("sources") or {}).items()}, fates),
    ]
    for name, said, is_so in pairs:
        if said is not None and said != is_so:
            findings.add(CLAIMS, "summary.json", f"{name} is not what the tables hold")


def cut_miscounted(claimed: int, whole: str, left: str, answer: str, template: PromptTemplate) -> str:
    """Whether more or fewer tokens were cut from a prompt than is said, in words: both tokenised again."""
    before, after = (len(template.encode(prompt, answer).input_ids) for prompt in (whole, left))
    return "" if before - after == claimed else f"{claimed} tokens said to be cut, and {before - after} are"
