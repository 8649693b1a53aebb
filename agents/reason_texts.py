"""Why a rule chose a value, in English and Chinese."""

from __future__ import annotations

from specs.bilingual import Texts

_TEXTS: dict[str, tuple[str, str]] = {
    "method": ("the method of the project", "项目指定的方法"),
    "parent": ("as the adapter of the parent has it", "与父训练的适配器一致"),
    "objective_mix": ("the mix of objectives of the project", "项目指定的目标混合"),
    "over_long": ("the over-long rule of the project", "项目指定的超长规则"),
    "eval_share_small": (
        "{rows:,} rows are few: at least 16 held-out samples are needed to judge anything",
        "仅有 {rows:,} 行：至少要 16 个留出样本才能评判",
    ),
    "buckets_small": ("about {rows:,} rows fill only so many length buckets", "约 {rows:,} 行只够这些长度分桶"),
    "max_length": (
        "the longest sample has {longest:,} tokens; rounded up to a multiple of 8, nothing is cut",
        "最长样本 {longest:,} 词元，上取整到 8 的倍数，不截断",
    ),
    "max_length_guess": ("not counted yet; the data stage decides", "尚未统计，由数据阶段决定"),
    "max_length_dry": (
        "the cap of {cap:,} tokens per step; the longest sample has {longest:,}",
        "每步 {cap:,} 词元的上限；最长样本 {longest:,} 词元",
    ),
    "warn_dry_longer": (
        "samples above the dry run's cap of {cap:,} tokens stay out of it (the longest has {longest:,})",
        "超过试运行每步 {cap:,} 词元上限的样本不参加试运行（最长 {longest:,} 词元）",
    ),
    "max_tokens_per_step": ("the cap of the project", "项目设定的上限"),
    "ranks": (
        "launcher.processes; each holds the whole model and takes its share of every step",
        "launcher.processes；每个进程持有完整模型，分担每一步",
    ),
    "batch": (
        "{effective} samples per optimizer step: {why}",
        "每个优化步 {effective} 个样本：{why}",
    ),
    "batch_cap": (
        "the longest sample times {effective} stays within {cap:,} tokens per step",
        "最长样本 × {effective} 不超过每步 {cap:,} 词元",
    ),
    "batch_size": ("usual for {train:,} samples", "{train:,} 个样本的常用值"),
    "accumulation": (
        "{accumulation} micro batches of {micro} make {effective} samples per optimizer step",
        "{accumulation} 个微批 × {micro} 个样本 = 每步 {effective} 个样本",
    ),
    "fill": (
        "a pass over short samples takes more than {micro} of them, up to the tokens of the longest {micro}: fewer "
        "passes, the same samples per step and the same peak",
        "短样本每次前向可超过 {micro} 条，词元数不超过最长的 {micro} 条：前向次数更少，每步样本与内存峰值不变",
    ),
    "memory_micro": (
        "lowered until the predicted peak fits; the effective batch stays",
        "降低到预测峰值可容纳为止，有效批量不变",
    ),
    "memory_checkpointing": (
        "without it the predicted peak does not fit; costs 20 to 40 % time",
        "不启用则预测峰值放不下；时间增加 20–40 %",
    ),
    "lr": (
        "{method} on a model of {size} parameters; small models and adapters need larger steps",
        "{method}，模型 {size} 参数；小模型和适配器需要更大的步长",
    ),
    "warmup": ("about 5 % of {steps:,} steps", "约为 {steps:,} 步的 5 %"),
    "epochs": (
        "{train:,} samples: {epochs} passes are about {steps:,} optimizer steps",
        "{train:,} 个样本：{epochs} 轮约 {steps:,} 个优化步",
    ),
    "max_steps": (
        "the cap of the project; {seen:,} of {total:,} planned samples are seen",
        "项目设定的上限；计划的 {total:,} 个样本中训练 {seen:,} 个",
    ),
    "dry_steps": ("a dry run is {steps} steps", "试运行共 {steps} 步"),
    "save_steps": ("a kill loses at most {save} of {steps:,} steps", "被强制终止最多损失 {steps:,} 步中的 {save} 步"),
    "threads": ("the physical cores of this device", "本机物理核数"),
    "weights_gpu": ("the device computes in {dtype}", "设备支持 {dtype} 计算"),
    "weights_quantised": ("what {method} means", "{method} 的定义"),
    "dry_model": (
        "a small model over the same pipeline finds faults of data and settings in minutes",
        "小模型走同一流程，几分钟内发现数据和设置的问题",
    ),
    "trials": ("the trials that the project asks for", "项目要求的小规模试验"),
    "trials_target_lr": (
        "what would be proposed for the base model; a trend is confirmed there relative to it",
        "对基座模型将建议的值；趋势以它为基准在基座模型上确认",
    ),
    "warn_trials_parent": (
        "no trials of the rank: the adapter of the parent keeps its own",
        "不做秩的试验：父训练的适配器保持原有的秩",
    ),
    "trend": (
        "{factor} times the rule's value: in the trials on {model} this took {share} more off the loss on {on} over "
        "{steps} steps; a direction, not a promise",
        "规则值的 {factor} 倍：在 {model} 上的试验中，{steps} 步内{on}上的损失多降 {share}；只表示方向，不是承诺",
    ),
    "trend_alpha": ("the scale alpha / rank stays", "保持 alpha / rank 的比例"),
    "warn_trend_unconfirmed": (
        "UNCONFIRMED on the base model: {name} {before} -> {after} follows trials on a smaller model; {why}",
        "未在基座模型上确认：{name} {before} -> {after} 依据较小模型上的试验；{why}",
    ),
    "warn_trend_training": (
        "{name} {before} -> {after} follows a loss on training samples: no held-out one fits the dry run's length",
        "{name} {before} -> {after} 依据训练样本上的损失：没有留出样本符合试运行的长度",
    ),
    "trend_limited": (
        "{wanted} was tried, and the limits of the project allow less of a change",
        "试验的是 {wanted}，项目的限制只允许较小的改动",
    ),
    "trend_not_run": ("the paired run on the base model was not made: {reason}", "未在基座模型上做配对试验：{reason}"),
    "trend_in_noise": (
        "the paired run on the base model does not stand out of its noise ({said})",
        "基座模型上的配对试验与噪声无法区分（{said}）",
    ),
    "warn_trend_contradicted": (
        "{name} stays: the trial {trend} learnt more on the smaller model, and the base model did not ({said})",
        "{name} 不变：试验 {trend} 在较小模型上学得更多，但基座模型上相反（{said}）",
    ),
    "repeat": ("exactly what the stress test measured", "与压力测试完全一致"),
    "ladder": (
        "memory ran out in the stress test with {before}; its ladder measured {after}",
        "压力测试中 {before} 内存不足；内存阶梯实测了 {after}",
    ),
    "warn_ladder": (
        "differs from what was approved before the stress test: {changes}. Approving this gate approves it",
        "与压力测试前批准的不同：{changes}。批准本关口即批准这些改动",
    ),
    "warn_plan_up": (
        "the stress test used {share} of usable memory: {change} would use {predicted} by the calibrated account; "
        "gatewright rework --stage stress_test {wants} measures it first",
        "压力测试只用了可用内存的 {share}：按校准后的账目，{change} 将用 {predicted}；"
        "先实测：gatewright rework --stage stress_test {wants}",
    ),
    "warn_longer": (
        "the stress test used {share} of usable memory, and {count:,} records were left out for their length: "
        "gatewright rework --stage data --want max_length=more would keep more of them",
        "压力测试只用了可用内存的 {share}，而有 {count:,} 条记录因过长被舍弃："
        "gatewright rework --stage data --want max_length=more 可保留更多",
    ),
    "generations": ("the cap of the project", "项目设定的上限"),
    "loss_batch": (
        "half of the training micro batch, so that evaluation never raises the peak",
        "训练微批的一半，评估不会抬高峰值",
    ),
    "fault_spread": (
        "{types} fault types: at least one generation for each",
        "{types} 种故障类型，每种至少生成一次",
    ),
    "limit": ("{wanted} was the rule's choice; {source} allows this", "规则选择 {wanted}；{source} 只允许此值"),
    "kept_feedback": ("kept from an earlier round", "沿用前几轮的要求"),
    "feedback": ("asked for in the feedback of this gate", "本关反馈中提出"),
    "answered": ("{parameter}: {before} -> {after}", "{parameter}：{before} → {after}"),
    "answered_limited": (
        "{parameter}: {before} -> {after} ({wanted} was asked for; {source} allows no more)",
        "{parameter}：{before} → {after}（要求 {wanted}，{source} 不允许）",
    ),
    "answered_locked": (
        "{parameter} stays: train repeats what the stress test measured; a change needs a new stress test "
        "(rework with --stage stress_test)",
        "{parameter} 不变：训练必须与压力测试一致；如需修改请重做压力测试（rework --stage stress_test）",
    ),
    "answered_fixed": ("{parameter} stays {before}: {source} fixes it", "{parameter} 保持 {before}：{source} 已固定"),
    "answered_same": ("{parameter} stays {before}", "{parameter} 保持 {before}"),
    "answered_refused": (
        "{parameter} is not set to {wanted}: {problem}",
        "{parameter} 未改为 {wanted}：{problem}",
    ),
    "not_understood": (
        "No rule acts on: {text}. A person can set any parameter with --set name=value ({names}).",
        "没有规则能处理：{text}。可用 --set 名称=值 直接设置任一参数（{names}）。",
    ),
    "warn_max_steps": (
        "max_steps stops the training after {seen:,} of {total:,} planned samples (epochs: {epochs})",
        "max_steps 使训练在 {epochs} 轮的 {total:,} 个样本中只看 {seen:,} 个",
    ),
    "warn_too_long": (
        "the longest sample ({longest:,} tokens) is longer than the cap of {cap:,} tokens per step",
        "最长样本（{longest:,} 词元）超过每步 {cap:,} 词元的上限",
    ),
    "warn_no_memory": (
        "no configuration within the rules fits the memory of the device",
        "规则范围内没有能放进设备内存的配置",
    ),
    "warn_costs_unread": (
        "{count} lines of the record of what work took on this machine (costs.jsonl) cannot be read: expected times "
        "learn nothing from them",
        "本机用时记录（costs.jsonl）中有 {count} 行无法读取：预期用时未参考这些记录",
    ),
    "warn_runs_unread": (
        "{count} earlier runs of this project have incomplete or changed files: what is expected learns nothing from "
        "them; `gatewright audit verify RUN` names the files",
        "本项目有 {count} 次较早运行的文件不完整或被改动：预期值未参考；`gatewright audit verify RUN` 可列出文件",
    ),
    "warn_no_data": ("the data stage has counted no training samples", "数据阶段没有统计到训练样本"),
    "x_rows": ("rows the probe counted in the sources", "对源文件的探测计数"),
    "x_rows_read": (
        "rows, paragraphs and windows, read as the data stage reads them",
        "按数据阶段的方式读取后的行、段落与窗口数",
    ),
    "x_kept_read": (
        "usable records without repetitions; 0.95 of them usually stay after near duplicates and leakage",
        "可用且不重复的记录，近似重复与泄漏处理后通常保留 0.95",
    ),
    "x_kept": (
        "most rows survive quarantine and duplicates; a share of 0.85 is assumed",
        "多数行能通过隔离和去重，按 0.85 估计",
    ),
    "x_share": ("eval_share of the kept samples", "保留样本 × eval_share"),
    "x_counted": ("counted by the data stage", "数据阶段统计"),
    "x_steps": (
        "samples over effective batch, times epochs, at most max_steps",
        "样本数 ÷ 有效批量 × 轮数，不超过 max_steps",
    ),
    "x_thumb": (
        "counted work at rules of thumb, for an idle machine: nothing like it was timed here yet",
        "按工作量与经验速率估算，以机器空闲计：本机尚无同类工作的实测",
    ),
    "x_rates": (
        "counted work at the rates of {pieces} earlier pieces of work on this machine, as if it were idle",
        "按工作量与本机此前 {pieces} 次实测的速率估算，以机器空闲计",
    ),
    "x_rates_far": (
        "counted work at rules of thumb, moved by {pieces} pieces of other work on this machine, as if it were idle",
        "按工作量与经验速率估算，并参照本机其他 {pieces} 次实测，以机器空闲计",
    ),
    "x_always_busy": (
        "; it never was: processor time stands for it",
        "；但本机从未空闲，故以处理器时间推算",
    ),
    "x_no_config": (
        "; operations as 6 for each parameter and token: the model's config.json does not say its layers and heads",
        "；运算量按每参数每词元 6 次计：模型的 config.json 未给出层数与注意力头数",
    ),
    "x_no_matrices": (
        "; operations as 6 for each parameter and token: no matrix of the model's weights is named by a layer",
        "；运算量按每参数每词元 6 次计：模型权重中没有按层命名的矩阵",
    ),
    "x_packed": (
        "; operations as 6 for each parameter and token: the model's weights are stored packed",
        "；运算量按每参数每词元 6 次计：模型权重以压缩形式存储",
    ),
    "x_less_load": (
        ", less {share} % that other programs added",
        "，扣除其他程序占去的 {share} %",
    ),
    "x_measured_time": ("seconds per token that the stress test measured", "压力测试实测每词元秒数"),
    "x_memory": ("memory account of this configuration", "该配置的内存账目"),
    "x_written": ("written in project.yaml", "project.yaml 中写明"),
    "x_goal": ("objective of the project", "项目目标"),
    "x_criterion": ("smallest value that passes", "通过所需的最小值"),
    "x_history": (
        "the rule, corrected by what the last run of this project measured",
        "规则值，按本项目上一次运行的实测修正",
    ),
    "x_history_busy": (
        "the rule, corrected by what the last run of this project measured while other programs kept the machine busy",
        "规则值，按本项目上一次运行的实测修正；当时机器被其他程序占用",
    ),
}

text = Texts(_TEXTS)
