"""The raw tables in one pass, row by row: which units they hold, and whether everything made of them says the same."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tasks.prompts import PromptTemplate
from tasks.verify import personal
from tasks.verify.data_answers import Answers, Said, letters, says, table_rows_of
from tasks.verify.data_claims import cut_miscounted
from tasks.verify.data_columns import whole_prompt, without_cut_word
from tasks.verify.data_fates import Gone
from tasks.verify.data_raw import composed
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_words import said_by, same_code, says_otherwise, text_of
from tasks.verify.findings import CLAIMS, Findings
from tasks.verify.parquet_rows import Keys, keys_of, place_of

Row = Mapping[str, str]
METRIC = "samples_without_provenance"


@dataclass(slots=True)
class Tables:
    """What one pass over the raw tables counts. `units` are the keys of their rows."""

    units: Keys = field(default_factory=lambda: np.zeros(0, np.uint64))
    answer_tokens_cut: int = 0


def look_at_tables(
    files: RawFiles,
    template: PromptTemplate,
    answers: Answers,
    cut: Mapping[int, int],
    gone: Gone,
    findings: Findings,
) -> Tables:
    """Read every raw table once."""
    found = Tables()
    masked, language, units = files.masked_characters, str(files.spec.get("language") or "en"), array("Q")
    for source, location, cells, row, spec in table_rows_of(files):
        name, place = f"{source}|{location}", place_of(source, location)
        machine = str(spec.get("device_model") or "")
        units.append(place)
        gone.merges.take(place, {**row, "device_model": row.get("device_model") or machine})
        gone.quarantine.compare(place, name, cells, findings)
        sample = answers.at(place)
        if sample is None:
            continue
        end = letters(row.get("repair") or row.get("remedy") or "")
        if end and not ends_alike(sample.answer, end):
            found.answer_tokens_cut += max(1, len(template.encode("", end).input_ids) - 1)
        wrong = _fault(row, sample, machine, masked[place], bool(cut.get(place)), language)
        if wrong:
            findings.add(METRIC, name, wrong)
        elif cut.get(place) and not masked[place]:
            whole = whole_prompt(sample.prompt, _as_field(row.get("phenomenon", "")), language)
            wrong = cut_miscounted(cut[place], whole, sample.prompt, sample.answer, template)
            if wrong:
                findings.add(CLAIMS, name, wrong)
    found.units = keys_of(units)
    return found


def _fault(row: Row, sample: Said, machine: str, masked: int, cut: bool, language: str) -> str:
    """What a sample says that its row does not, in words; empty where nothing is wrong."""
    code, model = row.get("fault_type", ""), row.get("device_model", "")
    if not says(code, sample.fault_type) and not same_code(code, sample.fault_type):
        return f"its code is {sample.fault_type!r}, that of the row {code!r}"
    if not says(model, sample.device_model) and not (_is_nothing(model) and says(machine, sample.device_model)):
        return f"its machine is {sample.device_model!r}, that of the row {model or machine!r}"
    told = text_of({**row, "fault_type": sample.fault_type})
    said = said_by(without_cut_word(sample.prompt, language) if cut else sample.prompt, sample.answer)
    return "it says what the row does not say, or less" if says_otherwise(told, said, masked, cut, machine) else ""


def _as_field(cell: str) -> str:
    """A cell as it stands in a prompt: white space of each line collapsed, lines without text left out."""
    return composed("\n".join(line for line in (" ".join(part.split()) for part in cell.split("\n")) if line))


def _is_nothing(cell: str) -> bool:
    return says(cell, "")


_LAST_FIELD = re.compile(r"^(?:Repair: |Remedy: |维修：|处理：)", re.MULTILINE)


def ends_alike(answer: str, said: str) -> bool:
    """Whether an answer ends as the raw cell does, or with what stood before masked personal data at its end.

    What the template says before the last field is none of it: of a short repair it would be among the last letters.
    """
    piece, masked_behind = personal.end_of(answer)
    tail = letters(_LAST_FIELD.split(piece)[-1])[-4:]
    if masked_behind:
        return tail in said
    return bool(tail) and said.endswith(tail) if len(tail) < 4 else tail.endswith(said[-4:])
