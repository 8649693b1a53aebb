"""How alike manual paragraphs are: spread of lengths (std/mean) over the Markdown or text files of folders.

    python benchmarks/paragraphs.py FOLDER... [--target 128]

Fenced code blocks are left out: they are no running prose. Lengths are those of the tiny bilingual model's tokenizer.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specs.project import Hub
from specs.stages import Quiet
from tasks.data.documents import read_document
from tasks.data.paragraphs import cut
from tasks.data.records import SourceFile
from tasks.models.resolve import resolve_base_model
from tasks.prompts import PromptTemplate

_FENCED = re.compile(r"^```.*?^```\s*$", re.DOTALL | re.MULTILINE)


def lengths(path: Path, target: int, template: PromptTemplate) -> list[int]:
    """Tokens of the paragraphs of one file."""

    def count(text: str) -> int:
        return len(template.encode("", text).input_ids)

    with tempfile.TemporaryDirectory() as temporary:
        prose = Path(temporary) / path.name
        prose.write_text(_FENCED.sub("", path.read_text(encoding="utf-8")), encoding="utf-8")
        blocks = read_document(SourceFile(path.name, prose)).blocks
    return [count(p.sample_text()) for p in cut(blocks, target, count)]


def main() -> None:
    """Print mean and spread per folder."""
    parser = argparse.ArgumentParser(description="Spread of paragraph lengths.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--target", type=int, default=128, help="tokens of a paragraph")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        template = PromptTemplate.load(resolve_base_model("package:gatewright-tiny", Path(home), Hub(), Quiet()).folder)
        for folder in chosen.folders:
            files = sorted(p for p in folder.rglob("*") if p.suffix in (".md", ".txt") and p.stat().st_size)
            found = [n for path in files for n in lengths(path, chosen.target, template)]
            mean, spread = statistics.fmean(found), statistics.pstdev(found) / statistics.fmean(found)
            above = sum(n > 2 * chosen.target for n in found)
            print(f"{folder}: {len(found)} paragraphs, mean {mean:.0f} tokens, spread {spread:.3f}, {above} above 2x")


if __name__ == "__main__":
    main()
