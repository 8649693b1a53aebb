"""What is measured alike wherever steps are trained: in the dry run, the stress test and the training itself.

Each is what a table's `_define` takes: name, unit, rule, title in English and Chinese, how it is recomputed.
"""

Row = tuple[str, str, str, str, str, str]

QUESTIONS = "samples with a question"
FAULT_TYPES = "samples with a fault type, or a source that maps or names them"
"""What metrics of evaluation and of data need to apply."""

NONFINITE_STEPS: Row = (
    "nonfinite_steps",
    "steps",
    "block == 0",
    "steps with a loss or gradient norm that is not finite",
    "损失或梯度范数非有限的步数",
    "metrics.jsonl",
)
LOSS_TREND: Row = (
    "loss_trend",
    "nats/token/step",
    "block < 0",
    "trend of the training loss",
    "训练损失趋势",
    "Theil-Sen slope over metrics.jsonl",
)
STEPS_TAKEN: Row = (
    "steps_taken",
    "steps",
    "",
    "optimizer steps taken",
    "已完成优化步数",
    "metrics.jsonl: rows",
)
PEAK_BYTES: Row = (
    "peak_bytes",
    "bytes",
    "",
    "peak memory",
    "内存峰值",
    "metrics.jsonl: largest memory_bytes",
)


def steps_missing(plan: str) -> Row:
    """Of a plan that stands there."""
    return (
        "steps_missing",
        "steps",
        "block == 0",
        "planned steps not taken",
        "缺少的步数",
        f"{plan} against metrics.jsonl",
    )


def order_mismatches(plan: str) -> Row:
    """Against a plan that stands there."""
    return (
        "order_mismatches",
        "micro batches",
        "block == 0",
        "micro batches out of the planned order",
        "顺序不符的微批",
        f"{plan} against micro_batches.jsonl",
    )


def ended_share(answers: str) -> tuple[str, str, str, str, str, str, str]:
    """Of the answers of a file."""
    title = ("answers that stop by themselves", "自行结束的回答")
    return ("ended_share", "share", "warn >= 0.5", *title, answers, QUESTIONS)
