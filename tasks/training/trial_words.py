"""Words of small trials, in English and Chinese: settings, on what they were measured, and why one has no number."""

from __future__ import annotations

from collections.abc import Sequence

from specs.base import Language
from specs.bilingual import Texts
from specs.trials import Confirmation, MeasuredOn, Outcome, TrialsReport

_TEXTS: dict[str, tuple[str, str]] = {
    "rank": ("rank {before} -> {tried}", "秩 {before} -> {tried}"),
    "lr": ("lr {before} -> {tried}", "学习率 {before} -> {tried}"),
    "length": ("max_length {before} -> {tried}", "最大长度 {before} -> {tried}"),
    "rank-down": ("rank below {before}", "秩低于 {before}"),
    "rank-up": ("rank above {before}", "秩高于 {before}"),
    "lr-down": ("lr below {before}", "学习率低于 {before}"),
    "lr-up": ("lr above {before}", "学习率高于 {before}"),
    "length-down": ("max_length below {before}", "最大长度低于 {before}"),
    "held-out": ("held-out samples", "留出样本"),
    "training": ("training samples", "训练样本"),
    "cause.no_lower_rank": ("there is no rank below 1", "秩不能小于 1"),
    "cause.rank_limit": ("rank {rank} is above the limit of {limit}", "秩 {rank} 超过上限 {limit}"),
    "cause.lr_limit": ("lr {lr} is not below 1", "学习率 {lr} 不低于 1"),
    "cause.packing": (
        "with packing the limit is the room of a row, not the length of a sample",
        "使用打包时，上限是一行的容量，而不是样本的长度",
    ),
    "cause.one_length": (
        "the samples are of one length: a shorter limit leaves none out",
        "样本长度相同：更短的上限排除不了任何样本",
    ),
    "cause.few_left": (
        "{left} samples would be left, fewer than the {batch} that a step takes",
        "只会剩下 {left} 条样本，少于每步所需的 {batch} 条",
    ),
    "cause.base_diverged": (
        "no comparison: the base trial diverged with seed {seed}",
        "无从比较：种子 {seed} 的基准试验发散",
    ),
    "cause.diverged": ("{count} of {trainings} trainings diverged", "{trainings} 次训练中有 {count} 次发散"),
    "cause.base_died": (
        "no comparison: the worker of the base trial died with seed {seed}: {message}",
        "无从比较：种子 {seed} 的基准试验的工作进程中断：{message}",
    ),
    "cause.died": ("its worker died with seed {seed}: {message}", "种子 {seed} 的试验的工作进程中断：{message}"),
    "cause.no_confirm_steps": ("confirm_steps is 0", "confirm_steps 为 0"),
    "cause.failed": ("{message}", "出错：{message}"),
}

_text = Texts(_TEXTS)


def setting(language: Language, of: Outcome) -> str:
    """The setting with its values; only its direction where no value beside that of the base trial was tried."""
    values = {"before": f"{of.before:g}", "tried": f"{of.tried:g}"}
    return _text(language, of.dimension if of.dimension and setting_tried(of) else of.name, **values)


def setting_tried(of: Outcome) -> bool:
    """Whether trainings were made with this setting; they have no result where the base trial diverged or died."""
    if of.trend != "not tried":
        return True
    return (
        of.reason.startswith("the base trial diverged")
        if of.cause is None
        else of.cause.key in ("base_diverged", "base_died")
    )


def changes(language: Language, report: TrialsReport, names: Sequence[str]) -> str:
    """The settings of several trials."""
    known = {o.name: setting(language, o) for o in report.outcomes}
    return ("、" if language == "zh" else ", ").join(known.get(name, name) for name in names)


def measured_on(language: Language, on: MeasuredOn) -> str:
    """What kind of samples a loss was measured on."""
    return _text(language, on)


def why(language: Language, of: Outcome | Confirmation) -> str:
    """Why there is no number; records made before causes had keys hold an English sentence."""
    if of.cause is None:
        return of.reason
    return _text(language, f"cause.{of.cause.key}", **of.cause.values)
