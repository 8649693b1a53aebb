"""Manuals and notes: every paragraph becomes a draft or gets its fate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from specs.errors import SourceError
from specs.sources import Manuals, Notes
from tasks.data.blocks import Block, Document
from tasks.data.colloquial import has_labels, structure
from tasks.data.documents import read_document
from tasks.data.encoding import visible
from tasks.data.paragraphs import cut
from tasks.data.records import Draft, Intake, SourceFile, Unit
from tasks.data.tables import normal
from tasks.data.tabular import CodeTable

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Known:
    """Device models and fault codes that other sources name, to recognise them in running text."""

    device_models: Sequence[str]
    codes: CodeTable

    def device_model(self, text: str) -> str:
        """The only device model that the text names, else an empty string."""
        return _only(self.device_models, r"(?<!\w)", normal(text))

    def code(self, text: str) -> str:
        """The only fault code that the text names, else an empty string."""
        return _only(self.codes.codes(), r"(?<![a-z0-9])", normal(text))


def _only(names: Sequence[str], edge: str, folded: str) -> str:
    """The only one of the names that stands in a text behind this edge. Most stand nowhere, as a plain search tells."""
    here = [(name, key) for name in names if (key := _folded(name)) in folded]
    found = [name for name, key in here if re.search(rf"{edge}{re.escape(key)}(?![a-z0-9])", folded)]
    return found[0] if len(found) == 1 else ""


_folded = lru_cache(maxsize=65536)(normal)


@dataclass(frozen=True, slots=True)
class Note:
    """A note under its heading. `original` is the text of the unit: the heading belongs to the first note below it."""

    body: str
    title: str
    original: str


def read_manual(file: SourceFile, source: Manuals, intake: Intake, target: int, count: Count) -> None:
    """Paragraphs of a manual as plain text; pages without text and running headers get their fate."""
    document = read_document(file, source.encoding, source.ocr)
    _count_characters(file, document, intake)
    body: list[Block] = []
    number = 0
    rest: list[tuple[Block, str]] = []
    for block in document.blocks:
        if block.kind in ("furniture", "no_text"):
            without = "ocr_unsure" if block.text else "page_without_text"
            rest.append((block, "page_furniture" if block.kind == "furniture" else without))
        else:
            body.append(block)
    for paragraph in cut(body, target, count):
        number += 1
        unit = Unit(file.name, _location(paragraph.page, number), paragraph.text)
        intake.paragraphs.append(unit)
        text = paragraph.sample_text().replace("\t", " | ")
        if visible(text) < 4:
            intake.drop(unit, "quarantined", "too_short")
        elif "\ufffd" in text:
            intake.drop(unit, "quarantined", "damaged_text")
        else:
            intake.drafts.append(Draft(unit, "manual", source.device_model or "", plain=text))
    for block, reason in rest:
        number += 1
        unit = Unit(file.name, _location(block.page, number), block.text)
        intake.paragraphs.append(unit)
        intake.drop(unit, "quarantined" if block.kind == "no_text" else "out_of_scope", reason)
    if number == 0:
        raise SourceError(f"{file.name} holds no text", "provide the document with a text layer (OCR), or leave it out")


def _location(page: int, number: int) -> str:
    return f"page {page}#{number}" if page else f"#{number}"


def _count_characters(file: SourceFile, document: Document, intake: Intake) -> None:
    intake.counts.update(+document.noticed)
    intake.decoding.append(
        {
            "source": file.name,
            "sheet": "",
            "encoding": document.encoding,
            "found_by": document.found_by,
            "characters_in": document.characters_in,
            "characters_out": document.characters_out,
            "replacement_characters": document.replaced,
            "ocr_pages": document.ocr_pages,
        }
    )


def read_notes(file: SourceFile, source: Notes, intake: Intake, known: Known) -> None:
    """Notes: each paragraph or list item is one, under its heading. Phenomenon and repair where rules find both."""
    document = read_document(file, source.encoding)
    _count_characters(file, document, intake)
    notes = list(_notes([block for block in document.blocks if block.kind != "furniture"]))
    if not notes:
        raise SourceError(f"{file.name} holds no text", "provide the notes again, or leave the file out")
    for number, note in enumerate(notes, start=1):
        unit = Unit(file.name, f"#{number}", note.original)
        intake.paragraphs.append(unit)
        if not note.body:
            intake.drop(unit, "out_of_scope", "heading_only")
        elif "\ufffd" in note.original:
            intake.drop(unit, "quarantined", "damaged_text")
        elif visible(note.body) < 8:
            intake.drop(unit, "quarantined", "too_short")
        else:
            intake.drafts.append(_note_draft(unit, note, source, known, intake))
    furniture = [block for block in document.blocks if block.kind == "furniture"]
    for number, block in enumerate(furniture, start=len(notes) + 1):
        unit = Unit(file.name, f"#{number}", block.text)
        intake.paragraphs.append(unit)
        intake.drop(unit, "out_of_scope", "page_furniture")


def _note_draft(unit: Unit, note: Note, source: Notes, known: Known, intake: Intake) -> Draft:
    body = re.sub(r"(?m)^[-*•·]\s+", "", note.body)
    text = f"{note.title}\n{body}" if note.title else body
    device_model = known.device_model(body) or known.device_model(note.title) or source.device_model or ""
    code = known.code(body)
    entry = known.codes.find(code, device_model)
    draft = Draft(unit, "note", device_model, fault_type=code, meaning=entry.meaning if entry else "")
    parts = structure(body)
    if parts.phenomenon and parts.repair and _enough(parts.phenomenon) and _enough(parts.repair):
        named = note.title and normal(note.title) != normal(device_model)
        phenomenon = f"{note.title}: {parts.phenomenon}" if named else parts.phenomenon
        return replace(draft, phenomenon=phenomenon, steps=parts.steps, repair=parts.repair)
    intake.counts["plain_notes"] += 1
    return replace(draft, plain=text)


def _enough(text: str) -> bool:
    return sum(c.isalpha() for c in text) >= 3 or sum("\u4e00" <= c <= "\u9fff" for c in text) >= 2


def _notes(blocks: Sequence[Block]) -> Iterator[Note]:
    """Paragraphs and list items, each with the heading above it; a heading without text is a note without a body."""
    title, pending = "", ""
    for block in blocks:
        if block.kind == "heading":
            if pending:
                yield Note("", title, pending)
            title, pending = re.sub(r"^#+\s*", "", block.text), block.text
            continue
        whole = block.kind != "list" or has_labels(block.text)
        for item in [block.text] if whole else block.text.split("\n"):
            yield Note(item, title, f"{pending}\n{item}" if pending else item)
            pending = ""
    if pending:
        yield Note("", title, pending)
