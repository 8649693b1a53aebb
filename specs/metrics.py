"""The default metrics of the built-in stages: unit, criterion, and how each is recomputed.

`docs/metrics.md` is made from this table and tested against it.
"""

from __future__ import annotations

from specs.base import Strict
from specs.criteria import Criterion, Op


class MetricDefinition(Strict):
    """A default metric of a stage. Without `op` it is reported and not judged."""

    stage: str
    name: str
    unit: str
    recomputed: str
    title: dict[str, str]
    op: Op | None = None
    bound: float | None = None
    blocking: bool = True


def _define(stage: str, name: str, unit: str, rule: str, en: str, zh: str, recomputed: str) -> MetricDefinition:
    """`rule` is `block <op> <bound>`, `warn <op> <bound>`, or empty."""
    title = {"en": en, "zh": zh}
    if not rule:
        return MetricDefinition(stage=stage, name=name, unit=unit, recomputed=recomputed, title=title)
    kind, op, bound = rule.split()
    return MetricDefinition.model_validate(
        {
            "stage": stage,
            "name": name,
            "unit": unit,
            "recomputed": recomputed,
            "title": title,
            "op": op,
            "bound": float(bound),
            "blocking": kind == "block",
        }
    )


_D, _R, _S, _T, _E = "data", "dry_run", "stress_test", "train", "evaluate"

