"""What the report says of the data: counts, distributions, lengths, samples as they will be fed, notes in words."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from specs.base import Language
from tasks.data.preparing import Prepared, Samples
from tasks.data.reader_notes import READER_NOTES
from tasks.data.records import Intake
from tasks.data.wording import render

FED_EXAMPLES = 3
GIANT_SHARE = 0.1
"""A component above this share of the samples is reported."""
_PERCENTILES = (5, 25, 50, 75, 90, 95, 99)

_NOTES: dict[str, dict[Language, str]] = {
    "files_passed_over": {"en": "files passed over, of another type: {n}", "zh": "类型不符而跳过的文件：{n}"},
    "sheets_not_read": {
        "en": "sheets without the mapped columns, not read, with their rows that are not empty: {names}",
        "zh": "没有映射列而未读取的工作表及其非空行数：{names}",
    },
    "steps_from_repair": {
        "en": "work orders whose steps were found in the repair text: {n}",
        "zh": "从维修文本中提取出步骤的工单：{n}",
    },
    "doubled_codes": {
        "en": "fault codes with two contents, none of them usable: {n} ({names})",
        "zh": "内容互相矛盾、均不可用的故障码：{n}（{names}）",
    },
    "llm_asked": {
        "en": "notes in which the rules found no repair, shown to the language model: {n}",
        "zh": "规则未识别出维修、交给语言模型的笔记：{n}",
    },
    "llm_structured": {
        "en": "of these, notes whose answer stands in their own words and became phenomenon and repair: {n}",
        "zh": "其中回答可在原文中找到、已拆分为现象与维修的笔记：{n}",
    },
    "llm_pieces_dropped": {
        "en": "sentences and steps of the language model that the note does not say, dropped: {n}",
        "zh": "原文中没有、已丢弃的语言模型语句：{n}",
    },
    "llm_without_answer": {
        "en": "notes for which the language model gave no usable answer: {n}",
        "zh": "语言模型没有给出可用回答的笔记：{n}",
    },
    "unexplained_codes": {
        "en": "work orders with a fault code that no table explains: {n}",
        "zh": "故障码不在码表中的工单：{n}",
    },
    "plain_notes": {
        "en": "notes kept as plain text, because no phenomenon with a repair was found: {n}",
        "zh": "未识别出现象与维修、按纯文本保留的笔记：{n}",
    },
    "gaps": {
        "en": "gaps in sensor logs, never spanned by a window: {n}",
        "zh": "传感器日志中的断点（窗口不跨越）：{n}",
    },
    "clock_backwards": {"en": "times at which a sensor clock runs backwards: {n}", "zh": "传感器时钟倒退次数：{n}"},
    "ambiguous_times": {
        "en": "local times that happen twice because the clocks go back, told apart by the order of the rows: {n}",
        "zh": "因时钟回拨而出现两次、按行顺序区分的本地时间：{n}",
    },
    "windows_before_several_faults": {
        "en": "sensor windows with several faults in their horizon, labelled by the next one: {n}",
        "zh": "视野内有多个故障、按最近一个标注的传感器窗口：{n}",
    },
    "merged": {"en": "rows merged as duplicates: {n}", "zh": "作为重复合并的行：{n}"},
    "quarantined": {"en": "rows in quarantine: {n}", "zh": "被隔离的行：{n}"},
    "out_of_scope": {"en": "rows and windows out of scope: {n}", "zh": "不在范围内的行和窗口：{n}"},
    "review": {
        "en": "similar pairs kept apart because a code, model, number or answer differs; please review: {n}",
        "zh": "因编码、型号、数字或回答不同而保留、请人工复核的相似对：{n}",
    },
    "largest_component": {
        "en": "samples in the largest group of similar records, all on one side of the split: {n}",
        "zh": "最大相似记录组的样本数（全部在划分的同一侧）：{n}",
    },
    "commonplaces": {
        "en": "questions with their answers in so many samples that they tie none together in the split: {n}",
        "zh": "出现在过多样本中、不用于在划分时关联样本的问答：{n}",
    },
    "only_commonplaces": {
        "en": "samples that teach nothing but such questions, kept in train: {n}",
        "zh": "只含此类问答、留在训练集的样本：{n}",
    },
    "held_out_short": {
        "en": "held-out samples fewer than asked for, as groups stay whole and every fault type stays in training: {n}",
        "zh": "留出样本比要求少（相似组不拆开，每种故障类型都留在训练集）：{n}",
    },
    "moved_to_train": {
        "en": "held-out samples moved to train with a training sample that they resemble: {n}",
        "zh": "因与训练样本相似而一并移入训练集的留出样本：{n}",
    },
    "learnt_by_parent": {
        "en": "samples that a parent was trained on, or like one of those: never held out: {n}",
        "zh": "父训练已学过的样本或与之相似、不作留出的样本：{n}",
    },
    "eval_capped": {
        "en": "samples left in train because eval_at_most is reached: {n}",
        "zh": "因达到 eval_at_most 上限而留在训练集的样本：{n}",
    },
    "samples_without_time": {
        "en": "samples without a time that can be read, kept in train: {n}",
        "zh": "没有可读时间、留在训练集的样本：{n}",
    },
    "split_texts": {"en": "over-long texts split: {n}", "zh": "被拆分的超长文本：{n}"},
    "split_conversations": {
        "en": "over-long conversations divided at their turns, each answer learnt in one part: {n}",
        "zh": "按轮次拆分的超长对话（每个回答只在其中一段学习）：{n}",
    },
    "turns_dropped": {
        "en": "over-long conversations without turns that are only read, the oldest first: {n}",
        "zh": "从最早轮次起去掉只读（不学习）轮次的超长对话：{n}",
    },
    "system_in_question": {
        "en": "samples with their system text above the first question, as the chat template has no place for it: {n}",
        "zh": "因对话模板不支持系统提示而将其置于首个问题之前的样本：{n}",
    },
    "end_added": {
        "en": "conversations with an end token put behind earlier answers, as the chat template writes none: {n}",
        "zh": "对话模板不写结束符、在较早回答后补上结束符的对话：{n}",
    },
    "ends_otherwise": {
        "en": "samples whose answers end with {names}, as the chat template writes it, and not as plain text ends: {n}",
        "zh": "回答按对话模板以 {names} 结束（与纯文本的结束符不同）的样本：{n}",
    },
    "people_columns": {
        "en": "columns that name people, masked wherever their names recur in the texts of the row: {n}",
        "zh": "写有人名的列（其姓名在该行文本中出现时一律屏蔽）：{n}",
    },
    "shortened": {"en": "over-long prompts shortened: {n}", "zh": "被缩短的超长提示：{n}"},
}


def summarise(intake: Intake, prepared: Prepared, ledger: pl.DataFrame) -> dict[str, Any]:
    """`summary.json`; `ledger` holds the fate of every unit."""
    samples = prepared.samples.frame
    train, held_out = samples.filter(split="train"), samples.filter(split="eval")
    fates = {(source, fate): n for source, fate, n in ledger.group_by("source", "fate").len().iter_rows()}
    reasons = ledger.filter(pl.col("reason") != "").select(pl.concat_str("fate", "reason", separator=": "))
    sizes = samples["component"].value_counts()["count"]
    train_types = _distribution(train["fault_type"])
    return {
        "schema_version": 1,
        "sources": {
            source: {fate: fates.get((source, fate), 0) for fate in ("kept", "merged", "quarantined", "out_of_scope")}
            for source in sorted({source for source, _ in fates})
        },
        "reasons": _distribution(reasons.to_series()),
        "samples": {"train": len(train), "eval": len(held_out)},
        "kinds": _distribution(samples["kind"]),
        "plain_text": {"train": _plain_kinds(train), "eval": _plain_kinds(held_out)},
        "fault_types": {"train": train_types, "eval": _distribution(held_out["fault_type"])},
        "smallest_fault_type": min(train_types, key=lambda t: (train_types[t], t)) if train_types else "",
        "device_models": _distribution(samples["device_model"]),
        "tokens": _lengths(train["n_tokens"]),
        "eval_tokens": _lengths(held_out["n_tokens"]),
        "learnt_tokens": int(train["learnt"].sum()),
        "buckets": {"edges": prepared.edges},
        "components": {"count": len(sizes), "largest": int(sizes.to_numpy().max(initial=0))},
        "review_pairs": len(prepared.review),
        "sensor_logs": intake.sensor_logs,
        "joins": {source: joined.summary() for source, joined in sorted(intake.joins.items())},
        "encodings": {f["source"]: f["encoding"] for f in intake.decoding},
        "fed_examples": [_as_fed(i, prepared.samples) for i in _examples(samples)],
    }


def notes(intake: Intake, prepared: Prepared, ledger: pl.DataFrame, language: Language) -> list[str]:
    """Everything dropped, merged, defaulted or left out, counted, in words."""
    counts = Counter({**intake.counts, **prepared.counts, "review": len(prepared.review)})
    counts["sheets_not_read"] = len(intake.sheets_not_read)
    counts["doubled_codes"] = len(intake.doubled_codes)
    counts["keys_not_read"] = intake.keys_not_read.total()
    names = {
        "sheets_not_read": "; ".join(intake.sheets_not_read),
        "doubled_codes": ", ".join(intake.doubled_codes[:20]),
        "keys_not_read": _most_frequent(intake.keys_not_read),
        "ends_otherwise": prepared.samples.shards.recipe.template.answer_end.text,
    }
    for fate, count in ledger["fate"].value_counts().iter_rows():
        counts[fate] = count
    samples = prepared.samples.frame
    largest = int(samples["component"].value_counts()["count"].to_numpy().max(initial=0))
    if largest > GIANT_SHARE * len(samples):
        counts["largest_component"] = largest
    known = {**_NOTES, **READER_NOTES}
    shown = [(code, text[language]) for code, text in known.items() if counts[code]]
    return [text.format(n=counts[code], names=names.get(code, "")) for code, text in shown]


def _most_frequent(found: Counter[str], at_most: int = 20) -> str:
    listed = [f"{name} {count}" for name, count in sorted(found.items(), key=lambda one: (-one[1], one[0]))]
    return ", ".join([*listed[:at_most], *(["..."] if len(listed) > at_most else [])])


def _distribution(values: pl.Series) -> dict[str, int]:
    return dict(sorted((value, count) for value, count in values.value_counts().iter_rows() if value))


def _plain_kinds(samples: pl.DataFrame) -> dict[str, int]:
    """Plain text by kind."""
    return _distribution(samples.filter(pl.col("plain_text") == 1)["kind"])


def _lengths(lengths: pl.Series) -> dict[str, Any]:
    """Nearest-rank percentiles, mean, total and a histogram of 24 equal bins."""
    if not len(lengths):
        return {"count": 0}
    ordered = lengths.sort().to_list()
    rank = {f"p{p}": ordered[max(0, -(-p * len(ordered) // 100) - 1)] for p in _PERCENTILES}
    width = max(1, -(-ordered[-1] // 24))
    bins = Counter(n // width for n in ordered)
    return {
        "count": len(ordered),
        "total": sum(ordered),
        "mean": sum(ordered) / len(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        **rank,
        "histogram": {"width": width, "counts": [bins[i] for i in range(max(bins) + 1)]},
    }


def _examples(samples: pl.DataFrame) -> list[int]:
    """Numbers of samples: the first training sample of each of the most frequent kinds."""
    numbered = samples.with_row_index("number")
    frequency = dict(samples["kind"].value_counts().iter_rows())
    first = numbered.filter(split="train").unique("kind", keep="first").select("kind", "sample_id", "number")
    chosen = sorted(first.iter_rows(), key=lambda row: (-frequency[row[0]], row[1]))[:FED_EXAMPLES]
    return [number for _, _, number in chosen]


def _as_fed(number: int, samples: Samples) -> dict[str, Any]:
    recipe = samples.shards.recipe
    template, draft = recipe.template, samples.draft(number)
    encoded = template.encode(*render(draft, recipe.language), draft.turns())
    parts = [(template.tokenizer.decode(ids), learnt) for ids, learnt in encoded.parts()]
    return {
        "sample_id": samples.frame["sample_id"][number],
        "kind": draft.kind,
        "masked": "".join(text for text, learnt in parts if not learnt),
        "learnt": "".join(text for text, learnt in parts if learnt),
        "parts": parts,
        "n_tokens": len(encoded.input_ids),
    }
