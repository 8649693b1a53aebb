"""The purchase sheet: what to ask a vendor for, and what to have demonstrated, as Markdown and HTML. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from html import escape
from typing import NamedTuple

from specs.base import Language
from specs.bilingual import Texts
from specs.hardware import Gpu, find_gpu
from tasks.advising.cards import Row
from tasks.advising.costs import kilowatts
from tasks.memory.account import Account, Fits
from tasks.planning.machine import Machine, machine_named
from tasks.planning.plans import Plan
from tasks.planning.texts import placed, short

GB = 1e9
ROOM = 1.25
"""Host memory and disk asked for, for a byte that the account names: the system and the data need their part."""


class Section(NamedTuple):
    """A table of facts, or (labels empty) a list of demands."""

    title: str
    rows: list[tuple[str, str]]


_T: dict[str, tuple[str, str]] = {
    "title": ("Purchase sheet: {cards} x {gpu} for {project}", "采购清单：{project} 用 {cards} x {gpu}"),
    "intro": (
        "Figures are predicted by Gatewright's memory account and plan search; the demonstration at the end decides.",
        "数字由 Gatewright 的内存账目与方案搜索预测；以末尾的现场演示为准。",
    ),
    "purpose": ("Purpose", "用途"),
    "project": ("project", "项目"),
    "model": ("model", "模型"),
    "training": ("training", "训练"),
    "placement": ("where", "部署"),
    "time": ("predicted time of a run", "单次预测用时"),
    "hours": ("{low} to {high} hours", "{low} 到 {high} 小时"),
    "unknown": ("not known", "未知"),
    "capacity": ("Capacity", "容量"),
    "needed": ("needed on a card", "每卡所需"),
    "usable": ("usable on a card", "每卡可用"),
    "share": ("share", "占比"),
    "cards": ("cards", "卡数"),
    "rates": ("Compute and bandwidth", "算力与带宽"),
    "memory_bandwidth": ("memory bandwidth, at least", "显存带宽，至少"),
    "tflops": ("dense bf16 rate, at least", "bf16 稠密算力，至少"),
    "capability": ("compute capability", "计算能力"),
    "links": ("Interconnect", "互联"),
    "between": ("between cards", "卡间"),
    "one_card": ("one card: nothing is exchanged", "单卡：无需交换"),
    "bus": ("to the host", "到主机"),
    "host": ("Host memory and disk", "主机内存与磁盘"),
    "host_memory": ("host memory for the training, beside the system, at least", "训练所需主机内存（系统之外），至少"),
    "disk": ("free disk for checkpoints and result, at least", "检查点与结果的空闲磁盘，至少"),
    "disk_rate": ("disk, written in sequence", "磁盘顺序写"),
    "software": ("Software", "软件"),
    "driver": ("driver", "驱动"),
    "driver_value": ("one that the CUDA build of torch {torch} supports", "支持 torch {torch} 的 CUDA 构建"),
    "power": ("Power and cooling", "供电与散热"),
    "tdp": ("power limit of a card", "单卡功耗上限"),
    "machine": ("whole machine under load (TDP x 1.5)", "整机满载（TDP x 1.5）"),
    "heat": ("heat to carry away", "需带走的热量"),
    "laptop": (
        "a laptop: ask for the power limit that this model sets, and for the rate after 30 minutes",
        "笔记本：请询问该机型设定的功耗上限，以及 30 分钟后的速率",
    ),
    "demonstrate": ("To be demonstrated before acceptance", "验收前须演示"),
    "demo.trial": (
        "`gatewright trial run trial.json` on the very machine; `gatewright trial compare` sets it beside the others",
        "在该机器上运行 `gatewright trial run trial.json`；用 `gatewright trial compare` 与其他机器对比",
    ),
    "demo.memory": (
        "`nvidia-smi` with an idle card: total memory at least {total}, nothing in use, no other tenant",
        "空闲时的 `nvidia-smi`：总显存至少 {total}，无占用，无其他租户",
    ),
    "demo.sustained": (
        "30 minutes of training: seconds per step of the last 5 minutes within 5 % of the first 5",
        "训练 30 分钟：最后 5 分钟的步时与最初 5 分钟相差不超过 5 %",
    ),
    "demo.resume": (
        "a kill in the middle and a resume that reaches the same losses (the stress test does it)",
        "中途强制结束后恢复，损失须一致（压力测试会验证）",
    ),
    "demo.topology": (
        "`nvidia-smi topo -m` and the measured bandwidth between every pair of cards",
        "`nvidia-smi topo -m` 以及每对卡之间的实测带宽",
    ),
    "demo.errors": (
        "no ECC errors and no Xid lines in the kernel log after it",
        "结束后无 ECC 错误，内核日志无 Xid",
    ),
    "demo.versions": ("the versions above, installed and shown", "上列版本已安装并展示"),
    "source": ("Sources", "来源"),
    "catalog": ("catalog entry (confidence: {confidence})", "目录条目（可信度：{confidence}）"),
    "confidence.high": ("high", "高"),
    "confidence.medium": ("medium", "中"),
    "confidence.low": ("low", "低"),
}

_t = Texts(_T)


def sections(project: str, model: str, row: Row, versions: Mapping[str, str], language: Language) -> list[Section]:
    """The sheet of one row of the survey. Raises `ValueError` for one without a plan."""
    if row.plan is None or row.plan.account is None or row.plan.account.fits is None:
        raise ValueError("a purchase sheet needs a plan that fits")
    t, card, machine = partial(_t, language), find_gpu(row.gpu), machine_named(row.gpu, row.cards)
    hours = t("hours", low=_short(row.hours.low), high=_short(row.hours.high)) if row.hours else t("unknown")
    purpose = [
        (t("project"), project),
        (t("model"), model),
        (t("training"), short(row.plan, language)),
        (t("placement"), placed(row.plan, language)),
        (t("time"), hours),
    ]
    return [
        Section(t("purpose"), purpose),
        *_hardware(row, row.plan, row.plan.account.fits, card, machine, language),
        _host(row.plan.account, machine, language),
        _software(versions, language),
        _power(row, card, language),
        Section(t("demonstrate"), [("", line) for line in _demands(row, language)]),
        Section(t("source"), [(t("catalog", confidence=_confidence(card, language)), card.source)]),
    ]


def _short(hours: float) -> str:
    """Three digits, whole ones where there are more."""
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"


def _hardware(row: Row, plan: Plan, fits: Fits, card: Gpu, machine: Machine, language: Language) -> list[Section]:
    """Capacity, rates and interconnect."""
    t, unknown = partial(_t, language), _t(language, "unknown")
    link = f"{card.interconnect or unknown}, {_rate(machine.link_gb_s, 'GB/s', language)}"
    capacity = [
        (t("cards"), f"{row.cards} x {card.name} ({card.vram_gb:g} GB)"),
        (t("needed"), f"{fits.needed_bytes / 2**30:.1f} GiB"),
        (t("usable"), f"{fits.usable_bytes / 2**30:.1f} GiB"),
        (t("share"), f"{plan.utilisation:.0%}"),
    ]
    rates = [
        (t("memory_bandwidth"), _rate(card.memory_bandwidth_gb_s, "GB/s", language)),
        (t("tflops"), _rate(card.bf16_dense_tflops, "TFLOPS", language)),
        (t("capability"), card.compute_capability or unknown),
    ]
    links = [(t("between"), t("one_card") if row.cards == 1 else link), (t("bus"), card.host_bus or unknown)]
    return [Section(t("capacity"), capacity), Section(t("rates"), rates), Section(t("links"), links)]


def _rate(value: float | None, unit: str, language: Language) -> str:
    return _t(language, "unknown") if value is None else f"{value:g} {unit}"


def _host(account: Account, machine: Machine, language: Language) -> Section:
    """Host memory and disk, with room for the system and the data."""
    t = partial(_t, language)
    rows = [
        (t("host_memory"), f"{math.ceil(account.host_peak_bytes * ROOM / GB)} GB"),
        (t("disk"), f"{math.ceil(account.disk_bytes * ROOM / GB)} GB"),
        (t("disk_rate"), f"{machine.disk_gb_s:g} GB/s"),
    ]
    return Section(t("host"), rows)


def _software(versions: Mapping[str, str], language: Language) -> Section:
    t = partial(_t, language)
    driver = (t("driver"), t("driver_value", torch=versions.get("torch") or "?"))
    return Section(t("software"), [driver, *((name, version) for name, version in versions.items() if version)])


def _power(row: Row, card: Gpu, language: Language) -> Section:
    """What a machine draws and has to get rid of; a laptop is asked for the limit that it sets."""
    t, power = partial(_t, language), kilowatts(card.tdp_w, row.cards)
    drawn = t("unknown") if power is None else f"{power:.2f} kW"
    rows = [(t("tdp"), _rate(card.tdp_w, "W", language)), (t("machine"), drawn), (t("heat"), drawn)]
    return Section(t("power"), [*rows, *([(t("laptop"), "")] if row.laptop else [])])


def _confidence(card: Gpu, language: Language) -> str:
    """As the catalog rates its own entry."""
    key = f"confidence.{card.confidence}"
    return _t(language, key) if key in _t else card.confidence


def _demands(row: Row, language: Language) -> list[str]:
    keys = ["demo.trial", "demo.memory", "demo.sustained", "demo.resume"]
    keys += ["demo.topology"] if row.cards > 1 else []
    total = f"{row.usable_bytes / 2**30:.1f} GiB"
    return [_t(language, key, total=total) for key in (*keys, "demo.errors", "demo.versions")]


def markdown(project: str, row: Row, found: list[Section], language: Language) -> str:
    """The sheet as Markdown."""
    lines = [f"# {_plain(_title(project, row, language))}", "", _t(language, "intro"), ""]
    for section in found:
        lines += [f"## {section.title}", ""]
        if _is_list(section):
            lines += [f"- [ ] {value}" for _, value in section.rows]
        else:
            lines += ["| | |", "| --- | --- |"]
            lines += [f"| {_plain(label)} | {_plain(value)} |" for label, value in section.rows]
        lines.append("")
    return "\n".join(lines)


def html(project: str, row: Row, found: list[Section], language: Language) -> str:
    """The sheet as one HTML file that needs nothing else, and prints on two pages."""
    title = escape(_title(project, row, language))
    parts = [f"<h1>{title}</h1>", f"<p>{escape(_t(language, 'intro'))}</p>"]
    for section in found:
        parts.append(f"<section><h2>{escape(section.title)}</h2>")
        if _is_list(section):
            boxes = "".join(f'<li><span class="box"></span><span>{_code(v)}</span></li>' for _, v in section.rows)
            parts.append(f"<ul>{boxes}</ul>")
        else:
            cells = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in section.rows)
            parts.append(f"<table>{cells}</table>")
        parts.append("</section>")
    lang = "zh-CN" if language == "zh" else "en"
    return _PAGE.format(lang=lang, title=title, body="\n".join(parts))


def _title(project: str, row: Row, language: Language) -> str:
    return _t(language, "title", cards=row.cards, gpu=row.gpu, project=project)


def _is_list(section: Section) -> bool:
    return all(not label for label, _ in section.rows)


def _plain(value: str) -> str:
    """A cell: what would end it or start markup is escaped."""
    return " ".join(value.replace("|", "\\|").replace("<", "&lt;").split())


def _code(value: str) -> str:
    """Escaped, with commands between back-ticks set as code."""
    parts = escape(value).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


_PAGE = """<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, "Noto Sans CJK SC", "Microsoft YaHei", sans-serif; max-width: 52rem;
  margin: 2rem auto; padding: 0 1rem; color: #1d2430; background: #fff; }}
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.05rem; margin: 1.4rem 0 .4rem; border-bottom: 1px solid #ccd3dd; }}
section {{ break-inside: avoid; }}
table {{ border-collapse: collapse; width: 100%; }}
th {{ text-align: left; font-weight: 400; color: #5a6575; width: 18rem; vertical-align: top;
  padding: .15rem 1rem .15rem 0; }}
td {{ padding: .15rem 0; vertical-align: top; overflow-wrap: anywhere; }}
ul {{ list-style: none; padding: 0; }}
li {{ display: flex; gap: .6rem; margin: .3rem 0; }}
.box {{ flex: none; width: .9rem; height: .9rem; border: 1px solid #5a6575; margin-top: .3rem; }}
code {{ background: #f0f2f5; padding: 0 .25rem; border-radius: 3px; }}
@media (max-width: 40rem) {{ th {{ width: 10rem; }} }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
