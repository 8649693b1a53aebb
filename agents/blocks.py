"""A report as blocks, rendered twice from the same content: as Markdown and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Tone = Literal["", "good", "bad", "warn", "quiet"]


@dataclass(frozen=True)
class Cell:
    """A cell. `data` is text that comes from people's files or settings: shown verbatim, never as markup."""

    text: str
    data: bool = False
    number: bool = False
    tone: Tone = ""


@dataclass(frozen=True)
class Heading:
    """A section."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Our own sentence, never people's data."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Bullets:
    """Our own sentences, one a line; `data` where they quote people's files."""

    items: Sequence[str]
    data: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a header. `folded` tables are closed in HTML until opened, and left out of Markdown."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: str = ""


@dataclass(frozen=True)
class Sample:
    """A text as fed, cut where what is learnt begins and ends: (text, whether it is learnt).

    `labels` say what is only context, and what is learnt.
    """

    title: str
    parts: Sequence[tuple[str, bool]]
    labels: tuple[str, str]


@dataclass(frozen=True)
class Picture:
    """An SVG file of the attempt, relative to it."""

    path: str
    svg: str
    alt: str


Block = Heading | Paragraph | Bullets | Table | Sample | Picture


@dataclass
class Document:
    """A title, a line below it, and blocks."""

    title: str
    language: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        """Append blocks."""
        self.blocks.extend(blocks)


# -- Markdown


def to_markdown(document: Document) -> str:
    """The document as Markdown; data stands in code spans and fences, so that it cannot become markup."""
    parts = [f"# {document.title}"]
    parts += [text for block in document.blocks if (text := _markdown(block))]
    return "\n\n".join(parts) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text, tone):
            return f"**{text}**" if tone in ("good", "bad", "warn") else text
        case Bullets(items, data):
            return "\n".join(f"- {escape(item) if data else item}" for item in items)
        case Table(header, rows, folded):
            return "" if folded else _markdown_table(header, rows)
        case Sample(title, parts, labels):
            shown = [f"{labels[learnt]}:\n\n{fence(text)}" for text, learnt in parts if text]
            return "\n\n".join([code(title), *shown])
        case Picture(path, _, alt):
            return f"![{alt}]({path})"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---:" if right else "---" for right in _numeric(header, rows)) + "|",
    ]
    lines += ["| " + " | ".join(_markdown_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _numeric(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """Which columns hold numbers: where a cell holds anything, it is one."""
    columns = ([row[i] for row in rows if row[i].text] for i in range(len(header)))
    return [bool(cells) and all(cell.number for cell in cells) for cells in columns]


def _markdown_cell(cell: Cell) -> str:
    text = re.sub(r"\s+", " ", cell.text).strip()
    if cell.data and text:
        text = code(text)
    text = text.replace("|", "\\|")
    return f"**{text}**" if cell.tone in ("bad", "warn") and text else text


def escape(text: str) -> str:
    """One line of text in which nothing is Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", re.sub(r"\s+", " ", text).strip())


def code(text: str) -> str:
    """A code span that the text cannot end."""
    line = re.sub(r"\s+", " ", text).strip()
    runs = [len(run) for run in re.findall(r"`+", line)]
    ticks = "`" * (max(runs, default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence(text: str) -> str:
    """A code block that the text cannot end."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}text\n{text}\n{ticks}"


# -- HTML


def to_html(document: Document) -> str:
    """One HTML file: style and pictures inside, no script, nothing fetched."""
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    body = "\n".join(_html(block) for block in document.blocks)
    title = html.escape(document.title)
    return (
        f'<!doctype html>\n<html lang="{document.language}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Paragraph(text, tone):
            kind = f' class="{tone}"' if tone else ""
            return f"<p{kind}>{html.escape(text)}</p>"
        case Bullets(items, _):
            return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"
        case Table(header, rows, folded):
            table = _html_table(header, rows)
            return f"<details><summary>{html.escape(folded)}</summary>{table}</details>" if folded else table
        case Sample(title, parts, _):
            told = [(html.escape(text), learnt) for text, learnt in parts if text]
            marked = "".join(f"<mark>{text}</mark>" if learnt else text for text, learnt in told)
            return (
                f'<figure class="sample"><figcaption><code>{html.escape(title)}</code></figcaption>'
                f"<pre>{marked}</pre></figure>"
            )
        case Picture(_, svg, alt):
            return f'<figure role="img" aria-label="{html.escape(alt)}">{svg}</figure>'


def _html_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    head = "".join(
        f'<th scope="col"{" class=number" if right else ""}>{html.escape(name)}</th>'
        for name, right in zip(header, _numeric(header, rows), strict=True)
    )
    head = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    body = "".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f'<div class="table"><table>{head}<tbody>{body}</tbody></table></div>'


def _html_cell(cell: Cell) -> str:
    classes = [name for name in ("number" if cell.number else "", "data" if cell.data else "") if name]
    kind = f' class="{" ".join(classes)}"' if classes else ""
    text = html.escape(cell.text)
    if cell.tone:
        text = f'<span class="{cell.tone}">{text}</span>'
    return f"<td{kind}>{text}</td>"
