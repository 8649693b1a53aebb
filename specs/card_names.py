"""How people, drivers, clouds and shops spell the name of a card, made comparable. Pure.

A card is one name of the catalog and many outside it: `4090`, `rtx4090`, `NVIDIA GeForce RTX 4090`, `RTX 4090 24G`,
`英伟达 RTX4090 显卡`, `H100-80GB`, `NVIDIA A100 80GB PCIe`. What tells cards apart is kept (Ti, SUPER, D, Laptop, Ada);
brand, form factor and memory may be left out, and stand in any order.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import product

CHINESE = {
    "英伟达": "nvidia",
    "昇腾": "ascend",
    "华为": "huawei",
    "泰坦": "titan",
    "笔记本": "laptop",
    "移动版": "laptop",
    "移动端": "laptop",
    "显卡": "gpu",
    "计算卡": "gpu",
    "加速卡": "gpu",
    "显存": "memory",
}
"""Words of a name in Chinese; others stay as they are, and then a name is not found rather than taken for another."""
DRIVER = {"h100 80gb hbm3": "H100 SXM 80GB", "h200": "H200 SXM"}
"""Names that a driver gives to one of several cards without saying which."""
NOISE = frozenset(("nvidia", "geforce", "amd", "intel", "huawei", "tesla", "gpu", "generation", "edition", "memory"))
_MEMORY_KIND = re.compile(r"hbm\d\w*|gddr\d\w*")
_BRAND = frozenset(("rtx", "gtx", "quadro", "radeon", "rx", "arc", "ascend"))
_FORM = re.compile(r"sxm|pcie|nvl")
_SIZE = re.compile(r"\d+gb")


def tokens(name: str) -> list[str]:
    """Words of a name without those that say nothing; form factor and memory last, so that their order is no matter."""
    text = unicodedata.normalize("NFKC", name).lower()
    for word, plain in CHINESE.items():
        text = text.replace(word, f" {plain} ")
    text = re.sub(r"(?<![a-z0-9])(\d+)\s*(?:g|gb|gib)\b", r"\1gb", text)
    text = re.sub(r"(?<![a-z])sxm\d", "sxm", text)
    found = [t for t in re.findall(r"[a-z0-9]+|[^\W_a-z0-9]+", text) if t not in NOISE]
    return sorted((t for t in found if not _MEMORY_KIND.fullmatch(t)), key=_place)


def _place(token: str) -> int:
    return 2 if _SIZE.fullmatch(token) else int(bool(_FORM.fullmatch(token)))


def key(name: str) -> str:
    """A name as it is compared: with or without spaces and hyphens it is the same."""
    return "".join(tokens(name))


def squeezed(name: str) -> str:
    """A name without anything between its words, none left out."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", name).lower())


@cache
def spellings(name: str, vram_gb: float) -> frozenset[str]:
    """The keys under which a card of the catalog is found: its own, and those with brand, form factor, memory or the
    remark in brackets left out, or with its memory named."""
    words = tokens(re.sub(r"\(.*?\)", " ", name))
    if not any(_SIZE.fullmatch(word) for word in words):
        words.append(f"{vram_gb:g}gb")
    choices = [("", word) if _may_be_left_out(word) else (word,) for word in words]
    kept = (tuple(filter(None, chosen)) for chosen in product(*choices))
    return frozenset({key(name), *("".join(words) for words in kept if any(not _may_be_left_out(w) for w in words))})


def _may_be_left_out(word: str) -> bool:
    return word in _BRAND or bool(_FORM.fullmatch(word) or _SIZE.fullmatch(word))


def begins(spelling: str, wanted: str) -> bool:
    """Whether a name was cut off between two words of it: `RTX 6000` of the RTX 6000 Ada, but not `RTX 40`."""
    rest = spelling[len(wanted) :]
    whole = not (wanted[-1:].isdigit() and rest[:1].isdigit())
    return spelling.startswith(wanted) and whole and any(c.isdigit() for c in wanted)
