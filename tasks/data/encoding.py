"""From bytes to text without a silent loss: byte order mark, strict UTF-8, then the encoding that explains the bytes.

UTF-8 comes first because Chinese legacy encodings accept almost any bytes. Where it fails, every candidate is given
the probability of the whole text under it; what is not certain is asked, never guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from specs.errors import SourceError

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

_FREQUENT = frozenset(
    "的一是不了在人有我他这中大来上个国和也子时道说出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方"
    "成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从机部检查换更修理轴电动压报警维床刀具油温度"
    "流量设备故障器声音异响清洁润滑正常重启打开关闭测显示信号线路接触良坏松紧调整位置原因处障停止工件加热冷却泵阀轮带型号码"
    "這個來時說會對後無為國過還學進種將經當與樣點開關閉動電機檢查換更修復壓報警維護軸號碼溫設備聲異響潔潤滑顯線觸壞鬆緊調"
    "，。、；：？！（）《》“”‘’—…·　"
)
"""Characters that make up about half of technical Chinese, in both scripts."""

_CERTAIN = math.log(1e6)
"""The chosen encoding explains the bytes a million times better than any other; below that the person is asked."""
_HEAD_BYTES = 1 << 18
_SHARES = {"ascii": 0.4, "frequent": 0.3, "common": 0.24, "rare": 0.03, "symbol": 0.02, "far": 0.00999, "no": 0.00001}
_SIZES = {"ascii": 97, "frequent": len(_FREQUENT), "common": 3500, "rare": 3300, "symbol": 700, "far": 20000, "no": 1e6}
_LOG = {name: math.log(_SHARES[name] / _SIZES[name]) for name in _SHARES}
"""Log-probability of one character of a class in a technical text, by share of the class over its size."""
_ACCENTED = math.log(0.05 / 96)
_DAMAGED = math.log(1e-7)
_BY_CHANCE = 4
"""A text of so few characters outside ASCII may be UTF-8 by chance: doubted when another reading is e^4 likelier."""
_WIDE_WITHOUT_ZERO = -10.0
"""Prior of UTF-16 without a single zero byte: no ASCII character and no line end in the whole file."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text of a file, the encoding that was used, and how it was found."""

    text: str
    encoding: str
    found_by: str