DEFINITIONS: tuple[MetricDefinition, ...] = (
    _define(
        _D,
        "rows_total",
        "rows",
        "",
        "rows found in the sources",
        "源文件行数",
        "counted in the raw files by independent readers",
    ),
    _define(
        _D,
        "rows_unaccounted",
        "rows",
        "block == 0",
        "rows without exactly one fate",
        "去向不明的行",
        "rows counted in the raw files against row_ledger.parquet, per file, both ways",
    ),
    _define(
        _D,
        "characters_unexplained",
        "characters",
        "block == 0",
        "characters lost in decoding",
        "解码丢失的字符",
        "each text file decoded again, against the counts in decoding.json; U+FFFD counts as lost",
    ),
    _define(
        _D,
        "samples_train",
        "samples",
        "block >= 50",
        "training samples",
        "训练样本数",
        "rows of samples.parquet with split = train",
    ),
    _define(
        _D,
        "samples_eval",
        "samples",
        "block >= 16",
        "held-out samples",
        "留出样本数",
        "rows of samples.parquet with split = eval",
    ),
    _define(
        _D,
        "samples_without_provenance",
        "samples",
        "block == 0",
        "samples without a source row",
        "无来源的样本",
        "sample_ids of row_ledger.parquet against samples.parquet, both ways",
    ),
    _define(
        _D,
        "exact_duplicates_left",
        "samples",
        "block == 0",
        "exact duplicates left",
        "残留的完全重复",
        "equal normalised texts within samples.parquet",
    ),
    _define(
        _D,
        "exact_duplicate_leakage",
        "samples",
        "block == 0",
        "exact duplicates across the split",
        "跨集合完全重复",
        "held-out samples whose normalised text is in train",
    ),
    _define(
        _D,
        "near_duplicate_leakage",
        "samples",
        "block == 0",
        "near duplicates across the split",
        "跨集合近似重复",
        "held-out samples with a training text at Jaccard >= 0.7, by exact shingle sets",
    ),
    _define(
        _D,
        "code_variants_lost",
        "rows",
        "block == 0",
        "records merged despite another code",
        "编码不同却被合并的记录",
        "merged rows of row_ledger.parquet whose raw codes, models or numbers differ from their target",
    ),
    _define(
        _D,
        "answer_tokens_cut",
        "tokens",
        "block == 0",
        "answer tokens cut",
        "被截断的答案词元",
        "answers of samples.parquet tokenised again and searched in the stored text",
    ),
    _define(
        _D,
        "samples_not_trainable",
        "samples",
        "block == 0",
        "samples without a trainable token or end token",
        "无可训练词元或结束符的样本",
        "prompt and text of samples.parquet tokenised again",
    ),
    _define(
        _D,
        "valid_format_share",
        "share",
        "block >= 1",
        "samples in the right format",
        "格式有效比例",
        "samples of samples.parquet with every required field of their kind",
    ),
    _define(
        _D,
        "quarantined_share",
        "share",
        "block <= 0.15",
        "rows in quarantine",
        "隔离比例",
        "fates in row_ledger.parquet",
    ),
    _define(
        _D,
        "smallest_fault_type",
        "samples",
        "warn >= 2",
        "samples of the smallest fault type",
        "最小故障类样本数",
        "training rows of samples.parquet grouped by fault_type",
    ),
    _define(
        _D,
        "paragraph_length_spread",
        "share",
        "warn <= 0.25",
        "spread of paragraph lengths (std/mean)",
        "段落长度离散度",
        "n_tokens of manual paragraphs in samples.parquet",
    ),
    _define(
        _D,
        "padding_share",
        "share",
        "warn <= 0.15",
        "padding inside length buckets",
        "分桶填充比例",
        "n_tokens and bucket of samples.parquet",
    ),
    _define(_D, "longest_sample", "tokens", "", "longest sample", "最长样本", "n_tokens of samples.parquet"),
    _define(
        _R,
        "steps_missing",
        "steps",
        "block == 0",
        "planned steps not taken",
        "缺少的步数",
        "batch_plan.parquet against metrics.jsonl",
    ),
    _define(
        _R,
        "nonfinite_steps",
        "steps",
        "block == 0",
        "steps with a loss or gradient norm that is not finite",
        "非有限的步数",
        "metrics.jsonl",
    ),
    _define(
        _R,
        "probe_loss_change",
        "nats/token",
        "block < 0",
        "loss change on a fixed probe batch",
        "固定探测批损失变化",
        "probe.json: after minus before",
    ),
    _define(
        _R,
        "loss_trend",
        "nats/token/step",
        "block < 0",
        "trend of the training loss",
        "训练损失趋势",
        "Theil-Sen slope over metrics.jsonl",
    ),
    _define(
        _R,
        "order_mismatches",
        "micro batches",
        "block == 0",
        "micro batches out of the planned order",
        "顺序不符的微批",
        "batch_plan.parquet against micro_batches.jsonl",
    ),
    _define(
        _R,
        "masked_end_tokens",
        "samples",
        "block == 0",
        "samples whose end token is not learnt",
        "结束符被屏蔽的样本",
        "fed.jsonl: labels of the last answer token",
    ),
    _define(
        _R,
        "resume_loss_difference",
        "nats/token",
        "block == 0",
        "loss difference after kill and resume",
        "中断恢复后的损失差",
        "metrics.jsonl against resumed/metrics.jsonl",
    ),
    _define(
        _R,
        "resume_weight_difference",
        "tensors",
        "block == 0",
        "adapter tensors that differ after resume",
        "恢复后不同的权重",
        "adapter against resumed adapter, byte by byte",
    ),
    _define(
        _R,
        "memory_growth",
        "share",
        "block <= 0.05",
        "growth of the memory held between steps",
        "步间占用内存的增长",
        "metrics.jsonl: median held_bytes of the last third against the middle third",
    ),
    _define(_R, "steps_taken", "steps", "", "optimizer steps taken", "已完成优化步数", "metrics.jsonl: rows"),
    _define(
        _R,
        "seconds_per_step",
        "s",
        "",
        "seconds per optimizer step, median",
        "每步秒数（中位数）",
        "metrics.jsonl: median of seconds",
    ),
    _define(_R, "peak_bytes", "bytes", "", "peak memory", "内存峰值", "metrics.jsonl: largest memory_bytes"),
    _define(
        _S,
        "worst_batches_unmeasured",
        "batches",
        "block == 0",
        "worst batches not measured",
        "未测的最坏批",
        "batch_plan.parquet (most padded tokens, longest sample) against measurement.json",
    ),
    _define(
        _S,
        "planned_samples_wrong",
        "samples",
        "block == 0",
        "samples planned not exactly once per epoch",
        "计划次数不符的样本",
        "batch_plan.parquet against samples.parquet",
    ),
    _define(_S, "peak_bytes", "bytes", "", "measured peak", "实测峰值", "measurement.json"),
    _define(_S, "predicted_peak_bytes", "bytes", "", "predicted peak", "预测峰值", "account.json"),
    _define(
        _S,
        "peak_ratio",
        "share",
        "block <= 1.1",
        "measured peak over predicted",
        "实测/预测",
        "measurement.json over account.json",
    ),
    _define(
        _S,
        "peak_ratio_low",
        "share",
        "warn >= 0.8",
        "measured peak over predicted, from below",
        "实测/预测下限",
        "measurement.json over account.json",
    ),
    _define(
        _S,
        "usable_share",
        "share",
        "block <= 0.9",
        "peak of usable memory",
        "占可用内存比例",
        "measurement.json: peak over usable_bytes",
    ),
    _define(
        _S,
        "evaluation_peak_ratio",
        "share",
        "block <= 1",
        "evaluation peak over training peak",
        "评估峰值/训练峰值",
        "measurement.json",
    ),
    _define(
        _S,
        "nonfinite_steps",
        "steps",
        "block == 0",
        "steps that are not finite",
        "非有限的步数",
        "metrics.jsonl",
    ),
    _define(
        _S,
        "resume_loss_difference",
        "nats/token",
        "block == 0",
        "loss difference after save and resume",
        "保存恢复后的损失差",
        "measurement.json",
    ),
    _define(
        _S,
        "seconds_per_step",
        "s",
        "",
        "seconds per optimizer step, worst batch",
        "每步秒数（最坏批）",
        "metrics.jsonl",
    ),
    _define(
        _S,
        "planned_hours",
        "h",
        "",
        "planned training time",
        "计划训练时长",
        "seconds per padded token of metrics.jsonl times batch_plan.parquet",
    ),
    _define(
        _T,
        "steps_missing",
        "steps",
        "block == 0",
        "planned steps not taken",
        "缺少的步数",
        "batch_plan.parquet of the stress test against metrics.jsonl",
    ),
    _define(
        _T,
        "nonfinite_steps",
        "steps",
        "block == 0",
        "steps that are not finite",
        "非有限的步数",
        "metrics.jsonl",
    ),
    _define(
        _T,
        "order_mismatches",
        "micro batches",
        "block == 0",
        "micro batches out of the planned order",
        "顺序不符的微批",
        "batch_plan.parquet of the stress test against micro_batches.jsonl",
    ),
    _define(
        _T,
        "samples_off_census",
        "samples",
        "block == 0",
        "samples not trained exactly as planned",
        "训练次数不符的样本",
        "micro_batches.jsonl against batch_plan.parquet, per epoch",
    ),
    _define(
        _T,
        "fingerprint_mismatches",
        "count",
        "block == 0",
        "settings that differ from the stress test",
        "与压力测试不同的设置",
        "settings.json of both stages",
    ),
    _define(
        _T,
        "settings_without_effect",
        "count",
        "block == 0",
        "settings asked for and not in effect",
        "未生效的设置",
        "settings.json: requested against effective",
    ),
    _define(
        _T,
        "adapter_change",
        "norm",
        "block > 0",
        "size of the learnt change",
        "适配器变化量",
        "Frobenius norm of B times A over adapter_model.safetensors; of trained minus base weights with method full",
    ),
    _define(
        _T,
        "loss_trend",
        "nats/token/step",
        "block < 0",
        "trend of the training loss",
        "训练损失趋势",
        "Theil-Sen slope over metrics.jsonl",
    ),
    _define(
        _T,
        "peak_over_stress",
        "share",
        "warn <= 1.05",
        "training peak over the stress test's",
        "训练峰值/压力测试峰值",
        "metrics.jsonl over measurement.json",
    ),
    _define(_T, "resumes", "count", "", "times the training was resumed", "恢复次数", "sessions.jsonl"),
    _define(_T, "training_hours", "h", "", "training time", "训练时长", "metrics.jsonl: sum of seconds"),
    _define(_T, "steps_taken", "steps", "", "optimizer steps taken", "已完成优化步数", "metrics.jsonl: rows"),
    _define(_T, "peak_bytes", "bytes", "", "peak memory", "内存峰值", "metrics.jsonl: largest memory_bytes"),
    _define(
        _E,
        "leaked_samples",
        "samples",
        "block == 0",
        "held-out samples that were trained on",
        "泄漏的留出样本",
        "eval_losses.parquet against the training batch plan",
    ),
    _define(
        _E,
        "eval_samples_missing",
        "samples",
        "block == 0",
        "held-out samples not evaluated",
        "未评估样本",
        "eval_losses.parquet against samples.parquet",
    ),
    _define(
        _E, "samples_evaluated", "samples", "", "held-out samples evaluated", "已评估样本数", "eval_losses.parquet: rows"
    ),
    _define(
        _E,
        "eval_loss_base",
        "nats/token",
        "",
        "held-out loss of the base model",
        "基座留出损失",
        "eval_losses.parquet, token-weighted",
    ),
    _define(
        _E,
        "eval_loss_adapter",
        "nats/token",
        "",
        "held-out loss of the adapter",
        "适配器留出损失",
        "eval_losses.parquet, token-weighted",
    ),
    _define(
        _E,
        "eval_loss_change",
        "nats/token",
        "block < 0",
        "held-out loss, adapter minus base",
        "留出损失变化",
        "eval_losses.parquet",
    ),
    _define(
        _E,
        "pairing_gain",
        "nats/token",
        "block > 0",
        "what the adapter learnt of which answer belongs to which question",
        "问答对应关系的增益",
        "eval_losses.parquet: (loss on mispaired answers minus loss on own answers), adapter minus base",
    ),
    _define(
        _E,
        "fault_type_coverage",
        "share",
        "block >= 0.5",
        "fault types answered right at least once",
        "故障类型覆盖率",
        "generations.jsonl against the references in samples.parquet",
    ),
    _define(
        _E,
        "ended_share",
        "share",
        "warn >= 0.5",
        "answers that stop by themselves",
        "自行结束的回答",
        "generations.jsonl",
    ),
)

STAGES: tuple[str, ...] = ("data", "dry_run", "stress_test", "train", "evaluate")


def definitions(stage: str) -> list[MetricDefinition]:
    """The metrics of one stage, in the order in which they are reported."""
    return [d for d in DEFINITIONS if d.stage == stage]


def default_criteria(stage: str) -> list[Criterion]:
    """The criteria a stage has when the spec says nothing."""
    return [
        Criterion(metric=d.name, op=d.op, bound=d.bound, blocking=d.blocking)
        for d in definitions(stage)
        if d.op is not None and d.bound is not None
    ]
