"""The pieces of the built-in stages, each with the metrics that it answers for: which piece failed is one look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specs.base import Language
from specs.proposals import SubTask


@dataclass(frozen=True)
class Piece:
    """A sub-task of a stage; `metrics` are those that show whether it worked."""

    name: str
    title: dict[Language, str]
    metrics: tuple[str, ...]


def _piece(name: str, en: str, zh: str, *metrics: str) -> Piece:
    return Piece(name, {"en": en, "zh": zh}, metrics)


PIECES: dict[str, tuple[Piece, ...]] = {
    "data": (
        _piece(
            "cleaning",
            "read and clean each source",
            "读取并清洗各数据源",
            "rows_unaccounted",
            "characters_unexplained",
            "quarantined_share",
            "samples_without_provenance",
            "valid_format_share",
        ),
        _piece("duplicates", "find duplicates", "去重", "exact_duplicates_left", "code_variants_lost"),
        _piece("paragraphs", "cut manuals into paragraphs", "切分手册段落", "paragraph_length_spread"),
        _piece(
            "split",
            "split into training and held-out samples",
            "划分训练与留出样本",
            "samples_train",
            "samples_eval",
            "smallest_fault_type",
            "exact_duplicate_leakage",
            "near_duplicate_leakage",
        ),
        _piece(
            "lengths",
            "tokenise and form length buckets",
            "分词并按长度分桶",
            "answer_tokens_cut",
            "samples_not_trainable",
            "padding_share",
        ),
    ),
    "dry_run": (
        _piece(
            "learning",
            "train a few steps",
            "试训若干步",
            "steps_missing",
            "nonfinite_steps",
            "probe_loss_change",
            "loss_trend",
            "loss_trend_certainty",
            "ended_share",
        ),
        _piece(
            "feeding",
            "feed what was planned",
            "按计划喂入样本",
            "order_mismatches",
            "masked_end_tokens",
            "regrouping_difference",
            "masked_token_effect",
            "packed_samples_touched",
            "packed_loss_difference",
        ),
        _piece("resuming", "kill and resume", "中断并恢复", "resume_loss_difference", "resume_weight_difference"),
        _piece("memory", "hold memory flat", "内存保持平稳", "memory_growth"),
        _piece("trials", "try settings beside the proposed ones", "尝试建议之外的设置", "trials_faulty"),
    ),
    "stress_test": (
        _piece("plan", "plan every batch", "规划全部批次", "planned_samples_wrong"),
        _piece(
            "worst_batches",
            "run the worst batches",
            "运行最坏批次",
            "worst_batches_unmeasured",
            "peak_ratio",
            "peak_ratio_low",
            "usable_share",
            "evaluation_peak_ratio",
            "memory_growth",
            "nonfinite_steps",
        ),
        _piece("ladder", "stay with what was approved", "不偏离已批准的设置", "settings_unexplained", "out_of_memory"),
        _piece("resuming", "save and resume", "保存并恢复", "resume_loss_difference"),
    ),
    "train": (
        _piece(
            "steps",
            "take every planned step",
            "完成全部计划步",
            "steps_missing",
            "nonfinite_steps",
            "order_mismatches",
            "samples_off_census",
            "resumes_unproven",
        ),
        _piece(
            "settings",
            "run as measured",
            "按实测配置运行",
            "fingerprint_mismatches",
            "settings_without_effect",
            "peak_over_stress",
        ),
        _piece("learning", "learn", "学习", "adapter_change", "loss_trend"),
    ),
    "evaluate": (
        _piece(
            "held_out",
            "keep the held-out samples apart",
            "保持留出样本独立",
            "leaked_samples",
            "eval_samples_missing",
            "evaluated_other_weights",
        ),
        _piece("losses", "compare losses", "比较损失", "eval_loss_change", "pairing_gain", "pairing_certainty"),
        _piece(
            "forgetting",
            "keep what the base model knew",
            "保持基座模型原有能力",
            "general_text_wrong",
            "general_text_loss_change",
        ),
        _piece("answers", "generate answers", "生成回答", "fault_type_coverage", "ended_share"),
    ),
}


def subtasks(stage: str, inputs: Sequence[str], metrics: Iterable[str]) -> list[SubTask]:
    """The sub-tasks of a stage with the metrics that are judged; what belongs to no piece is `other`."""
    judged = list(dict.fromkeys(metrics))
    pieces = PIECES.get(stage, ())
    found = []
    for number, piece in enumerate(pieces):
        own = [m for m in judged if m in piece.metrics]
        if own:
            found.append(SubTask(name=piece.name, inputs=list(inputs) if number == 0 else [], metrics=own))
    placed = {m for s in found for m in s.metrics}
    rest = [m for m in judged if m not in placed]
    return [*found, SubTask(name="other", metrics=rest)] if rest else found


def title(stage: str, name: str, language: Language) -> str:
    """What a sub-task is called."""
    for piece in PIECES.get(stage, ()):
        if piece.name == name:
            return piece.title[language]
    return {"en": "other criteria", "zh": "其他准则"}[language]
