"""Documents: every character that a reader sees is in a block, once; pictures of text are named or recognised."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from specs.errors import SourceError
from specs.parameters import DataParameters
from specs.project import Project
from specs.stages import Quiet
from tasks.data import pdf_pages
from tasks.data.blocks import Document
from tasks.data.documents import read_document
from tasks.data.ocr import Recognised, lines_of
from tasks.data.reading import read_sources
from tasks.data.records import Intake, SourceFile
from tasks.verify.raw_documents import html_characters


def read(path: Path, ocr: bool = False) -> Document:
    document = read_document(SourceFile(path.name, path), ocr=ocr)
    assert document.characters_in == document.characters_out
    return document


def texts(document: Document) -> list[str]:
    return [block.text for block in document.blocks]


PAGE = """<!doctype html><html><head><title>Spindle manual</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a> <a>Search</a></nav><h1>1 Spindle &amp; belt</h1>loose <b>bold</b> text
<p>主轴<i>异响</i>。<br>Replace it at 0.5&nbsp;mm.</p><ul><li>wear gloves<li>use tool 7<ul><li>or 8</ul></ul>
<table><thead><tr><th>Code<th>Meaning</thead><tr><td>G07.1<td>x <p>refused</p></td></tr></table> after
<pre>G01 X1
G02 X2</pre><script>var hidden = 1;</script><!-- comment --><img src=a.png><footer>page 1</footer></body></html>"""


def test_a_page_becomes_headings_text_lists_and_tables_and_no_script(tmp_path: Path):
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    document = read(tmp_path / "a.html")
    assert [(b.kind, b.text) for b in document.blocks] == [
        ("furniture", "Spindle manual"),
        ("furniture", "Home Search"),
        ("heading", "1 Spindle & belt"),
        ("text", "loose bold text"),
        ("text", "主轴异响。 Replace it at 0.5 mm."),
        ("list", "wear gloves\nuse tool 7\nor 8"),
        ("table", "Code\tMeaning\nG07.1\tx refused"),
        ("text", "after"),
        ("text", "G01 X1\nG02 X2"),
        ("furniture", "page 1"),
    ]
    assert document.noticed["pictures_not_read"] == 1


@pytest.mark.parametrize("stated", ["gb2312", "GBK", "big5", "windows-1252", "nonsense"])
def test_what_a_page_states_of_its_encoding_is_believed_only_where_it_fits(tmp_path: Path, stated: str):
    encoding = {"gb2312": "gb18030", "GBK": "gb18030", "windows-1252": "cp1252"}.get(stated, "big5")
    body = "température 85 °C" if encoding == "cp1252" else "主轴" if encoding == "gb18030" else "主軸"
    if stated == "nonsense":
        body = "設備型號故障現象主軸有異響檢查後更換軸承"
    data = f'<meta http-equiv="x" content="text/html; charset={stated}"><p>{body}</p>'.encode(encoding)
    (tmp_path / "a.html.gz").write_bytes(gzip.compress(data))
    assert texts(read(tmp_path / "a.html.gz")) == [body]


def test_entities_of_a_page_that_name_files_are_never_opened(tmp_path: Path):
    (tmp_path / "secret").write_text("secret words")
    entity = f'<!DOCTYPE p [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
    (tmp_path / "a.html").write_text(f"{entity}<p>before &x; after</p>")
    assert "secret words" not in "".join(texts(read(tmp_path / "a.html")))


ODD_PAGES = {
    "text after the end": ("<html><body>a</body></html>trailing <b>x", "atrailing x"),
    "deep": ("<div>" * 5000 + "deep" + "</div>" * 5000 + "after", "deep after"),
    "unclosed": ("<p>a<ul><li>b<li>c<table><tr><td>d", "a b\nc d"),
    "signs": ("<p>a < b && c <3 &nbsp;&#x4e00;&unknown;", "a < b && c <3 一&unknown;"),
    "text area": ("<textarea>a<b>&amp;</textarea>", "a<b>&"),
    "comments": ("a<!-- x -->b<?php echo 1 ?>c", "abc"),
    "no element": ("just text", "just text"),
}


@pytest.mark.parametrize("name", ODD_PAGES)
def test_odd_pages_lose_no_text_and_the_verifier_agrees(tmp_path: Path, name: str):
    page, text = ODD_PAGES[name]
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    document = read(tmp_path / "a.html")
    assert " ".join(texts(document)) == text
    assert html_characters(page).total() == document.characters_out


def full_docx(path: Path) -> None:
    """A document with everything that `paragraphs` and `tables` of python-docx do not show."""
    w = nsdecls("w")
    document = docx.Document()
    document.add_heading("1 Spindle", 1)
    control = f"<w:sdt {w}><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    document.element.body.insert(1, parse_xml(control))
    paragraph = document.add_paragraph("kept ")
    paragraph._p.append(parse_xml(f"<w:ins {w}><w:r><w:t>inserted</w:t></w:r></w:ins>"))
    paragraph._p.append(parse_xml(f"<w:del {w}><w:r><w:delText>deleted</w:delText></w:r></w:del>"))
    box = f"""<w:r {w} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><mc:AlternateContent>
