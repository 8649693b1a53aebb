"""`abbreviation_expansion`: write out the abbreviations of the shop floor in every sample, by a dictionary.

Inputs: `samples` (samples.parquet), `buckets` (buckets.json of the data stage), `dictionary` (CSV with the columns
`abbreviation` and `expansion`). Writes `samples.parquet` in the same format and `expansions.csv`.
"""

from __future__ import annotations

import bisect
import io
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specs.errors import InputError
from specs.files import write_bytes
from specs.stages import Progress
from tasks.added.job import AddedJob, Answer
from tasks.added.tables import read_csv, read_samples, write_csv
from tasks.turns import COLUMN, rows_of, turns_of

FIELDS = ("phenomenon", "steps", "repair", "prompt", "answer")
KEPT = ("sample_id", "split", "source", "location", "kind", "device_model", "fault_type", "component")
"""What no expansion may touch."""

COLUMNS = ("abbreviation", "expansion")
_ROWS_AT_ONCE = 2_000


def run(job: AddedJob, progress: Progress) -> Answer:
    """Expand and write. An abbreviation that is also a fault code or a machine is left alone and named."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.prompts import PromptTemplate

    if job.base_model is None:
        raise InputError("abbreviation_expansion needs the tokenizer of the base model", "set needs_model: true")
    known = dictionary(job.inputs["dictionary"])
    table = pq.read_table(job.inputs["samples"])
    rows: list[dict[str, Any]] = table.to_pylist()
    names = {str(row[key]) for row in rows for key in ("fault_type", "device_model") if row[key]}
    kept = sorted(names & known.keys())
    expand = Expander({a: e for a, e in known.items() if a not in names}, job.parameters["style"])
    template = PromptTemplate.load(job.base_model)
    edges: list[int] = json.loads(job.inputs["buckets"].read_bytes())["edges"]
    progress.start("expand abbreviations", len(rows))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        for row in part:
            row.update({field: expand(row[field]) for field in FIELDS if row[field]})
            if turns := turns_of(row):
                row[COLUMN] = rows_of(replace(turn, text=expand(turn.text)) for turn in turns)
        before = [turns_of(row) for row in part]
        encoded = template.encode_many([r["prompt"] or "" for r in part], [r["answer"] or "" for r in part], before)
        for row, tokens in zip(part, encoded, strict=True):
            row["text"] = template.text(row["prompt"] or "", row["answer"] or "", turns_of(row))
            row["n_tokens"] = len(tokens.input_ids)
            row["bucket"] = min(bisect.bisect_left(edges, row["n_tokens"]), max(len(edges) - 1, 0))
        progress.advance(len(part))
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), buffer, compression="zstd")
    write_bytes(job.artifacts / "samples.parquet", buffer.getvalue())
    made = [{"abbreviation": a, "expansion": known[a], "times": str(expand.made[a])} for a in sorted(known)]
    write_csv(job.artifacts / "expansions.csv", (*COLUMNS, "times"), made)
    notes = [_say(job, "made", n=sum(expand.made.values()), kinds=sum(n > 0 for n in expand.made.values()))]
    if unused := [a for a in sorted(known) if not expand.made[a] and a not in names]:
        notes.append(_say(job, "unused", names=", ".join(unused)))
    if kept:
        notes.append(_say(job, "kept", names=", ".join(kept)))
    return Answer(notes=notes)


def _say(job: AddedJob, key: str, **values: object) -> str:
    texts = {
        "made": ("{n} places expanded, {kinds} abbreviations", "展开 {n} 处，涉及 {kinds} 个缩写"),
        "unused": ("in no sample: {names}", "样本中未出现：{names}"),
        "kept": (
            "left alone, because they are fault codes or machines: {names}",
            "为报警号或设备型号，未展开：{names}",
        ),
    }
    return texts[key][1 if job.language == "zh" else 0].format(**values)


def dictionary(path: Path) -> dict[str, str]:
    """Abbreviation to expansion. Raises `InputError` for a line without one of the two, and for two meanings."""
    found: dict[str, str] = {}
    for number, row in enumerate(read_csv(path, COLUMNS), start=2):
        short, long = row["abbreviation"], row["expansion"]
        if not short and not long:
            continue
        if not short or not long or short == long:
            raise InputError(f"line {number} of {path.name} lacks an abbreviation or its expansion", "write both")
        if found.get(short, long) != long:
            raise InputError(
                f"{path.name} gives {short!r} two meanings", "keep one; what is ambiguous stays unexpanded"
            )
        found[short] = long
    if not found:
        raise InputError(f"{path.name} holds no abbreviation", "write a line for each: abbreviation,expansion")
    return found


class Expander:
    """Writes abbreviations out, the longest first, in one pass, and counts them. What is written out already stays."""

    def __init__(self, known: dict[str, str], style: str) -> None:
        self.known, self.style = known, style
        self.made: Counter[str] = Counter()
        words = sorted(known, key=lambda word: (-len(word), word))
        self._pattern = re.compile("|".join(map(_bounded, words))) if words else None

    def __call__(self, text: str) -> str:
        """The text with every abbreviation written out."""
        return self._pattern.sub(self._write, text) if self._pattern else text

    def _write(self, found: re.Match[str]) -> str:
        short = found.group(0)
        long = self.known[short]
        rest = found.string[found.end() :]
        if rest.startswith((f"（{long}）", f" ({long})", f"({long})")):
            return short
        self.made[short] += 1
        return long if self.style == "replace" else _explained(short, long)[0 if _wide(long) else 1]


def _bounded(word: str) -> str:
    """The word where it stands by itself: letters and digits beside it would make it another one."""
    before = r"(?<![A-Za-z0-9_-])" if word[0].isascii() else ""
    after = r"(?![A-Za-z0-9_-])" if word[-1].isascii() else ""
    return f"{before}{re.escape(word)}{after}"


def _wide(text: str) -> bool:
    return any(ord(character) > 0x2E80 for character in text)


def metrics(job: AddedJob, progress: Progress) -> Answer:
    """Everything again by another way: both texts are walked through side by side, tokens counted anew."""
    from tasks.prompts import PromptTemplate

    if job.base_model is None:
        raise InputError("the verifier needs the tokenizer of the base model", "set needs_model: true")
    before = {row["sample_id"]: row for row in read_samples(job.inputs["samples"])}
    after = read_samples(job.artifacts / "samples.parquet")
    known = dictionary(job.inputs["dictionary"])
    names = {str(row[key]) for row in before.values() for key in ("fault_type", "device_model") if row[key]}
    verifier = Verifier({a: e for a, e in known.items() if a not in names}, job.parameters["style"])
    template = PromptTemplate.load(job.base_model)
    found = Counter[str]()
    for row in after:
        old = before.get(row["sample_id"])
        if old is None or any(old[key] != row[key] for key in KEPT):
            found["identity"] += 1
            continue
        was, now = _texts(old), _texts(row)
        form = [(turn.role, turn.learnt) for turn in turns_of(old)] == [(t.role, t.learnt) for t in turns_of(row)]
        found["unexplained"] += not form or not all(map(verifier.explains, was, now))
        found["made"] += was != now
        found["left"] += sum(map(verifier.alone, now))
        tokens = template.encode(row["prompt"] or "", row["answer"] or "", turns_of(row))
        right = row["text"] == template.text(row["prompt"] or "", row["answer"] or "", turns_of(row))
        found["tokens"] += not right or len(tokens.input_ids) != row["n_tokens"]
    lost = len(before.keys() - {row["sample_id"] for row in after}) + len(after) - len({r["sample_id"] for r in after})
    return Answer(
        metrics={
            "samples_changed": found["made"],
            "samples_of_another_identity": found["identity"] + lost,
            "samples_unexplained": found["unexplained"],
            "abbreviations_left": found["left"],
            "samples_of_wrong_length": found["tokens"],
        }
    )


def _texts(row: dict[str, Any]) -> list[str]:
    """Every text of a sample, those of turns before its question too."""
    return [*(str(row[field] or "") for field in FIELDS), *(turn.text for turn in turns_of(row))]


class Verifier:
    """Says of a text and what was made of it whether expansions alone lie between them, and what was left.

    It walks through both texts at once, so that expansions which hold each other, or parts of each other, cannot be
    taken for something else.
    """

    def __init__(self, known: Mapping[str, str], style: str) -> None:
        self._begin: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for short, long in known.items():
            written = (long,) if style == "replace" else _explained(short, long)
            self._begin.setdefault(short[0], []).append((short, written))
        forms = {form for short, long in known.items() for form in (*_explained(short, long), f"{short}({long})", long)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._written = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        self._shorts = list(known)

    def explains(self, old: str, new: str) -> bool:
        """Whether `new` is `old` with some abbreviations written out, and nothing else."""
        if old == new:
            return True
        reached: dict[int, set[int]] = {0: {0}}  # place in the old text to places in the new one
        for place, character in enumerate(old):
            for at in reached.pop(place, ()):
                if new[at : at + 1] == character:
                    reached.setdefault(place + 1, set()).add(at + 1)
                for short, written in self._begin.get(character, ()):
                    if old.startswith(short, place):
                        ends = {at + len(form) for form in written if new.startswith(form, at)}
                        reached.setdefault(place + len(short), set()).update(ends)
        return len(new) in reached.get(len(old), ())

    def alone(self, text: str) -> int:
        """Abbreviations that still stand in a text unexplained; what stands inside an expansion is not counted."""
        text = self._written.sub("\0", text) if self._written else text
        count = 0
        for short in self._shorts:
            place = text.find(short)
            while place >= 0:
                around = (text[place - 1 : place], text[place + len(short) : place + len(short) + 1])
                count += not any(_joins(short, i, c) for i, c in enumerate(around))
                place = text.find(short, place + len(short))
        return count


def _explained(short: str, long: str) -> tuple[str, str]:
    """An abbreviation with its expansion in brackets, as Chinese and as other text has them."""
    return f"{short}（{long}）", f"{short} ({long})"


def _joins(short: str, side: int, character: str) -> bool:
    edge = short[0] if side == 0 else short[-1]
    return bool(character) and edge.isascii() and ((character.isascii() and character.isalnum()) or character in "_-")
