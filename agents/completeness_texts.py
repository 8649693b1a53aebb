"""What the completeness check says: per rule, in English and Chinese, the finding and the sentence that closes it."""

from __future__ import annotations

from specs.base import Language

TEXTS: dict[str, dict[Language, tuple[str, str]]] = {
    "goal-missing": {
        "en": (
            "nobody has written down what the model should be able to do",
            'goal: "from machine and fault to the checks and the repair, for the machines of hall 2"',
        ),
        "zh": (
            "没有写明模型应当学会什么",
            'goal: "由机床和故障给出检查步骤与维修方案，限二号车间设备"',
        ),
    },
    "metric-missing": {
        "en": (
            "no target metric: nobody can say when the model is good enough",
            "objective: {{metric: fault_type_coverage, at_least: 0.5}}",
        ),
        "zh": (
            "没有目标指标，无法判断模型何时算合格",
            "objective: {{metric: fault_type_coverage, at_least: 0.5}}",
        ),
    },
    "evaluation-set-missing": {
        "en": (
            "nothing asks for held-out samples, so nothing can show that the model learnt anything",
            "acceptance: {{data: [{{metric: samples_eval, op: '>=', bound: 16}}]}}",
        ),
        "zh": (
            "没有要求留出样本，无法证明模型学到了东西",
            "acceptance: {{data: [{{metric: samples_eval, op: '>=', bound: 16}}]}}",
        ),
    },
    "evaluation-set-leaks": {
        "en": (
            "{metric} above 0 closes nothing: the held-out samples may have been trained on",
            "take {metric} out of acceptance, or write {{metric: {metric}, op: '==', bound: 0}}",
        ),
        "zh": (
            "{metric} 大于 0 也不会阻断：留出样本可能被训练过",
            "从 acceptance 中去掉 {metric}，或写 {{metric: {metric}, op: '==', bound: 0}}",
        ),
    },
    "length-limit-missing": {
        "en": (
            "no length limit: one long sample decides the memory of the whole run",
            "caps: {{train: {{max_tokens_per_step: 4096}}}}, or stages: {{train: {{max_length: {{max: 1024}}}}}}",
        ),
        "zh": (
            "没有长度上限：一条过长样本就会决定整个训练的显存",
            "caps: {{train: {{max_tokens_per_step: 4096}}}}，或 stages: {{train: {{max_length: {{max: 1024}}}}}}",
        ),
    },
    "stop-rule-missing": {
        "en": (
            "no rule ends the training: neither epochs nor steps are limited",
            "stages: {{train: {{epochs: {{min: 1, max: 3}}}}}}",
        ),
        "zh": ("没有停止规则：轮数和步数都没有上限", "stages: {{train: {{epochs: {{min: 1, max: 3}}}}}}"),
    },
    "budget-missing": {
        "en": ("no budget: no number says when the training costs too much", "budget: {{hours: 12}}"),
        "zh": ("没有预算：没有数字说明训练何时过于昂贵", "budget: {{hours: 12}}"),
    },
    "over-budget": {
        "en": (
            "the training is expected to take {hours} h, the budget is {budget} h",
            "fewer epochs (stages: {{train: {{epochs: 1}}}}), or budget: {{hours: {needed}}}",
        ),
        "zh": (
            "训练预计 {hours} 小时，预算只有 {budget} 小时",
            "减少轮数（stages: {{train: {{epochs: 1}}}}），或 budget: {{hours: {needed}}}",
        ),
    },
    "method-does-not-fit": {
        "en": (
            "{method} needs at least {needed} before any activation, {device} has {usable} usable",
            "method: {other}, a smaller base model, or more memory",
        ),
        "zh": (
            "{method} 不计激活就至少需要 {needed}，{device} 可用 {usable}",
            "method: {other}，换更小的基座模型，或增加显存",
        ),
    },
    "owner-missing": {
        "en": (
            "nobody answers for {source}: whom do we ask when its rows look wrong?",
            "owner: <name or team>, in the block of each of them",
        ),
        "zh": ("{source} 没有负责人：数据有疑问时问谁？", "在各自的块中写 owner: <姓名或班组>"),
    },
    "time-zone-missing": {
        "en": (
            "times of {source} have no zone: they are read as UTC, and faults may fall outside their windows",
            "time_zone: Europe/Vienna, in the block of {source}",
        ),
        "zh": (
            "{source} 的时间没有时区：将按 UTC 读取，故障可能落在窗口之外",
            "在 {source} 的块中写 time_zone: Asia/Shanghai",
        ),
    },
    "source-empty": {
        "en": ("{source} holds no rows", "take the block out of sources, or correct its path"),
        "zh": ("{source} 没有任何行", "从 sources 中删除该块，或改正 path"),
    },
    "fault-type-unmapped": {
        "en": (
            "{source} maps no fault type: nothing can be stratified or counted by fault",
            "columns: {{fault_type: <header of the code column>}}, in the block of {source}",
        ),
        "zh": (
            "{source} 没有映射故障类型：无法按故障分层或统计",
            "在 {source} 的块中写 columns: {{fault_type: <故障代码列的表头>}}",
        ),
    },
    "device-unmapped": {
        "en": (
            "{source} names no machine: the same fault of two machines becomes one",
            "columns: {{device_model: <header>}} or device_model: <name>, in the block of {source}",
        ),
        "zh": (
            "{source} 没有设备型号：不同设备的同一故障会被混为一谈",
            "在 {source} 的块中写 columns: {{device_model: <表头>}} 或 device_model: <名称>",
        ),
    },
    "goal-uncovered": {
        "en": (
            "the goal names {word}, no source does",
            "add the source that covers {word}, or take it out of the goal",
        ),
        "zh": ("目标提到 {word}，但没有任何数据源涉及", "补充涉及 {word} 的数据源，或从目标中去掉"),
    },
    "sheet-stale": {
        "en": (
            "task_sheet.yaml was drafted from other sources, settings or runs: {names} would be other numbers now",
            "gatewright decompose PROJECT --write",
        ),
        "zh": (
            "task_sheet.yaml 起草之后，源文件、设置或历史已变：{names} 现在会是别的数",
            "gatewright decompose PROJECT --write",
        ),
    },
    "revision-missing": {
        "en": (
            "the base model is the newest of {model}, whatever that is on the day",
            "hub: {{revision: <commit>}}",
        ),
        "zh": ("基座模型取 {model} 的最新版，日后可能不同", "hub: {{revision: <commit>}}"),
    },
    "override-missing": {
        "en": (
            "nobody may override a failed blocking criterion: such a run can only be reworked or rejected",
            "policy: {{approvers: [{{id: {who}, may_override: true}}]}}",
        ),
        "zh": (
            "没有人有权放行未通过的阻断性准则：只能返工或否决",
            "policy: {{approvers: [{{id: {who}, may_override: true}}]}}",
        ),
    },
    "stage-missing": {
        "en": ("the sheet has no stage {stage}", "add the stage {stage}; `gatewright decompose` drafts it"),
        "zh": ("任务单缺少阶段 {stage}", "补上阶段 {stage}；`gatewright decompose` 可以起草"),
    },
    "stage-twice": {
        "en": ("{stage} stands in the sheet twice", "take one of the two out"),
        "zh": ("{stage} 在任务单中出现两次", "删除其中一个"),
    },
    "inputs-missing": {
        "en": ("{stage} has no inputs", "inputs: [<what it reads>]"),
        "zh": ("{stage} 没有输入", "inputs: [<读取的内容>]"),
    },
    "input-unmade": {
        "en": ("{stage} reads {input}, no earlier stage makes it", "make it in an earlier stage, or correct the name"),
        "zh": ("{stage} 读取 {input}，但之前没有阶段产出它", "在更早的阶段产出它，或改正名称"),
    },
    "output-unused": {
        "en": ("nothing reads {output} of {stage}", "name it as an input of a later stage, or take it out"),
        "zh": ("没有阶段使用 {stage} 的产出 {output}", "在后续阶段的输入中写明，或删除"),
    },
    "criteria-missing": {
        "en": (
            "no blocking criterion judges {stage}: it passes whatever happens",
            "{write}",
        ),
        "zh": (
            "{stage} 没有阻断性准则：无论结果如何都会通过",
            "{write}",
        ),
    },
    "criterion-unmeasured": {
        "en": (
            "no artifact of {stage} can show {metric}, so the criterion can never pass",
            "take a metric of docs/metrics.md; near: {near}",
        ),
        "zh": ("{stage} 没有产物能给出 {metric}，该准则永远不会通过", "改用 docs/metrics.md 中的指标；相近：{near}"),
    },
    "criterion-cannot-fail": {
        "en": (
            "{metric} {op} {bound} of {stage} cannot fail: {why}",
            "give a bound that a bad result misses",
        ),
        "zh": ("{stage} 的 {metric} {op} {bound} 不可能不通过：{why}", "换一个差结果达不到的界限"),
    },
    "criterion-cannot-pass": {
        "en": ("{metric} {op} {bound} of {stage} cannot pass: {why}", "give a bound that a good result reaches"),
        "zh": ("{stage} 的 {metric} {op} {bound} 不可能通过：{why}", "换一个好结果能达到的界限"),
    },
    "expected-fails": {
        "en": (
            "{stage} is expected to fail its own criterion: {title} {value}, needed {op} {bound}",
            "more material, or a bound in {where} that you can stand behind",
        ),
        "zh": (
            "{stage} 预计达不到自己的准则：{title}为 {value}，要求 {op} {bound}",
            "补充数据，或在 {where} 中写一个站得住脚的界限",
        ),
    },
    "expected-missing": {
        "en": (
            "{stage} expects no number for “{title}”: memory, time and cards cannot be computed from it",
            "expected: {metric}",
        ),
        "zh": ("{stage} 没有预期的“{title}”：无法据此计算显存、时间和显卡", "expected: {metric}"),
    },
    "signer-missing": {
        "en": ("nobody signs {stage}", "signed_by: [<approver of the policy>]"),
        "zh": ("{stage} 没有签字人", "signed_by: [<审批人>]"),
    },
    "signer-unknown": {
        "en": ("{who} signs {stage}, the policy knows no such approver", "policy: {{approvers: [{{id: {who}}}]}}"),
        "zh": ("{stage} 由 {who} 签字，但策略中没有此审批人", "policy: {{approvers: [{{id: {who}}}]}}"),
    },
    "failure-missing": {
        "en": ("{stage} does not say what happens when it fails", "on_failure: <who does what>"),
        "zh": ("{stage} 没有写失败后怎么办", "on_failure: <谁做什么>"),
    },
    "stage-budget-missing": {
        "en": ("train has no budget of its own in the sheet", "budget_hours: {hours}"),
        "zh": ("任务单中训练阶段没有预算", "budget_hours: {hours}"),
    },
}
"""Rule to language to (finding, sentence). Braces that stay are doubled."""

WHY: dict[str, dict[Language, str]] = {
    "share": {"en": "a share lies between 0 and 1", "zh": "占比总在 0 与 1 之间"},
    "positive": {"en": "it is never below 0", "zh": "它不会小于 0"},
}
