"""What stages say of their progress, in Chinese. The stages speak English; the terminal speaks the project's language.

tests/flows/test_progress_words.py compares this table with what the code says.
"""

from __future__ import annotations

from specs.phrases import Phrases

_LOSS = (
    "after step {step} the held-out loss is {now} nats per token, {before} before training: a change of {change} with "
    "a standard error of {error}, over {count} samples; it must be below {bound}"
)
_LOSS_ZH = (
    "第 {step} 步后留出损失为 {now} nats/词元，训练前为 {before}：变化 {change}，标准误 {error}，共 {count} 个样本；"
    "应低于 {bound}"
)

PROGRESS = Phrases(
    {
        "starting the Prefect server": "启动 Prefect 服务",
        "the Prefect server no longer answers; the run goes on without it": "Prefect 服务不再响应；运行照常继续",
        "read sources": "读取数据源",
        "find duplicates": "查找重复",
        "split": "划分训练与留出样本",
        "search for leakage": "查找泄漏",
        "write artifacts": "写入产物",
        "{done} of {all} shards were complete already": "{all} 个分片中有 {done} 个此前已完成",
        "tokenising for the small model": "为小模型分词",
        "proof of resume: from step {start}, killed after step {end}, started again": (
            "验证恢复：从第 {start} 步开始，在第 {end} 步后强制终止，再重新启动"
        ),
        "checks on {count} samples: batches, masks, ends of answers": "检查 {count} 个样本：批、掩码、回答的结束",
        "loading the libraries": "加载程序库",
        "checking the base model": "校验基座模型",
        "encoding the planned samples": "编码计划中的样本",
        "loading the base model": "加载基座模型",
        "loading the model": "加载模型",
        "held-out loss, base": "留出损失：基座模型",
        "held-out loss, adapter": "留出损失：适配器",
        "held-out loss, parent": "留出损失：父训练",
        "answers, base": "生成回答：基座模型",
        "answers, adapter": "生成回答：适配器",
        "training": "训练",
        "measuring the loss": "测量损失",
        "measuring the loss of {count} held-out samples": "测量 {count} 个留出样本的损失",
        "resume from the save of step {step}": "从第 {step} 步的存档恢复",
        "recording families of configurations": "记录各类配置",
        "tracing the memory account": "推算内存账目",
        "merging the adapter into the base model": "把适配器合并进基座模型",
        "expand abbreviations": "展开缩写",
        "cards of the catalog": "型录中的显卡",
        "{model}: looking in the hub's cache, downloading what is missing": "{model}：查找本地缓存，下载缺少的文件",
        "{model}: making the model folder (once)": "{model}：生成模型文件夹（仅一次）",
        "a part of the recording process ended early: {count} families are recorded again": (
            "记录过程的一部分提前结束：重新记录 {count} 类配置"
        ),
        "{why}; {left} of {all} families are recorded again": "{why}；重新记录 {all} 类配置中的 {left} 类",
        "step {step}: {fault}": "第 {step} 步：{fault}",
        "this system cannot hold a process to a limit of memory: it runs without": "本系统不能限制进程内存：不加限制",
        **{
            f"early judgement: {verdict}; {_LOSS}": f"早期评判：{said}。{_LOSS_ZH}"
            for verdict, said in (("go on", "继续"), ("ask", "请人决定"), ("stop", "停止"))
        },
        "early judgement: not judged; after step {step} nothing was judged: {count} held-out samples are too few": (
            "早期评判：未判。第 {step} 步后只有 {count} 个留出样本，太少，无法判断"
        ),
        "early judgement: {verdict}; {words}": "早期评判：{verdict}；{words}",
        "a person decided that it goes on": "已由人决定继续",
        "{what}; the steps between are passed over": "{what}；跳过其间各步",
        "rehearsal: saves and ends after step {step}, then goes on": "演练：第 {step} 步后保存并结束，然后继续",
        "trial {number} of {all}: {name}": "小规模试验 {number}/{all}：{name}",
        "{name} diverged: {why}": "{name} 发散：{why}",
        "{count} small trials of {steps} steps": "{count} 项小规模试验，各 {steps} 步",
        "confirming {names} on the base model: {steps} steps, with and without": (
            "在基座模型上确认 {names}：{steps} 步，分别采用与不采用"
        ),
        "the worker died between two trials and is started again: {why}": "工作进程在两项试验之间终止，重新启动：{why}",
        "{name} died: {why}": "{name} 中途终止：{why}",
        "ladder: {rung}, {what}": "内存阶梯：{rung}，{what}",
        "{why}: the worker saves its state and ends": "{why}：工作进程保存状态后结束",
        "{stage}: recompute metrics": "{stage}：复算指标",
    }
)
