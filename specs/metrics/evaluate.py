"""The metrics of the evaluation."""

from specs.metrics.definition import definer
from specs.metrics.of_training import FAULT_TYPES, QUESTIONS, ended_share

_define = definer("evaluate")

DEFINITIONS = (
    _define(
        "leaked_samples",
        "samples",
        "block == 0",
        "held-out samples that were trained on",
        "泄漏的留出样本",
        "ids, duplicate components and texts of samples.parquet, against batch_plan.parquet of the stress test and "
        "micro_batches.jsonl of train",
    ),
    _define(
        "eval_samples_missing",
        "samples",
        "block == 0",
        "held-out samples not evaluated",
        "未评估样本",
        "eval_losses.parquet against samples.parquet, both ways; a loss that is not finite counts as missing",
    ),
    _define(
        "evaluated_other_weights",
        "count",
        "block == 0",
        "weights evaluated that are not the trained ones or the base model",
        "被评估的权重与训练结果或基座不符",
        "digests in evaluated.json against the weights of train, digested again, and base model and parent of the run",
    ),
    _define(
        "samples_evaluated",
        "samples",
        "",
        "held-out samples evaluated",
        "已评估样本数",
        "eval_losses.parquet: rows",
    ),
    _define(
        "eval_loss_base",
        "nats/token",
        "",
        "held-out loss of the base model",
        "基座留出损失",
        "eval_losses.parquet, token-weighted",
    ),
    _define(
        "eval_loss_adapter",
        "nats/token",
        "",
        "held-out loss of the adapter",
        "适配器留出损失",
        "eval_losses.parquet, token-weighted",
    ),
    _define(
        "eval_loss_change",
        "nats/token",
        "block < 0",
        "held-out loss, adapter minus base",
        "留出损失变化",
        "eval_losses.parquet",
    ),
    _define(
        "parent_loss_change",
        "nats/token",
        "",
        "held-out loss, adapter minus the parent it went on from",
        "留出损失，适配器减父训练",
        "eval_losses.parquet, token-weighted; null without a parent",
    ),
    _define(
        "instruction_loss_change",
        "nats/token",
        "",
        "held-out loss of questions with answers, adapter minus base",
        "问答留出损失变化（适配器减基座）",
        "eval_losses.parquet: samples with a prompt in samples.parquet, token-weighted",
    ),
    _define(
        "plain_text_loss_change",
        "nats/token",
        "",
        "held-out loss of plain text, adapter minus base",
        "纯文本留出损失变化（适配器减基座）",
        "eval_losses.parquet: samples without a prompt in samples.parquet, token-weighted",
    ),
    _define(
        "general_text_wrong",
        "count",
        "block == 0",
        "passages of general text that are not as asked",
        "不符合要求的通用文本段落",
        "general_losses.parquet against the raw files and the training samples; 0 without general_text",
    ),
    _define(
        "general_text_loss_base",
        "nats/token",
        "",
        "loss of the base model on general text",
        "基座模型在通用文本上的损失",
        "general_losses.parquet, token-weighted; null without general_text",
    ),
    _define(
        "general_text_loss_change",
        "nats/token",
        "",
        "loss on general text, adapter minus base: what was forgotten",
        "通用文本损失变化（适配器减基座）：遗忘",
        "general_losses.parquet, token-weighted; general_text.at_most in project.yaml makes it a blocking criterion",
    ),
    _define(
        "pairing_gain",
        "nats/token",
        "block > 0",
        "what the adapter learnt of which answer belongs to which question",
        "问答对应关系的增益",
        "eval_losses.parquet: loss of each answer after another fault type's question minus after its own, "
        "adapter minus base, token-weighted",
        QUESTIONS,
    ),
    _define(
        "pairing_certainty",
        "standard errors",
        "block >= 3",
        "how certain the pairing gain is",
        "问答对应增益的置信度",
        "eval_losses.parquet: mean pairing gain over fault types, over its standard error",
        QUESTIONS,
    ),
    _define(
        "fault_type_coverage",
        "share",
        "block >= 0.5",
        "fault types answered right at least once",
        "故障类型覆盖率",
        "generations.jsonl against answers of samples.parquet: fault types with an answer that has 0.4 of the weighted "
        "content of its reference (words, codes, numbers, Chinese bigrams; rarer over fault types weighs more) and 0.2 "
        "more than of other types' references, over all held-out fault types (at most the answers asked for)",
        FAULT_TYPES,
    ),
    _define(
        "fault_type_coverage_base",
        "share",
        "",
        "fault types that the base model answers right",
        "基座模型的故障类型覆盖率",
        "generations.jsonl: the same of the base model's answers",
    ),
    _define(*ended_share("generations.jsonl")),
)
