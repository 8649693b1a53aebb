"""Words on plots, in English and Chinese."""

from __future__ import annotations

from specs.base import Language
from specs.bilingual import Texts

_TEXTS: dict[str, tuple[str, str]] = {
    "lengths": ("Sample lengths", "样本长度"),
    "tokens": ("tokens per sample", "每个样本的词元数"),
    "samples": ("samples", "样本数"),
    "train": ("training", "训练"),
    "eval": ("held out", "留出"),
    "bucket": ("upper edge of a length bucket", "长度分桶的上界"),
    "fault_types": ("Samples per fault type", "各故障类型的样本数"),
    "device_models": ("Samples per device model", "各设备型号的样本数"),
    "other_devices": ("{count} other models", "其余 {count} 个型号"),
    "fates": ("Rows by source and fate", "各来源的行去向"),
    "rows": ("rows", "行数"),
    "other_sources": ("{count} other sources", "其余 {count} 个来源"),
    "kept": ("kept", "保留"),
    "merged": ("merged", "合并"),
    "quarantined": ("quarantined", "隔离"),
    "out_of_scope": ("out of scope", "范围外"),
    "others": ("{count} other types", "其余 {count} 类"),
    "no_type": ("(no fault type)", "（无故障类型）"),
    "loss": ("Training loss", "训练损失"),
    "step": ("optimizer step", "优化步"),
    "nats": ("loss (nats/token)", "损失（nats/词元）"),
    "each_step": ("each step", "逐步"),
    "smoothed": ("smoothed", "平滑"),
    "resumed": ("resumed here", "从此处恢复"),
    "memory": ("Memory over the run", "运行期间的内存"),
    "memory_axis": ("memory ({unit})", "内存（{unit}）"),
    "phases": ("Peak memory by phase", "各阶段的内存峰值"),
    "predicted": ("predicted", "预测"),
    "measured": ("measured", "实测"),
    "usable": ("usable", "可用"),
    "trials": ("Small trials: held-out loss less that of the base trial", "小规模试验：留出损失与基准试验之差"),
    "trials_training": (
        "Small trials: loss on training samples less that of the base trial",
        "小规模试验：训练样本上的损失与基准试验之差",
    ),
    "trials_axis": ("difference (nats/token)", "差值（nats/词元）"),
    "trials_band": ("band: one standard deviation among seeds", "色带：种子间一个标准差"),
    "rank-down": ("rank {value}", "秩 {value}"),
    "rank-up": ("rank {value}", "秩 {value}"),
    "lr-down": ("lr {value}", "学习率 {value}"),
    "lr-up": ("lr {value}", "学习率 {value}"),
    "length-down": ("length {value}", "长度 {value}"),
    "evaluation": ("Held-out loss, sample by sample", "逐样本的留出损失"),
    "base_loss": ("base model (nats/token)", "基座模型（nats/词元）"),
    "adapter_loss": ("adapter (nats/token)", "适配器（nats/词元）"),
    "better": ("below the line: the adapter is better", "线下方：适配器更好"),
    "by_type": ("Held-out loss by fault type", "各故障类型的留出损失"),
    "base": ("base model", "基座模型"),
    "adapter": ("adapter", "适配器"),
    "step_time": ("Seconds per optimizer step", "每个优化步的秒数"),
    "seconds": ("seconds", "秒"),
    "plans": ("Plans on {device}", "{device} 上的方案"),
    "share_of_usable": ("share of usable memory", "占可用内存的比例"),
    "wanted_band": ("80 to 90 %", "80–90 %"),
}

_OF_PHASES: dict[str, tuple[str, str]] = {
    "load": ("loading", "加载"),
    "probe": ("probe", "探测"),
    "train": ("whole step", "整步"),
    "forward": ("forward", "前向"),
    "loss": ("loss", "损失"),
    "recompute": ("recompute", "重算"),
    "backward": ("backward", "反向"),
    "optimizer": ("optimizer step", "优化器步"),
    "evaluate": ("evaluation", "评估"),
    "save": ("save", "保存"),
    "resume": ("resume", "恢复"),
}

_OF_RESIDENTS: dict[str, tuple[str, str]] = {
    "weights": ("weights", "权重"),
    "gradients": ("gradients", "梯度"),
    "optimizer_states": ("optimizer states", "优化器状态"),
    "activations": ("activations", "激活"),
    "temporary": ("temporary buffers", "临时缓冲"),
    "framework": ("framework", "框架"),
    "gathered": ("gathered weights", "聚集的权重"),
    "communication": ("communication buffers", "通信缓冲"),
    "kv_cache": ("key-value cache", "键值缓存"),
}

words = Texts(_TEXTS)
_PHASES = Texts(_OF_PHASES)
_RESIDENTS = Texts(_OF_RESIDENTS)


def phase(language: Language, name: str) -> str:
    """The name of a phase of a training step; unknown names stay as they are."""
    return _PHASES(language, name) if name in _PHASES else name.replace("_", " ")


def resident(language: Language, name: str) -> str:
    """What memory is held for; unknown names stay as they are."""
    return _RESIDENTS(language, name) if name in _RESIDENTS else name.replace("_", " ")
