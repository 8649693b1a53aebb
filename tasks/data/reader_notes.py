"""What the readers noticed in the files, in words: read in a way that a person should know of, or not read at all."""

from __future__ import annotations

from specs.base import Language

READER_NOTES: dict[str, dict[Language, str]] = {
    "backslash_quotes": {
        "en": 'tables whose quotes are written as \\", read as quotes: {n}',
        "zh": '引号写作 \\" 的表格（按引号读取）：{n}',
    },
    "merged_cells_filled": {
        "en": "cells below a merged cell that hold its text: {n}",
        "zh": "纵向合并单元格中按首格内容填充的单元格：{n}",
    },
    "zeros_of_format": {
        "en": "numbers of workbooks read with the leading zeros that their format shows: {n}",
        "zh": "按单元格格式保留前导零的数字：{n}",
    },
    "formula_cells": {
        "en": "formula cells, read as the values stored in the file: {n}",
        "zh": "公式单元格（读取文件中存储的值）：{n}",
    },
    "error_cells": {
        "en": "cells of workbooks that hold an error such as #N/A: {n}",
        "zh": "含错误值（如 #N/A）的单元格：{n}",
    },
    "nan_values": {"en": "values that are no number (NaN), read as empty: {n}", "zh": "非数值（NaN），按空值读取：{n}"},
    "pdf_tables": {"en": "tables read from PDF pages: {n}", "zh": "从 PDF 页面读取的表格：{n}"},
    "ocr_pages": {
        "en": "pages whose text was recognised from a picture; please read some of it: {n}",
        "zh": "由图片识别文本的页面，请抽查：{n}",
    },
    "ocr_pages_unsure": {
        "en": "pages recognised too unsurely, in quarantine: {n}",
        "zh": "识别把握不足而被隔离的页面：{n}",
    },
    "pictures_not_read": {"en": "pictures inside documents, not read: {n}", "zh": "文档中未读取的图片：{n}"},
    "symbols_not_read": {"en": "symbols of a font of their own, not read: {n}", "zh": "未读取的符号字体字符：{n}"},
    "records_of_several_turns": {
        "en": "conversations of several turns, each one sample: {n}",
        "zh": "多轮对话（每段一个样本）：{n}",
    },
    "answers_of_weight_0": {
        "en": "answers of conversations that are not learnt, as their weight is 0: {n}",
        "zh": "对话中因权重为 0 而不学习的回答：{n}",
    },
    "turns_after_last_learnt": {
        "en": "turns left out at the end of conversations, as no answer that is learnt follows them: {n}",
        "zh": "对话末尾其后没有可学习回答而略去的轮次：{n}",
    },
    "keys_not_read": {
        "en": "fields of conversations and their turns that are not read: {n} ({names})",
        "zh": "未读取的对话或轮次字段：{n}（{names}）",
    },
    "questions_without_answer": {
        "en": "last questions of conversations, left out because nothing answers them: {n}",
        "zh": "对话末尾没有回答而略去的问题：{n}",
    },
}
