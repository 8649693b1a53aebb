"""Encodings: what was written is what is read, or the person is asked. There is no third outcome."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specs.errors import SourceError
from tasks.data.encoding import decode, visible

SIMPLIFIED = [bytes([a, b]).decode("gb2312") for a in range(0xB0, 0xD7) for b in range(0xA1, 0xFF)]
TRADITIONAL = [
    bytes([a, b]).decode("big5") for a in range(0xA4, 0xC6) for b in (*range(0x40, 0x7F), *range(0xA1, 0xFF))
]
PLAIN = "abc XYZ 0129,;-\n"
USUAL = "的一是不有机床主轴电动报警检查更换维修处理油温压力异响清洁正常，。"
USUAL_TRADITIONAL = "的一是不有機床主軸電動報警檢查更換維修處理油溫壓力異響清潔正常，。"
WRITTEN = {
    "utf-8": SIMPLIFIED,
    "utf-8-sig": SIMPLIFIED,
    "utf-16": SIMPLIFIED,
    "utf-32": SIMPLIFIED,
    "utf-16-le": SIMPLIFIED,
    "utf-16-be": TRADITIONAL,
    "gb18030": SIMPLIFIED,
    "big5": TRADITIONAL,
}


def read(data: bytes) -> str | None:
    """The text, or None where the person is asked, with lines to choose from."""
    try:
        return decode(data, "a.csv").text
    except SourceError:
        return None


@pytest.mark.parametrize("encoding", WRITTEN)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_text_round_trips_or_is_asked(encoding: str, data: st.DataObject):
    """Any mix of common characters and ASCII, of 6 characters or more with a line end."""
    letters = st.sampled_from([*WRITTEN[encoding], *PLAIN])
    text = data.draw(st.text(letters, min_size=6, max_size=80)) + "\n"
    assert read(text.encode(encoding)) in (text, None)


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "utf-16-le", "utf-16-be"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_technical_text_of_a_few_lines_is_never_asked(encoding: str, data: st.DataObject):
    usual = USUAL_TRADITIONAL if encoding in ("big5", "utf-16-be") else USUAL
    letters = st.sampled_from([*usual, *usual, *PLAIN, *WRITTEN[encoding][::40]])
    text = data.draw(st.text(letters, min_size=80, max_size=200)) + "\n"
    assert read(text.encode(encoding)) == text


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00\ufeff"), min_size=8, max_size=200))
@example("temperature 85 °C, 5 µm, 3 Ω, naïve")
@example("plain")
def test_any_utf8_text_is_read_as_it_is_or_asked(text: str):
    assert read(text.encode()) in (text, None)


@pytest.mark.parametrize("text", ["85 °C", "10 Ω, 5 µm, ±0.1", "naïve", "≥ 3", "主", "“hot”"])
def test_a_few_usual_signs_in_utf8_are_not_doubted(text: str):
    assert read(text.encode()) == text


def test_two_characters_that_are_utf8_by_chance_are_asked():
    data = "殴打".encode("gb18030")[:2]
    assert data.decode("utf-8")
    with pytest.raises(SourceError, match="by chance") as caught:
        decode(data, "a.csv")
    assert "`encoding: gb18030` reads '殴'" in caught.value.hint


def test_a_tie_names_the_lines_to_choose_from_and_how_each_would_read():
    with pytest.raises(SourceError, match="gb18030 and big5 read about equally well") as caught:
        decode("主轴".encode("gb18030"), "a.csv")
    assert "`encoding: gb18030` reads '主轴'" in caught.value.hint
    assert decode("主轴".encode("gb18030"), "a.csv", "gb18030").text == "主轴"


def test_one_damaged_byte_in_utf8_is_named_and_never_read_as_another_encoding():
    data = "主轴有异响，检查后更换轴承。".encode()
    with pytest.raises(SourceError, match="byte 9: it is damaged"):
        decode(data[:9] + b"\xff" + data[10:], "a.csv")
    with pytest.raises(SourceError, match="damaged or cut"):
        decode(data[:-1], "a.csv")


def test_the_head_of_a_long_file_decides_and_the_whole_must_decode():
    line = "主轴有异响，检查后更换轴承。\n"
    long = line.encode("gb18030") * 20_000
    assert decode(long, "a.csv").text == line * 20_000
    assert decode(b"x" + long, "a.csv").text == "x" + line * 20_000, "cut inside a character"
    with pytest.raises(SourceError, match="cannot be decoded"):
        decode(long + b"\xff\xff", "a.csv")


@settings(max_examples=25, deadline=None)
@given(st.text('ab,"\t\n \xa0\u2028\u3000轴\U00020000', max_size=200), st.sampled_from(["", ',"', "\t"]))
def test_visible_characters_are_those_that_are_neither_space_nor_structure(text: str, besides: str):
    assert visible(text, besides) == sum(1 for c in text if not c.isspace() and c not in besides)
