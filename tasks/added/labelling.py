"""`expert_labelling`: a person says of some samples whether they are right.

Input: `samples` (samples.parquet). `sheet` writes `sheet.csv`, to be filled in, and `sheet.html`, to be read; `run`
takes the filled sheet and writes `labels.csv`; who made the labels stands in author.json beside it.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.errors import InputError
from specs.files import write_bytes
from specs.stages import Progress
from tasks.added.job import AddedJob, Answer
from tasks.added.tables import read_csv, read_samples, write_csv
from tasks.turns import spoken, turns_of

SHOWN = ("sample_id", "device_model", "fault_type", "prompt", "answer")
FILLED = ("label", "comment")
LABELS = ("sample_id", "label", "comment")


def sheet(job: AddedJob, progress: Progress) -> Answer:
    """The sheet that a person fills in: some samples, chosen by a seed, the same for everybody who asks."""
    rows = chosen(read_samples(job.inputs["samples"]), job.parameters["samples"], job.parameters["seed"])
    if not rows:
        raise InputError("there is no sample with a question to label", "look at the data stage")
    lines = [{**_shown(row), "label": "", "comment": ""} for row in rows]
    write_csv(job.artifacts / "sheet.csv", (*SHOWN, *FILLED), lines, for_people=True)
    write_bytes(job.artifacts / "sheet.html", page(lines, allowed(job), job.language).encode())
    return Answer()


def chosen(rows: Sequence[dict[str, Any]], number: int, seed: int) -> list[dict[str, Any]]:
    """`number` samples with a question, spread by a hash of seed and id, in the order of their ids."""

    def rank(row: dict[str, Any]) -> str:
        return hashlib.sha256(f"{seed}:{row['sample_id']}".encode()).hexdigest()

    asked = sorted((row for row in rows if row["prompt"]), key=rank)[:number]
    return sorted(asked, key=lambda row: str(row["sample_id"]))


def allowed(job: AddedJob) -> list[str]:
    """The labels that may be given; the first one says that a sample is right."""
    labels = [word.strip() for word in str(job.parameters["labels"]).replace("，", ",").split(",")]
    return [label for label in labels if label]


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """What a person sees of a sample; of a conversation the turns before the question, too."""
    before = spoken(turns_of(row))
    return {name: _text(row[name]) for name in SHOWN} | (
        {"prompt": f"{before}\n{_text(row['prompt'])}"} if before else {}
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


_PAGE = {
    "en": ("Samples to label", "Fill in the column label of sheet.csv with one of: {labels}. A comment is optional."),
    "zh": ("待标注样本", "请在 sheet.csv 的 label 列填写以下之一：{labels}。comment 可不填。"),
}


def page(lines: Sequence[dict[str, str]], labels: Sequence[str], language: str) -> str:
    """The same samples to read in a browser; everything in it is text."""
    title, how = _PAGE[language]
    parts = [
        f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>{title}</title>',
        "<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}",
        "article{border-top:1px solid #ccc;padding:1em 0}pre{white-space:pre-wrap;font:inherit}</style>",
        f"<h1>{title}</h1><p>{html.escape(how.format(labels=', '.join(labels)))}</p>",
    ]
    for line in lines:
        head = " · ".join(html.escape(line[name]) for name in ("sample_id", "device_model", "fault_type") if line[name])
        parts.append(
            f"<article><h2>{head}</h2><pre>{html.escape(line['prompt'])}</pre>"
            f"<pre><b>{html.escape(line['answer'])}</b></pre></article>"
        )
    return "\n".join(parts) + "\n</html>\n"


def run(job: AddedJob, progress: Progress) -> Answer:
    """The labels of the filled sheet as a table. Raises `InputError` for a file that is no such sheet."""
    if job.handed_in is None:
        raise InputError("expert_labelling needs what a person hands in", "write hand_out: tasks.added.labelling:sheet")
    rows = read_csv(job.handed_in.file, ("sample_id", "label"))
    labels = [{name: row.get(name, "").lstrip("'") for name in LABELS} for row in rows if row["sample_id"]]
    write_csv(job.artifacts / "labels.csv", LABELS, labels)
    return Answer()


def metrics(job: AddedJob, progress: Progress) -> Answer:
    """Counts of the labels, each against the sheet that was handed out, and the sheet against the samples."""
    given = read_csv(job.artifacts / "sheet" / "sheet.csv", SHOWN)
    samples = {str(row["sample_id"]): row for row in read_samples(job.inputs["samples"])}
    labels = read_csv(job.artifacts / "labels.csv", LABELS)
    filled = read_csv(Path(job.artifacts / "handed_in"), ("sample_id", "label"))
    words, asked = allowed(job), {row["sample_id"] for row in given}
    said = {row["sample_id"]: row["label"] for row in labels}
    differs = [row for row in given if not _same(row, samples.get(row["sample_id"]))]
    lost = {(r["sample_id"], r["label"]) for r in filled if r["sample_id"]} ^ {
        (r["sample_id"], r["label"]) for r in labels
    }
    labelled = [said[i] for i in asked if said.get(i) in words]
    right = sum(label == words[0] for label in labelled)
    return Answer(
        metrics={
            "samples_labelled": len(labelled),
            "samples_unlabelled": sum(not said.get(i) for i in asked),
            "labels_unknown": sum(bool(said.get(i)) and said.get(i) not in words for i in asked),
            "rows_unknown": len(said.keys() - asked) + len(labels) - len(said),
            "sheet_differs": len(differs) + len(lost),
            "right_share": right / len(labelled) if labelled else None,
        },
        reasons={} if labelled else {"right_share": "no sample has a label"},
    )


def _same(row: dict[str, str], sample: dict[str, Any] | None) -> bool:
    if sample is None:
        return False
    shown = _shown(sample)
    return all(row[name].lstrip("'") == shown[name].strip().lstrip("'") for name in SHOWN)
