"""Why rows went: reasons of merges against the raw texts of both, and texts in quarantine against the raw files."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from specs.fates import REASONS
from tasks.verify import data_raw as raw
from tasks.verify import data_texts as texts
from tasks.verify import personal
from tasks.verify.data_opposites import opposed
from tasks.verify.data_rows import RawFiles
from tasks.verify.data_windows import in_words
from tasks.verify.data_words import in_order, text_of, tokens, without_marks
from tasks.verify.findings import CLAIMS, Findings
from tasks.verify.merged_records import Told, merge_faults
from tasks.verify.parquet_rows import key_of, place_of
from tasks.verify.raw_instructions import Record
from tasks.verify.raw_sheets import ending

ALLOWANCE = 0.1
"""How much less similar two raw rows may be than the records made of them: marks, labels and masked data are out."""
Row = Mapping[str, str]


class Merges:
    """The texts of merged units and of what they went into, collected on the way and judged at the end."""

    def __init__(self, files: RawFiles) -> None:
        self._masked = files.masked_characters
        self._pairs = [
            (place_of(row["source"], row["location"]), key_of(str(row["merged_into"])), row["reason"], _name(row))
            for batch in files.ledger.batches(["source", "location", "fate", "reason", "merged_into"])
            for row in batch
            if row["fate"] == "merged"
        ]
        self._needed = {place for mine, kept, _, _ in self._pairs for place in (mine, kept)}
        self._rows: dict[int, Row] = {}
        self._texts: dict[int, str] = {}
        self._windows: dict[int, str] = {}
        self._told: dict[int, Told] = {}
        self._by_system = files.counts_messages
        self._last_only = files.parameters.conversation_loss == "last_answer"

    def take(self, place: int, row: Row) -> None:
        """A raw row, held if it is needed."""
        if place in self._needed:
            self._rows[place] = dict(row)

    def take_text(self, place: int, text: str) -> None:
        """The text of a record, held if it is needed."""
        if place in self._needed:
            self._texts[place] = text

    def take_record(self, place: int, record: Record) -> None:
        """A record of an instruction file, held if it is needed."""
        if place in self._needed:
            self._texts[place] = record.said
            self._told[place] = Told.of(record, self._last_only)

    def judge(self, files: RawFiles, findings: Findings) -> None:
        """Name every merge without a reason, and every one of two units that do not say the same."""
        if not self._pairs:
            return
        self._read_texts(files)
        threshold = files.parameters.near_duplicate_threshold
        for mine, kept, reason, name in self._pairs:
            if reason not in ("exact_duplicate", "near_duplicate"):
                findings.add(CLAIMS, name, f"merged for the reason {reason!r}, which is none")
                continue
            wrong = self._lost(mine, kept)
            if wrong:
                findings.add("code_variants_lost", name, wrong)
                continue
            for unlike in self._unlike(mine, kept, reason, threshold):
                findings.add(CLAIMS, name, unlike)

    def _read_texts(self, files: RawFiles) -> None:
        for p in files.paragraphs:
            if (key := place_of(p["source"], p["location"])) in self._needed:
                self._texts[key] = p["text"]
        spoken = in_words(files.windows, files.parameters.window_s, "en")
        self._windows = {place_of(*place): text for place, text in spoken.items() if place_of(*place) in self._needed}

    def _lost(self, mine: int, kept: int) -> str:
        """Why a unit was no duplicate, in words: it differs in what must not differ, or there is nothing like it."""
        if mine in self._windows:
            return "" if self._windows[mine] == self._windows.get(kept) else "the numbers of the two windows differ"
        a, b = self._row(mine), self._row(kept)
        if a is None:
            return ""  # no raw unit is there: it is counted among the rows without a fate
        if b is None or texts.differs_in_code(a, b):
            return "its code, model or numbers are not those of what it went into"
        both = [text_of(row) or row.get("text", "") for row in (a, b)]
        if all(opposed(*pair) for pair in (both, [without_marks(text) for text in both])):
            return "it says the opposite of what it went into, in one word at least"
        return ""

    def _row(self, place: int) -> Row | None:
        return self._rows.get(place) or ({"text": self._texts[place]} if place in self._texts else None)

    def _unlike(self, mine: int, kept: int, reason: str, threshold: float) -> Iterator[str]:
        """Why two units are not as alike as the reason says. Running text has headings above that count, too."""
        if self._masked[mine] or self._masked[kept]:
            return
        if mine in self._told and kept in self._told:
            told = self._told[mine], self._told[kept]
            yield from merge_faults(*told, reason, threshold - ALLOWANCE, self._by_system)
        a, b = self._rows.get(mine), self._rows.get(kept)
        if a is None or b is None:
            return
        one, other = (texts.fold(personal.blank(text_of(row))) for row in (a, b))
        if one == other:
            if reason != "exact_duplicate":
                yield "called nearly the same, and it is the same to the letter"
            return
        one, other = (texts.fold(without_marks(personal.blank(text_of(row)))) for row in (a, b))
        x, y = texts.grams(one), texts.grams(other)
        alike = texts.similarity(x, y)
        if alike < threshold - ALLOWANCE:
            yield f"merged, and {alike:.2f} alike"


def _name(row: Mapping[str, str]) -> str:
    return f"{row['source']}|{row['location']}"


class Quarantine:
    """What the quarantine says that was read, to be compared with what the raw files say."""

    def __init__(self, files: RawFiles) -> None:
        self._original: dict[int, str] = {}
        self._names: dict[int, tuple[str, str]] = {}
        for batch in files.quarantine.batches():
            for q in batch:
                place = place_of(q["source"], q["location"])
                self._original[place] = q["original"]
                self._names[place] = (q["source"], q["reason"])

    def compare(self, place: int, name: str, cells: Sequence[str], findings: Findings) -> None:
        """A row of a raw table with its text in quarantine, if it is there."""
        original = self._original.get(place)
        if original is None or self._names[place][1] in _OWN_TEXT:
            return
        same = Counter(tokens(original)) == Counter(tokens("\t".join(cells)))
        if not same and _is_json(self._names[place][0]):
            return  # a record that cannot be written as cells is kept as it stands in the file
        del self._original[place]
        if not same:
            findings.add(CLAIMS, name, "its text in quarantine is not that of the raw row")

    def compare_record(self, place: int, name: str, read: str, findings: Findings) -> None:
        """A record of an instruction file with its text in quarantine, if it is there."""
        original = self._original.pop(place, None)
        if original is not None and not _same_record(original, read):
            findings.add(CLAIMS, name, "its text in quarantine is not that of the record")

    def compare_rest(self, files: RawFiles, findings: Findings) -> None:
        """Paragraphs, rows of logs, and rows that are kept as they stand in the file."""
        if not self._original:
            return
        for p in files.paragraphs:
            original = self._original.pop(place_of(p["source"], p["location"]), None)
            if original is not None and not in_order(p["text"], original):
                findings.add(CLAIMS, _name(p), "its text in quarantine is not that of the document")
        self._compare_with_files(files, findings)

    def _compare_with_files(self, files: RawFiles, findings: Findings) -> None:
        left: defaultdict[str, list[int]] = defaultdict(list)
        for place in self._original:
            left[self._names[place][0]].append(place)
        for name, path, _ in files.files(*raw.TABLE_KINDS, "sensor_logs"):
            if name not in left or ending(name) not in ("csv", "tsv", "txt", "json", "jsonl"):
                continue
            whole = raw.decode_again(raw.raw_bytes(path), files.encoding(name))[0]
            words, solid = (_json_words(whole), "") if _is_json(name) else (frozenset[str](), _solid(whole))
            for place in left[name]:
                original = self._original.pop(place)
                grounded = words.issuperset(tokens(original)) if _is_json(name) else _solid(original) in solid
                if not grounded:
                    findings.add(CLAIMS, name, "a text in quarantine stands nowhere in the file")


class Gone:
    """What became of the units that are in no sample: collected while the raw files are read, judged at the end."""

    def __init__(self, files: RawFiles) -> None:
        self.merges, self.quarantine = Merges(files), Quarantine(files)

    def judge(self, files: RawFiles, findings: Findings) -> None:
        """Name every merge without a reason, and every text in quarantine that was not read."""
        self.merges.judge(files, findings)
        self.quarantine.compare_rest(files, findings)


def _is_json(name: str) -> bool:
    return ending(name) in ("json", "jsonl")


def _json_words(text: str) -> frozenset[str]:
    """Every word of a JSON text, with escapes and without."""
    plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    return frozenset([*tokens(text), *tokens(plain), *tokens(re.sub(r"\\[nrtbf\"/]", " ", plain))])


def _same_record(original: str, read: str) -> bool:
    """Whether two texts are one record; the order of keys and the form of escapes are none of its content."""
    if original.strip() == read.strip():
        return True
    try:
        return bool(json.loads(original) == json.loads(read))
    except (ValueError, RecursionError):
        return False


_OWN_TEXT = frozenset({"not_a_json_object", "key_stands_twice", "backslash_before_quote"})
"""Reasons for which the text in quarantine is that of the file and not of its cells."""


def _solid(text: str) -> str:
    """Letters and digits only: cells may be divided by tabs where the file has other marks."""
    return re.sub(r"[\W_]+", "", text)


def reasons_unknown(files: RawFiles, findings: Findings) -> None:
    """Fates with a reason that is none, and quarantined texts whose reason is another than in the ledger."""
    told: dict[int, str] = {}
    for batch in files.ledger.batches(["source", "location", "fate", "reason"]):
        for row in batch:
            if row["fate"] in ("quarantined", "out_of_scope"):
                told[place_of(row["source"], row["location"])] = row["reason"]
                if row["reason"] not in REASONS:
                    findings.add(CLAIMS, _name(row), f"{row['fate']} for the reason {row['reason']!r}, which is none")
    for batch in files.quarantine.batches(["source", "location", "reason"]):
        for q in batch:
            if told.get(place_of(q["source"], q["location"])) != q["reason"]:
                findings.add(CLAIMS, _name(q), "its reason in quarantine is not that of the row ledger")
