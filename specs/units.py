"""Values as people read them: 1.83 GiB, 12.3 %, 4 min, 1,204 samples. In English and Chinese."""

from __future__ import annotations

from specs.base import Language

_COUNTED_ZH = {
    "rows": "行",
    "samples": "个样本",
    "steps": "步",
    "tokens": "词元",
    "micro batches": "个微批",
    "batches": "个批",
    "tensors": "个张量",
    "characters": "个字符",
    "settings": "项设置",
    "trials": "项试验",
    "configurations": "个配置",
    "count": "",
    "norm": "",
    "nats/token": "nats/词元",
    "nats/token/step": "nats/词元/步",
    "tokens/s": "词元/秒",
    "standard errors": "个标准误",
}
_BYTES = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def human(value: float | None, unit: str, language: Language = "en") -> str:
    """A value with its unit; null is said in words."""
    if value is None:
        return "未测得" if language == "zh" else "not measured"
    if unit == "bytes":
        return _bytes(value)
    if unit == "share":
        return f"{significant(value * 100)} %"
    if unit in ("s", "h"):
        return duration(value * (3600 if unit == "h" else 1))
    shown = f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e15 else significant(value)
    name = unit if language == "en" else _COUNTED_ZH.get(unit, unit)
    if unit == "count" or not name:
        return shown
    if language == "en" and value == 1 and unit in _COUNTED_ZH and unit.endswith("s"):
        name = name[:-1] if unit not in ("batches", "micro batches") else name[:-2]
    return f"{shown} {name}"


def with_interval(value: float, low: float | None, high: float | None, unit: str, language: Language = "en") -> str:
    """A value with the interval that it may lie in, where there is one."""
    shown = human(value, unit, language)
    if low is None or high is None:
        return shown
    between = f"{human(low, unit, language)} – {human(high, unit, language)}"
    return f"{shown}（{between}）" if language == "zh" else f"{shown} ({between})"


def duration(seconds: float) -> str:
    """Seconds under two minutes, minutes under two hours, else hours."""
    if abs(seconds) < 120:
        return f"{significant(seconds)} s"
    if abs(seconds) < 7200:
        return f"{significant(seconds / 60)} min"
    return f"{significant(seconds / 3600)} h"


def significant(value: float, digits: int = 3) -> str:
    """About `digits` significant digits; large whole parts are kept whole, with thousands separators."""
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{digits}g}"
    if "e" in text:
        return f"{value:,.0f}"
    return text


def _bytes(value: float) -> str:
    for name, size in _BYTES:
        if abs(value) >= size:
            return f"{value / size:,.2f} {name}"
    return f"{value:,.0f} B"
