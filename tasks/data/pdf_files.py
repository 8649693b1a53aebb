"""What every reader of PDFs says alike: a file that no library can read, and one with too many pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specs.errors import SourceError
from tasks.data.files import MAX_PDF_PAGES
from tasks.data.records import SourceFile


@contextmanager
def readable_pdf(file: SourceFile) -> Iterator[None]:
    """Reading a PDF: whatever the libraries raise becomes one `SourceError`; our own errors stay what they are."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # both libraries raise types of their own, for which a user needs one message
        raise SourceError(
            f"{file.name} is not a readable PDF: {error or type(error).__name__}",
            "open it in a viewer; if it is encrypted, save it without a password",
        ) from error


def require_few_pages(pages: int, file: SourceFile) -> None:
    """Raises `SourceError` for a PDF above the cap."""
    if pages > MAX_PDF_PAGES:
        raise SourceError(f"{file.name} has {pages} pages, above the cap of {MAX_PDF_PAGES}", "split the file")
