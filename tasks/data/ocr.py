"""Text of a page that is only a picture, recognised by tesseract. Optional: `ocr: true` in the source.

Recognised text is a guess. A page below LEAST_CONFIDENCE goes to quarantine; every page read so is counted and named.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from specs.errors import SourceError

LANGUAGES = ("chi_sim", "eng")
DOTS_PER_INCH = 300
LEAST_CONFIDENCE = 60.0
"""Mean confidence of the words of a page, of 100."""
_MAX_SECONDS = 120
_MAX_PIXELS = 60_000_000


@dataclass(frozen=True, slots=True)
class Recognised:
    """Lines of a page from top to bottom, and the mean confidence of its words, 0 to 100."""

    lines: list[str]
    confidence: float


def require_ocr(name: str) -> None:
    """Raise `SourceError` where OCR was asked for and cannot run, with what to install."""
    way_out = "install tesseract with its languages chi_sim and eng, and `pip install 'gatewright[ocr]'`"
    try:
        import pytesseract
    except ImportError as error:
        raise SourceError(f"{name} asks for OCR (ocr: true), and pytesseract is not installed", way_out) from error
    if not shutil.which("tesseract"):
        raise SourceError(f"{name} asks for OCR (ocr: true), and there is no program tesseract", way_out)
    missing = set(LANGUAGES) - set(pytesseract.get_languages())
    if missing:
        raise SourceError(f"{name} asks for OCR, and tesseract lacks {', '.join(sorted(missing))}", way_out)


def recognise(page: Any, name: str) -> Recognised:
    """The text of a pypdfium2 page. Raises `SourceError` when tesseract fails or takes too long."""
    import pytesseract

    width, height = page.get_size()
    scale = DOTS_PER_INCH / 72
    if width * height * scale * scale > _MAX_PIXELS:
        scale = (_MAX_PIXELS / (width * height)) ** 0.5
    image = page.render(scale=scale, grayscale=True).to_pil()
    try:
        found = pytesseract.image_to_data(
            image, lang="+".join(LANGUAGES), output_type=pytesseract.Output.DICT, timeout=_MAX_SECONDS
        )
    except (pytesseract.TesseractError, RuntimeError, OSError) as error:
        raise SourceError(f"{name}: OCR failed: {error}", "check tesseract, or set ocr: false") from error
    return lines_of(found)


def lines_of(found: dict[str, list[Any]]) -> Recognised:
    """The words that tesseract found, by line; Chinese characters without spaces between them."""
    lines: dict[tuple[int, int, int], list[str]] = defaultdict(list)
    sure: list[float] = []
    for at, word in enumerate(found["text"]):
        if str(word).strip():
            lines[found["block_num"][at], found["par_num"][at], found["line_num"][at]].append(str(word).strip())
            sure.append(float(found["conf"][at]))
    return Recognised(["".join(_spaced(words)) for words in lines.values()], sum(sure) / len(sure) if sure else 0.0)


def _spaced(words: list[str]) -> list[str]:
    pieces: list[str] = []
    for word in words:
        wide = pieces and (pieces[-1][-1] >= "\u3000" or word[0] >= "\u3000")
        pieces.append(word if not pieces or wide else f" {word}")
    return pieces
