"""Words of a trial, in English and Chinese."""

from __future__ import annotations

from specs.bilingual import Texts

_TEXTS: dict[str, tuple[str, str]] = {
    "made": (
        "wrote {file}: {steps} steps with {samples} samples of {project} (run {run})",
        "已写入 {file}：{steps} 步，{project} 的 {samples} 条样本（运行 {run}）",
    ),
    "real": (
        "  it holds real samples: give it to whom the data may be given",
        "  其中是真实样本：只能交给可以接触这些数据的人",
    ),
    "next": (
        "  next, on each machine: gatewright trial run {file} --name MACHINE",
        "  下一步，在每台机器上：gatewright trial run {file} --name MACHINE",
    ),
    "ran": (
        "{name}: {rate} tokens/s, {seconds} s a step, {steps} steps; wrote {file}",
        "{name}：{rate} 词元/秒，每步 {seconds} 秒，共 {steps} 步；已写入 {file}",
    ),
    "then": (
        "  then, where all results are: gatewright trial compare {file} OTHER.json",
        "  然后，在汇集结果处：gatewright trial compare {file} OTHER.json",
    ),
    "col.name": ("machine", "机器"),
    "col.device": ("device", "设备"),
    "col.seconds": ("s/step", "秒/步"),
    "col.rate": ("tokens/s", "词元/秒"),
    "col.slower": ("slower", "慢"),
    "col.peak": ("peak GiB", "峰值 GiB"),
    "col.share": ("of usable", "占可用"),
    "col.loss": ("loss off", "损失差"),
    "col.software": ("other software", "软件差异"),
    "read": (
        "slower: than the quickest; loss off and other software: against {first}, which was named first; the first "
        "step warms up and is left out",
        "慢：与最快者相比；损失差与软件差异：与首先列出的 {first} 相比；第一步用于预热，不计入",
    ),
}

text = Texts(_TEXTS)
