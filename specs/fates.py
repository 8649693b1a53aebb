"""Where a row of raw material can end, and every reason for which it is not kept, in words."""

from __future__ import annotations

from specs.base import Language

FATES: dict[str, dict[Language, str]] = {
    "kept": {"en": "became one sample or several", "zh": "成为一个或多个样本"},
    "merged": {"en": "says what another row says, which stays", "zh": "与保留的另一行内容相同"},
    "quarantined": {
        "en": "cannot be trusted; its text as it was read lies in `quarantine.parquet`",
        "zh": "不可信；原文保存在 `quarantine.parquet`",
    },
    "out_of_scope": {"en": "is nothing to train on", "zh": "不属于训练内容"},
}

_REASONS: dict[str, tuple[str, str]] = {
    "exact_duplicate": ("says exactly what another row says", "与另一行内容完全相同"),
    "near_duplicate": (
        "says nearly what another row says, with the same codes, models and numbers",
        "与另一行几乎相同，且编码、型号、数字一致",
    ),
    "no_phenomenon": ("the phenomenon is empty or says nothing", "现象为空或没有内容"),
    "no_repair": ("the repair is empty or says nothing", "维修为空或没有内容"),
    "no_meaning": ("the meaning of the code is empty or says nothing", "故障码含义为空或没有内容"),
    "no_fault_type": ("the row has no code", "该行没有故障码"),
    "placeholder_text": ("a placeholder such as `test` or 待定", "占位文字，如 `test`、待定"),
    "not_repaired": ("the repair says that nothing was repaired yet", "维修栏写明尚未修复"),
    "damaged_text": ("holds characters that were damaged before or by decoding", "含有损坏的字符"),
    "more_cells_than_columns": ("more cells than the header has columns", "单元格多于表头列数"),
    "cells_shifted": ("its cells stand one column off", "单元格错列"),
    "backslash_before_quote": (
        "a quote with a stray backslash: where its cells end is uncertain",
        "引号前有多余的反斜杠，单元格边界不确定",
    ),
    "code_with_two_meanings": (
        "the code stands twice with different contents: neither can be trusted",
        "同一代码有两种内容，均不可信",
    ),
    "empty_row": ("no cell holds text", "空行"),
    "repeated_header": ("the header again, in the middle of the table", "表中重复出现的表头"),
    "not_a_json_object": ("no JSON object", "不是 JSON 对象"),
    "key_stands_twice": ("a JSON key stands twice in one object", "JSON 对象中键重复"),
    "no_question_or_no_answer": ("the question or the answer is empty", "问题或回答为空"),
    "unknown_format": ("neither messages nor Alpaca nor ShareGPT", "不是 messages、Alpaca 或 ShareGPT 格式"),
    "unknown_role": ("a speaker that is none of system, user and assistant", "角色不是 system、user 或 assistant"),
    "calls_a_tool": ("the conversation calls a tool", "对话调用了工具"),
    "system_text_in_between": (
        "a system text stands behind a question or an answer: what it changes from there on would be learnt wrongly",
        "系统文本位于问答之后，其后的内容无法正确学习",
    ),
    "unknown_weight": ("the weight of an answer is neither 0 nor 1", "回答的权重既不是 0 也不是 1"),
    "no_answer_learnt": (
        "every answer has the weight 0: nothing would be learnt",
        "所有回答的权重均为 0，没有可学习内容",
    ),
    "begins_with_an_answer": ("the conversation begins with an answer", "对话以回答开头"),
    "questions_and_answers_do_not_alternate": ("questions and answers do not alternate", "问答没有交替"),
    "not_only_text": ("holds pictures or other parts that are no text", "含有图片等非文本内容"),
    "page_without_text": ("a page without text layer: it needs OCR", "没有文本层的页面，需要 OCR"),
    "ocr_unsure": ("recognised from a picture, and not surely enough", "由图片识别，把握不足"),
    "page_furniture": ("a running header or footer", "页眉或页脚"),
    "heading_only": ("a heading without text below it", "只有标题没有正文"),
    "too_short": ("too short to say anything", "过短，没有内容"),
    "no_readable_time": ("the time cannot be read", "时间无法识别"),
    "time_does_not_exist": (
        "a local time that never happened, because the clocks went forward: is the time zone right?",
        "因时钟拨快而不存在的本地时间：时区是否正确？",
    ),
    "time_stands_twice": ("the time of the row before it stands again", "与上一行时间相同"),
    "other_number_of_samples": ("a cycle with another number of samples", "周期内采样数不同"),
    "not_all_numbers": ("a cycle in which not every cell is a number", "周期中有非数值单元格"),
    "window_too_short": ("the window covers too little of its length", "窗口覆盖的时长不足"),
    "no_fault_in_horizon": (
        "a window of numbers that no known fault follows: kept as numbers, no text sample",
        "其后没有已知故障的窗口：只保留数值，不生成文本样本",
    ),
    "no_known_remedy": (
        "a fault follows whose remedy no table tells: kept as numbers, no text sample",
        "其后的故障没有已知处理方法：只保留数值，不生成文本样本",
    ),
    "no_trainable_token": ("nothing would be learnt from it", "没有可学习的词元"),
    "no_end_token": ("the end token would not be learnt", "没有可学习的结束符"),
    "doubled_end_token": ("the end token would stand twice", "结束符重复"),
    "doubled_begin_token": ("the begin token would stand twice", "起始符重复"),
    "over_long": (
        "longer than `max_length`, under `over_long: drop_list`",
        "超过 `max_length`（`over_long: drop_list`）",
    ),
}
REASONS: dict[str, dict[Language, str]] = {code: {"en": en, "zh": zh} for code, (en, zh) in _REASONS.items()}


def reason_text(code: str, language: Language) -> str:
    """A reason in words; one that is not known, of an older run, as it is."""
    return REASONS[code][language] if code in REASONS else code