def decode(data: bytes, name: str, declared: str = "auto", stated: str = "") -> Decoded:
    """Text of `data`, with `\\n` line ends. `declared` is the person's word, `stated` what the file says of itself.

    Raises `SourceError` when the bytes do not decode, or when two encodings explain them about as well.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom) and declared in ("auto", encoding.removesuffix("-sig")):
            return Decoded(_strict(data, encoding, name, "its byte order mark"), encoding, "byte order mark")
    if declared != "auto":
        return Decoded(_strict(data, declared, name, "encoding: in project.yaml"), declared, "project.yaml")
    bad_byte: int | None = None
    doubted = False
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad_byte = error.start
    else:
        doubted = "\x00" not in text and _doubtful(data, text)
        if "\x00" not in text and not doubted:
            return Decoded(_lines(text), "utf-8", "strict UTF-8")
    if stated:
        try:
            return Decoded(_lines(data.decode(stated)), stated, "stated in the file")
        except (UnicodeDecodeError, LookupError):
            pass
    return _legacy(data, name, bad_byte, doubted)


def _doubtful(data: bytes, text: str) -> bool:
    """Whether a text is UTF-8 by chance: few characters outside ASCII, odd ones, that read better in Chinese bytes."""
    foreign = [found.group() for found in islice(re.finditer(r"[^\x00-\x7f]", text), _BY_CHANCE + 1)]
    if not 0 < len(foreign) <= _BY_CHANCE:
        return False
    plain = sum(_LOG["far"] if "\u0100" <= char < "\u0250" else _chinese(char) for char in foreign)
    others = [sum(map(_chinese, filter(_not_ascii, t))) for t in _readings(data, ("gb18030", "big5"))]
    return max(others, default=-math.inf) - plain >= _BY_CHANCE


def _not_ascii(char: str) -> bool:
    return char > "\x7f"


def _readings(data: bytes, encodings: Sequence[str]) -> Iterator[str]:
    for encoding in encodings:
        try:
            yield data.decode(encoding)
        except UnicodeDecodeError:
            continue


def _legacy(data: bytes, name: str, bad_byte: int | None, doubted: bool) -> Decoded:
    """The one encoding that explains the bytes; the head of a long file decides, and the whole must decode.

    `bad_byte` is where the bytes are not UTF-8; `doubted` bytes are UTF-8 perhaps by chance, and are always asked.
    """
    head = data[:_HEAD_BYTES]
    scores = sorted(((score(head), encoding) for encoding, score in _CANDIDATES.items()), reverse=True)
    (best, encoding), (second, other) = scores[0], scores[1]
    certain = best - second >= _CERTAIN and not doubted
    if certain and encoding not in _ONLY_ASKED:
        found_by = f"explains the bytes e^{min(best - second, 999):.0f} times better than {other}"
        return Decoded(_strict(data, encoding, name, "how well it reads"), encoding, found_by)
    if b"\x00" in data:
        raise SourceError(f"{name} holds zero bytes and is no text", "export it as CSV or text in UTF-8")
    if certain and encoding == "utf-8":
        raise SourceError(
            f"{name} reads as UTF-8 but for byte {bad_byte}: it is damaged or cut",
            "write it again from its program, or mend that byte",
        )
    near = [e for score, e in scores if best - score < _CERTAIN and (e != "utf-8" or doubted)]
    likely = [*(e for e in ("utf-8",) if doubted and e not in near), *near]
    what = f"{name} is UTF-8 perhaps by chance" if doubted else f"{name}: byte {bad_byte} is not UTF-8"
    if len(likely) < 2:
        raise SourceError(
            f"{what}, and no Chinese encoding reads well",
            "add encoding: cp1252 (or gb18030, big5, latin-1) to this source, or save the file as UTF-8",
        )
    reads = "; ".join(f"`encoding: {e}` reads {_glimpse(data, e)!r}" for e in likely)
    raise SourceError(
        f"{what}; {' and '.join(likely)} read about equally well", f"add one line to this source: {reads}"
    )


def _glimpse(data: bytes, encoding: str) -> str:
    """The first words outside ASCII as the encoding reads them."""
    found = re.search(r"[^\x00-\x7f].{0,11}", data[:4096].decode(encoding, errors="replace"))
    return "".join(c if c.isprintable() else "?" for c in found.group()) if found else ""


def _explains(encoding: str, of_class: Callable[[str], float], prior: float = 0.0) -> Callable[[bytes], float]:
    """Log-probability of bytes as a text in `encoding`; a head may be cut inside its last character."""

    def score(head: bytes) -> float:
        for cut in range(4):
            try:
                text = head[: len(head) - cut].decode(encoding)
            except (UnicodeDecodeError, ValueError):
                if len(head) < _HEAD_BYTES:
                    return -math.inf
            else:
                likely = 0.0 if b"\x00" in head else prior
                return likely + sum(count * of_class(char) for char, count in Counter(text).items())
        return -math.inf

    return score


@cache
def _chinese(char: str) -> float:
    """Log-probability of a character in a Chinese or English technical text, whatever its encoding."""
    if char.isascii():
        return _LOG["ascii" if char.isprintable() or char in "\n\r\t" else "no"]
    if char in _FREQUENT:
        return _LOG["frequent"]
    if not (char.isprintable() or char.isspace()) or "\ue000" <= char <= "\uf8ff":
        return _LOG["no"]
    return _LOG[_class_in_sets(char)]


def _class_in_sets(char: str) -> str:
    """common: level 1 of GB 2312 or Big5; rare: level 2 of either; symbol: their signs; far: all else."""
    try:
        lead = char.encode("gb2312")[0]
    except UnicodeEncodeError:
        lead = 0
    if 0xB0 <= lead <= 0xD7:
        return "common"
    try:
        traditional = char.encode("big5")[0]
    except UnicodeEncodeError:
        traditional = 0
    if 0xA4 <= traditional <= 0xC6:
        return "common"
    if lead >= 0xD8 or traditional >= 0xC9:
        return "rare"
    return "symbol" if lead or traditional or ord(char) < 0x250 else "far"


@cache
def _western(char: str) -> float:
    if char.isascii():
        return _chinese(char)
    return _ACCENTED if char.isprintable() or char == "\xa0" else _LOG["no"]


def _damaged_utf8(head: bytes) -> float:
    text = head.decode("utf-8", errors="replace")
    counted = Counter(text)
    bad = counted.pop("\ufffd", 0)
    return bad * _DAMAGED + sum(count * _chinese(char) for char, count in counted.items())


_CANDIDATES: dict[str, Callable[[bytes], float]] = {
    "gb18030": _explains("gb18030", _chinese),
    "big5": _explains("big5", _chinese),
    "utf-16-le": _explains("utf-16-le", _chinese, _WIDE_WITHOUT_ZERO),
    "utf-16-be": _explains("utf-16-be", _chinese, _WIDE_WITHOUT_ZERO),
    "cp1252": _explains("cp1252", _western),
    "utf-8": _damaged_utf8,
}
_ONLY_ASKED = ("utf-8", "cp1252")
"""cp1252 and damaged UTF-8 are never chosen: where they explain the bytes best, the person is asked."""


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


_SLICE = 1 << 16


def visible(text: str, besides: str = "") -> int:
    """Characters that are neither white space nor in `besides`: what must be the same before and after parsing."""
    count = 0
    for start in range(0, len(text), _SLICE):  # slices bound the memory of split() on a long file
        count += len("".join(text[start : start + _SLICE].split()))
    return count - sum(text.count(char) for char in set(besides) if not char.isspace())