<mc:Choice Requires="wps"><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent></mc:Choice>
<mc:Fallback><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent></mc:Fallback>
</mc:AlternateContent></w:r>"""
    document.add_paragraph("beside it")._p.append(parse_xml(box))
    table = document.add_table(2, 2)
    for row in range(2):
        for column in range(2):
            table.cell(row, column).text = f"{row}{column}"
    table.cell(0, 0).merge(table.cell(0, 1))
    document.sections[0].header.paragraphs[0].text = "ACME confidential"
    document.save(str(path))


def test_a_docx_is_read_with_controls_insertions_boxes_headers_and_no_deletions(tmp_path: Path):
    full_docx(tmp_path / "a.docx")
    document = read(tmp_path / "a.docx")
    assert [(b.kind, b.text) for b in document.blocks] == [
        ("heading", "1 Spindle"),
        ("text", "in a control"),
        ("text", "kept inserted"),
        ("text", "beside it"),
        ("text", "in a box"),
        ("table", "00 01\n10\t11"),
        ("furniture", "ACME confidential"),
    ]


def intake_of(folder: Path, **source: object) -> Intake:
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    return read_sources(folder, spec, DataParameters(), len, Quiet())


@pytest.mark.parametrize("kind", ["manuals", "notes"])
@pytest.mark.parametrize("name", ["a.docx", "a.html"])
def test_what_stands_on_every_page_is_out_of_scope_and_accounted_for(tmp_path: Path, kind: str, name: str):
    full_docx(tmp_path / "a.docx")
    (tmp_path / "a.html").write_text(PAGE)
    intake = intake_of(tmp_path, kind=kind, path=name)
    left_out = [f.unit.original for f in intake.fates if f.reason == "page_furniture"]
    assert left_out == (["ACME confidential"] if name == "a.docx" else ["Spindle manual", "Home Search", "page 1"])
    numbers = [int(u.location.rpartition("#")[2]) for u in intake.paragraphs]
    assert numbers == list(range(1, len(numbers) + 1))


def rebuilt(path: Path, extra: dict[str, bytes]) -> None:
    """The same archive with members replaced or added."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**members, **extra}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"../../evil.xml": b"<a/>"}, "leads out of it"),
        ({"word/evil.xml": b'<!DOCTYPE a [<!ENTITY b "bbb">]><a>&b;</a>'}, "declares XML entities"),
        ({"word/bomb.xml": b"0" * (70 << 20)}, "unpacks to more than"),
    ],
)
def test_a_document_made_to_do_harm_is_refused(tmp_path: Path, extra: dict[str, bytes], words: str):
    full_docx(tmp_path / "a.docx")
    rebuilt(tmp_path / "a.docx", extra)
    with pytest.raises(SourceError, match=words):
        intake_of(tmp_path, kind="manuals", path="a.docx")


def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"0" * (70 << 20)))
    with pytest.raises(SourceError, match="unpacks to more than"):
        read_document(SourceFile("a.txt.gz", tmp_path / "a.txt.gz"))


