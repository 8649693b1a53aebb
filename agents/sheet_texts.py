"""Sentences of the task sheet, in English and Chinese."""

from __future__ import annotations

GOAL: dict[str, dict[str, str]] = {
    "en": {
        "plain": "{project}: from device model and fault phenomenon to diagnosis steps and repair",
        "objective": "{project}: from device model and fault phenomenon to diagnosis steps and repair; "
        "{metric} at least {at_least} on held-out samples",
    },
    "zh": {
        "plain": "{project}：由设备型号和故障现象给出诊断步骤与维修方案",
        "objective": "{project}：由设备型号和故障现象给出诊断步骤与维修方案；留出样本上 {metric} 不低于 {at_least}",
    },
}

INPUTS: dict[str, tuple[str, ...]] = {
    "dry_run": ("data: samples.parquet",),
    "stress_test": ("data: samples.parquet",),
    "train": ("data: samples.parquet", "stress_test: batch_plan.parquet"),
    "evaluate": ("data: samples.parquet", "stress_test: batch_plan.parquet", "train: adapter"),
}

ON_FAILURE: dict[str, dict[str, str]] = {
    "data": {
        "en": "look at the row ledger, repair the sources or the parameters, run the stage again",
        "zh": "查看行账目，修正源文件或参数，重做本阶段",
    },
    "dry_run": {
        "en": "do not train: find the fault in data, template or settings, then run the dry run again",
        "zh": "不要训练：先找出数据、模板或设置的问题，再重做试运行",
    },
    "stress_test": {
        "en": "propose a smaller configuration or more memory, measure again; nothing trains before it passes",
        "zh": "提出更小的配置或更多内存并重新测量；未通过前不训练",
    },
    "train": {
        "en": "resume from the newest complete checkpoint; a failed criterion goes back to the stress test",
        "zh": "从最新的完整检查点恢复；准则未通过则退回压力测试",
    },
    "evaluate": {
        "en": "nothing is released; rework the data or the training, or override with a reason",
        "zh": "不发布；重做数据或训练，或由有权者说明理由后放行",
    },
}

OUTPUTS: dict[str, tuple[str, ...]] = {
    "data": ("samples.parquet",),
    "stress_test": ("batch_plan.parquet",),
    "train": ("adapter",),
}
"""What later stages read of a stage; everything else that it writes is evidence."""

FILE_HEAD: dict[str, tuple[str, ...]] = {
    "en": (
        "Task sheet. The first gate of a run signs exactly this file.",
        "Change `value`, `budget_hours` and `on_failure`; everything else is changed in project.yaml.",
        "`drafted` is what the rules said when this was written: leave it, it shows which numbers are yours.",
        "Check it: gatewright decompose PROJECT --check. Draft it anew, your numbers kept: gatewright decompose "
        "PROJECT --write",
    ),
    "zh": (
        "任务单。运行的第一个审批点签署的正是本文件。",
        "可修改 `value`、`budget_hours` 和 `on_failure`；其余内容来自 project.yaml，请在那里修改。",
        "`drafted` 是写出本文件时规则给出的数；请保留，它表明哪些数是人改的。",
        "检查：gatewright decompose PROJECT --check。重新起草并保留人改的数：gatewright decompose PROJECT --write",
    ),
}
"""What stands at the top of task_sheet.yaml."""
