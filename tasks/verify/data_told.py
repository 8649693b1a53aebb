"""Whether samples of notes and sensor windows say what their sources say, and every column its row.

Nothing is extracted again: every word of a sample must stand in the paragraph or code row that it names, in
that order, and none may be missing but marks of lists, labels, connectives and masked personal data.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.verify.data_answers import Codes, letters, says
from tasks.verify.data_columns import meaning_told, without_cut_word
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_windows import in_words
from tasks.verify.data_words import said_by, says_otherwise, tokens
from tasks.verify.findings import Findings
from tasks.verify.parquet_rows import place_of

METRIC = "samples_without_provenance"
Sample = Mapping[str, Any]


def look_at_samples(files: RawFiles, codes: Codes, cut: Mapping[int, int], findings: Findings) -> None:
    """Every sample once: its columns against its prompt and answer, notes and windows against their sources."""
    notes, masked = _Notes(files), files.masked_characters
    machines = {name: str(source.get("device_model") or "") for name, _, source in files.files(*_WITH_MACHINE)}
    language = str(files.spec.get("language") or "en")
    numbers = in_words(files.windows, files.parameters.window_s, language)
    for batch in files.samples.batches():
        for sample in batch:
            place = f"{sample['source']}|{sample['location']}"
            told = meaning_told(sample, language)
            if told is None:
                findings.add(METRIC, place, "its columns say something else than its prompt and answer")
            elif told and not codes.tell(sample["fault_type"], meaning=told):
                findings.add(METRIC, place, f"no table says of code {sample['fault_type']} what its prompt says")
            machine = machines.get(sample["source"], "")
            wrong, at = "", place_of(sample["source"], sample["location"])
            if sample["kind"] == "note":
                wrong = notes.fault(sample, machine, masked[at], at in cut)
            elif sample["kind"] == "sensor":
                wrong = _window_fault(sample, machine, codes, numbers, at in cut)
            elif sample["kind"] in ("manual", "instruction"):
                wrong = "" if (sample["device_model"], sample["fault_type"]) == (machine, "") else _OTHER_MACHINE
            if wrong:
                findings.add(METRIC, place, wrong)


_WITH_MACHINE = ("manuals", "notes", "sensor_logs")
_OTHER_MACHINE = "its source names another machine or code"


class _Notes:
    """The paragraphs of the notes, with what may stand above them."""

    def __init__(self, files: RawFiles) -> None:
        names = {name for name, _, _ in files.files("notes")}
        self._loses = files.spec.get("extraction") == "llm"
        self._language = str(files.spec.get("language") or "en")
        self._texts: dict[tuple[str, str], str] = {}
        self._headings: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for p in files.paragraphs:
            if p["source"] in names:
                self._texts[p["source"], p["location"]] = p["text"]
                first = p["text"].partition("\n")[0]
                self._headings[p["source"]].append((int(p["location"].rpartition("#")[2]), first))
        self._named = {
            name: letters("\n".join(h for _, h in found)).casefold() for name, found in self._headings.items()
        }

    def fault(self, sample: Sample, machine: str, masked: int, cut: bool) -> str:
        """What a sample says that its note does not, in words; empty where nothing is wrong."""
        source, location = sample["source"], sample["location"]
        text = self._texts.get((source, location))
        if text is None:
            return "no note is there"
        model, code = sample["device_model"], sample["fault_type"]
        here = letters(text).casefold()
        if model and model != machine and letters(model).casefold() not in here + self._named[source]:
            return f"the note does not name the machine {model}"
        if code and letters(code).casefold() not in here:
            return f"the note does not name the code {code}"
        prompt = without_cut_word(sample["prompt"], self._language) if cut else sample["prompt"]
        said = said_by(prompt, sample["answer"])
        told = f"{model}\n{code}" if sample["prompt"] else ""
        for above in self._above(source, location, Counter(tokens(said)) - Counter(tokens(f"{text}\n{told}"))):
            if not says_otherwise(text, said, masked, self._loses or cut, f"{above}\n{told}"):
                return ""
        return "it says what the note does not say, or less"

    def _above(self, source: str, location: str, more: Counter[str]) -> Iterator[str]:
        """Nothing, and the headings above a note that hold the words which it does not have itself."""
        yield ""
        number = int(location.rpartition("#")[2])
        for at, heading in reversed(self._headings[source]):
            if more and at < number and not more - Counter(tokens(heading)):
                yield heading


def _window_fault(sample: Sample, machine: str, codes: Codes, numbers: Mapping[tuple[str, str], str], cut: bool) -> str:
    said, whole = sample["phenomenon"], numbers.get((sample["source"], sample["location"]), "")
    if "[" not in said and said != (whole[: len(said)] if cut else whole):
        return "its numbers are not those of the window"
    told = {"cause": sample["steps"], "remedy": sample["repair"]}
    fitting = [row for row in codes.rows(sample["fault_type"]) if all(says(row.get(n, ""), t) for n, t in told.items())]
    if not fitting:
        return f"no table says of code {sample['fault_type']} what its answer says"
    models = {machine} if machine else {letters(row.get("device_model") or row["source_model"]) for row in fitting}
    return "" if sample["device_model"] in models or letters(sample["device_model"]) in models else _OTHER_MACHINE