def test_a_folder_that_leads_out_of_the_project_is_refused(tmp_path: Path):
    inside, outside = tmp_path / "p", tmp_path / "o"
    inside.mkdir()
    outside.mkdir()
    (outside / "a.md").write_text("Replaced the belt of the spindle.")
    (inside / "raw").symlink_to(outside, target_is_directory=True)
    for path in ("raw", "raw/a.md", "raw/*.md", "**/*.md"):
        with pytest.raises(SourceError, match=r"leads out of the project|no such file"):
            intake_of(inside, kind="notes", path=path)


@pytest.mark.parametrize(("name", "way"), [("a.zip", "unpack it"), ("a.tar.gz", "unpack it"), ("a.doc", "as DOCX")])
def test_a_file_of_another_kind_is_refused_with_what_to_do(tmp_path: Path, name: str, way: str):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SourceError) as caught:
        intake_of(tmp_path, kind="manuals", path=name)
    assert way in caught.value.hint


def scanned_pdf(path: Path) -> None:
    """One page of text, one that is a picture of text, one that is a picture of nothing."""
    font = next(iter(sorted(Path("/usr/share/fonts").rglob("*CJK*.tt[cf]"))), None)
    picture = Image.new("L", (1600, 400), 255)
    large = ImageFont.truetype(str(font), 64) if font else ImageFont.load_default(64)
    words = "主轴异响 更换轴承" if font else "replace the bearing"
    ImageDraw.Draw(picture).text((40, 60), f"Alarm G07.1\n{words}", fill=0, font=large)
    canvas = Canvas(str(path), pagesize=(560, 160))  # small pages are recognised in less time
    canvas.drawString(60, 100, "The first page is text.")
    canvas.showPage()
    canvas.drawImage(ImageReader(picture), 30, 20, 500, 125)
    canvas.showPage()
    canvas.rect(100, 20, 100, 100, fill=1)
    canvas.save()


def test_pages_that_are_pictures_are_named_and_never_silently_empty(tmp_path: Path):
    scanned_pdf(tmp_path / "a.pdf")
    assert [(b.kind, b.page) for b in read(tmp_path / "a.pdf").blocks] == [("text", 1), ("no_text", 2), ("no_text", 3)]


@pytest.mark.skipif(not shutil.which("tesseract"), reason="the program tesseract is not installed")
def test_pictures_of_text_are_recognised_when_asked_and_said_so(tmp_path: Path):
    pytesseract = pytest.importorskip("pytesseract", reason="the extra ocr is not installed")
    if not {"chi_sim", "eng"} <= set(pytesseract.get_languages()):
        pytest.skip("tesseract lacks chi_sim or eng")
    scanned_pdf(tmp_path / "a.pdf")
    intake = intake_of(tmp_path, kind="manuals", path="a.pdf", ocr=True)
    [page] = [u for u in intake.paragraphs if u.location.startswith("page 2#")]
    assert "G07.1" in page.original
    assert intake.counts["ocr_pages"] == 1
    assert intake.decoding[0]["ocr_pages"] == [2]
    assert [f.reason for f in intake.fates] == ["page_without_text"]


def test_a_recognised_page_stands_where_the_page_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdf_pages, "require_ocr", lambda name: None)
    monkeypatch.setattr(pdf_pages, "recognise", lambda page, name: Recognised(["Scanned words."], 90.0))
    scanned_pdf(tmp_path / "a.pdf")
    blocks = read(tmp_path / "a.pdf", ocr=True).blocks
    assert [(b.page, b.recognised) for b in blocks] == [(1, False), (2, True), (3, True)]


def test_recognised_words_are_joined_as_each_language_writes_them():
    words = ["Alarm", "G07.1", "主", "轴", "", "next"]
    found = {"text": words, "conf": [90, 80, 70, 60, -1, 50]}
    found |= {"block_num": [1] * 6, "par_num": [1] * 6, "line_num": [1, 1, 1, 1, 1, 2]}
    recognised = lines_of(found)
    assert recognised.lines == ["Alarm G07.1主轴", "next"]
    assert recognised.confidence == 70
