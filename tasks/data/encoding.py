"""From bytes to text without a silent loss: BOM, strict UTF-8, UTF-16 by its zero bytes, then gb18030 or big5 by score.

UTF-8 comes first because Chinese legacy encodings accept almost any bytes; UTF-16 is tried only where zero bytes
show it, because half of all UTF-8 files also decode as UTF-16. A close score is asked, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from specs.errors import SourceError

_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))

_FREQUENT = frozenset(
    "的一是不了在人有我他这中大来上个国和也子时道说出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方"
    "成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从机部检查换更修理轴电动压报警维床刀具油温度"
    "流量设备故障器声音异响清洁润滑正常重启打开关闭测显示信号线路接触良坏松紧调整位置原因处障停止工件加热冷却泵阀轮带型号码"
    "這個來時說會對後無為國過還學進種將經當與樣點開關閉動電機檢查換更修復壓報警維護軸號碼溫設備聲異響潔潤滑顯線觸壞鬆緊調"
    "，。、；：？！（）《》“”‘’—…·　"
)
"""Characters that make up most of technical Chinese, in both scripts. Their share tells the right decoding."""

_ENOUGH = 0.12
_MARGIN = 0.06
_KNOWN_IN_UTF16 = 0.2


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text of a file, the encoding that was used, and how it was found."""

    text: str
    encoding: str
    found_by: str


def decode(data: bytes, name: str, declared: str = "auto") -> Decoded:
    """Text of `data`, with `\\n` line ends. Raises `SourceError` when bytes do not decode or two encodings tie."""
    for bom, encoding in _BOMS:
        if data.startswith(bom) and declared in ("auto", encoding.removesuffix("-sig")):
            return Decoded(_strict(data, encoding, name, "its byte order mark"), encoding, "byte order mark")
    if declared != "auto":
        return Decoded(_strict(data, declared, name, "encoding: in project.yaml"), declared, "project.yaml")
    wide = _utf16(data)
    if wide:
        return Decoded(_strict(data, wide, name, "its zero bytes"), wide, "zero bytes")
    if b"\x00" in data:
        raise SourceError(f"{name} holds zero bytes and is no text", "export it as CSV or text in UTF-8")
    try:
        return Decoded(_lines(data.decode("utf-8")), "utf-8", "strict UTF-8")
    except UnicodeDecodeError as error:
        return _legacy(data, name, error.start)


def _legacy(data: bytes, name: str, bad_byte: int) -> Decoded:
    scores: list[tuple[float, str, str]] = []
    for encoding in ("gb18030", "big5"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        scores.append((_score(text), encoding, text))
    scores.sort(key=lambda item: (-item[0], item[1]))
    hint = "set encoding: for this source in project.yaml (utf-8, gb18030, big5, cp1252, latin-1), or save it as UTF-8"
    if not scores or scores[0][0] < _ENOUGH:
        raise SourceError(f"{name}: byte {bad_byte} is not UTF-8, and no Chinese encoding reads well", hint)
    if len(scores) > 1 and scores[0][0] - scores[1][0] < _MARGIN:
        raise SourceError(f"{name}: {scores[0][1]} and {scores[1][1]} read equally well", hint)
    return Decoded(_lines(scores[0][2]), scores[0][1], f"score {scores[0][0]:.2f}")


def _score(text: str) -> float:
    """Share of frequent characters among those outside ASCII."""
    foreign = [c for c in text if ord(c) > 127]
    return sum(c in _FREQUENT for c in foreign) / len(foreign) if foreign else 0.0


def _utf16(data: bytes) -> str | None:
    """utf-16-le or -be: zero bytes on one side only, as ASCII in UTF-16 has them, and text that reads as such."""
    head = data[:65536]
    if len(data) % 2 or b"\x00" not in head:
        return None
    even, odd = head[0::2].count(0), head[1::2].count(0)
    encoding = "utf-16-le" if even == 0 else "utf-16-be" if odd == 0 else None
    if encoding is None:
        return None
    text = head.decode(encoding, errors="replace")
    known = sum(c in _FREQUENT or c.isascii() for c in text)
    return encoding if known >= _KNOWN_IN_UTF16 * len(text) else None


def _strict(data: bytes, encoding: str, name: str, why: str) -> str:
    try:
        return _lines(data.decode(encoding))
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{name} is not {encoding.removesuffix('-sig')} (by {why}): byte {error.start} cannot be decoded",
            "correct encoding: for this source in project.yaml, or save the file as UTF-8",
        ) from error


def _lines(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def visible(text: str, besides: str = "") -> int:
    """Characters that are neither white space nor in `besides`: what must be the same before and after parsing."""
    skip = set(besides)
    return sum(1 for c in text if not c.isspace() and c not in skip)
