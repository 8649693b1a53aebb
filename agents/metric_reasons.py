"""Why a metric has no value, in Chinese. Verifiers say it in English, and evidence keeps their words."""

from __future__ import annotations

from specs.base import Language
from specs.phrases import Phrases

_REASONS = Phrases(
    {
        # what the project has nothing of
        "no trials were asked for": "没有要求做小规模试验",
        "this run has no parent": "本次运行没有父训练",
        "general_text is not set in project.yaml": "project.yaml 没有设置 general_text",
        "no sample has a question": "没有样本带问题",
        "no sample has a fault type": "没有样本带故障类型",
        "no sample has a fault type, and no source maps or names them": "没有样本带故障类型，也没有数据源写明",
        "no sample has a fault type, and no source maps or names them: {counts}": (
            "没有样本带故障类型，也没有数据源写明：{counts}"
        ),
        "no held-out sample has a fault type: {counts}": "留出样本都不带故障类型：{counts}",
        "fewer than two manual paragraphs": "手册段落不足两段",
        "no samples share a row": "没有样本合并成行",
        "no question with an answer is held out": "留出样本中没有问答",
        "no plain text is held out": "留出样本中没有纯文本",
        "there is no sample": "没有样本",
        "no row is in scope": "没有范围内的行",
        "one sample cannot be cut into two micro batches": "一个样本不能分成两个微批",
        "the checked step holds no padding": "所检查的步没有填充",
        "the heaviest step ran less than three times in a row": "最重的一步连续运行不足三次",
        # what was not measured
        "a loss is not finite": "有损失不是有限值",
        "a loss of checks.json is not finite": "checks.json 中有损失不是有限值",
        "a loss or gradient of checks.json is zero or not finite": "checks.json 中有损失或梯度为零或不是有限值",
        "the resumed run does not cover the steps after {step}": "恢复后的运行没有覆盖第 {step} 步之后的各步",
        "{what} is missing or empty": "{what} 缺失或为空",
        # how memory is counted
        "the driver's figure for the process (NVML), at the end of each step and phase": (
            "驱动（NVML）在每步和每个阶段结束时给出的进程用量"
        ),
        "resident and swapped bytes of the process by the kernel, at the end of each step and phase": (
            "内核在每步和每个阶段结束时给出的进程常驻与换出字节"
        ),
    }
)


def in_words(language: Language, reason: str) -> str:
    """A reason in the language of the project; one that is not known stays as the verifier said it."""
    return _REASONS(language, reason)


def said_after(language: Language, what: str, reason: str) -> str:
    """`not measured: why`, with the colon of the language."""
    return f"{what}{'：' if language == 'zh' else ': '}{in_words(language, reason)}"
