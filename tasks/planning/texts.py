"""Words of a plan search, in English and Chinese."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specs.base import Language
from specs.bilingual import Texts

if TYPE_CHECKING:
    from tasks.planning.plans import Lack, Plan, Step

_TEXTS: dict[str, tuple[str, str]] = {
    "title": ("plans for {model} on {cards} x {device}", "{model} 在 {cards} x {device} 上的方案"),
    "plan": ("plan", "方案"),
    "placement": ("where", "部署"),
    "memory": ("memory", "内存"),
    "step": ("s/step", "秒/步"),
    "hours": ("hours", "小时"),
    "money": ("price", "费用"),
    "binds": ("bound by", "受限于"),
    "legend": (
        "batch of a plan: micro batch x micro batches a step{ranks} x tokens of the longest sample",
        "方案中的批：微批 x 每步微批数{ranks} x 最长样本词元数",
    ),
    "legend.ranks": (" x ranks", " x 进程数"),
    "checkpointing": ("checkpointing", "重算激活"),
    "one_card": ("1 card", "单卡"),
    "cards": ("{count} cards, {scheme}", "{count} 卡，{scheme}"),
    "offload.optimizer": ("states on the host", "优化器状态在主机"),
    "offload.all": ("all on the host", "全部在主机"),
    "preferred": (
        "preferred: {plan}, {where}: {share} of {usable} GiB that can be used",
        "首选：{plan}，{where}：占可用 {usable} GiB 的 {share}",
    ),
    "none": ("no plan is feasible: see what would make one fit", "没有可行方案：可行的办法见下"),
    "counted": (
        "{candidates} candidates: {feasible} feasible, {refused} refused; effective batch {batch} kept by all",
        "共 {candidates} 个候选：{feasible} 个可行，{refused} 个不可行；有效批量始终为 {batch}",
    ),
    "indivisible": (
        "left out: {ranks} cards cannot share an effective batch of {batch}",
        "未列出：{ranks} 张卡无法均分有效批量 {batch}",
    ),
    "no_time": (
        "no times: the rates of {device} are not known; a stress test measures them",
        "没有时间预测：{device} 的速率未知；压力测试会实测",
    ),
    "no_hours": (
        "no hours: give --data RUN, or --samples",
        "没有总时长：请给出 --data RUN 或 --samples",
    ),
    "max_steps": (
        "hours are of {steps} optimizer steps, max_steps of the run; --epochs plans whole passes",
        "时长按本次运行的 max_steps（{steps} 个优化步）计算；用 --epochs 可按完整轮数计算",
    ),
    "source.predicted": (
        "times are predicted from counted work and paper rates, not measured: see the interval",
        "时间由计算量和标称速率预测，并非实测：请看区间",
    ),
    "source.scaled": (
        "times are predicted, scaled by the stress test of this run",
        "时间为预测值，按本次运行的压力测试缩放",
    ),
    "source.measured": ("times are those of the stress test of this run", "时间来自本次运行的压力测试"),
    "assumed": (
        "assumed: host memory {host:g} GB/s, disk {disk:g} GB/s, link {link}, between machines {node:g} GB/s",
        "假设：主机内存 {host:g} GB/s，磁盘 {disk:g} GB/s，互联 {link}，机器之间 {node:g} GB/s",
    ),
    "over_long": (
        "{count} samples are longer than {limit} tokens: split or drop them in the data stage; answers are never cut",
        "{count} 条样本超过 {limit} 词元：请在数据阶段切分或剔除；答案绝不截断",
    ),
    "not_run": (
        "tensor and pipeline parallel are not run by this version's worker: the plan says which cards would be needed",
        "本版本的训练进程不支持张量并行与流水线并行：该方案只说明需要什么卡",
    ),
    "limits_unknown": (
        "--hours and --money were not checked: there are no times",
        "未检查 --hours 与 --money：没有时间预测",
    ),
    "no_times": (
        "the stress test of this run has no times by bucket: times are predicted",
        "本次运行的压力测试没有分桶用时：时间为预测值",
    ),
    "buckets_without_time": (
        "the stress test did not run {count} buckets of lengths: they count at the mean rate of the others",
        "压力测试有 {count} 个长度分桶没有实测：按其余分桶的平均速率计算",
    ),
    "other_device": (
        "the stress test of this run was on {was}, not on {device}: what it measured is not used",
        "本次运行的压力测试在 {was} 而非 {device} 上进行：未采用其实测值",
    ),
    "other_model": (
        "the stress test of this run was of {base}, not of {model}: what it measured is not used",
        "本次运行的压力测试针对 {base} 而非 {model}：未采用其实测值",
    ),
    "past_positions": (
        "left out: lengths {lengths}, because the model was made for {positions} tokens at most",
        "未列出：长度 {lengths}，因为该模型最多支持 {positions} 词元",
    ),
    "left_out.heads": (
        "left out: tensor parallel, because no number of cards divides {heads} heads, {key_heads} key heads and a "
        "vocabulary of {vocabulary}",
        "未列出：张量并行，因为没有卡数能同时整除 {heads} 个注意力头、{key_heads} 个键头和大小为 {vocabulary} 的词表",
    ),
    "left_out.pipeline_short": (
        "left out: a pipeline of {stages} stages, which needs at least {fewest} micro batches a step in each of its "
        "{rows} rows: an effective batch of {needed} or more",
        "未列出：{stages} 级流水线，其 {rows} 路各需每步至少 {fewest} 个微批：有效批量须不小于 {needed}",
    ),
    "pipeline": (
        "PP {stages} (bubble {bubble}, at least {fewest} micro batches)",
        "PP {stages}（气泡 {bubble}，至少 {fewest} 个微批）",
    ),
    "offload_time": (
        "offload costs time: {seconds} s of a step go to the host bus and the optimizer on the host ({share} of it)",
        "卸载的代价：每步有 {seconds} 秒用于主机总线与主机上的优化器（占 {share}）",
    ),
    "picture": ("picture: {path}", "图：{path}"),
    "bind.memory": ("memory", "显存"),
    "bind.effective_batch": ("effective batch", "有效批量"),
    "bind.longest_sample": ("longest sample", "最长样本"),
    "bind.compute": ("compute", "算力"),
    "bind.bandwidth": ("memory bandwidth", "显存带宽"),
    "bind.link": ("link", "互联"),
    "bind.host": ("host bus", "主机总线"),
    "bind.launch": ("launching kernels", "算子启动"),
    "lack.memory": (
        "{over} GiB too much: {needed} needed, {there} usable",
        "超出 {over} GiB：需要 {needed}，可用 {there}",
    ),
    "lack.host": ("host memory: {needed} GiB needed, {there} there", "主机内存：需要 {needed} GiB，只有 {there}"),
    "lack.disk": ("disk: {needed} GiB needed, {there} free", "磁盘：需要 {needed} GiB，空闲 {there}"),
    "lack.hours": ("{needed} hours, {there} allowed", "需要 {needed} 小时，上限 {there}"),
    "lack.money": ("costs {needed}, {there} allowed", "费用 {needed}，上限 {there}"),
    "lack.batch": (
        "{needed} ranks do not divide the effective batch {there}",
        "{needed} 个进程无法均分有效批量 {there}",
    ),
    "lack.offloaded-quantized": (
        "offloaded-quantized: device_map would spill 4-bit layers to the CPU, where they are not trained "
        "({needed} GiB needed, {there} usable)",
        "offloaded-quantized：device_map 会把 4 位层放到 CPU，无法训练（需要 {needed} GiB，可用 {there}）",
    ),
    "lever.other_processes": ("end other processes on the card", "结束占用该卡的其他进程"),
    "lever.allocator": ("allocator settings", "分配器设置"),
    "lever.micro_batch": ("micro batch", "微批"),
    "lever.activation_checkpointing": ("activation checkpointing", "激活重算"),
    "lever.optimizer": ("8-bit or paged optimizer", "8 位或分页优化器"),
    "lever.length": ("shorter length", "缩短长度"),
    "lever.lora": ("LoRA", "LoRA"),
    "lever.qlora": ("QLoRA", "QLoRA"),
    "lever.zero": ("shards (ZeRO, FSDP)", "分片（ZeRO、FSDP）"),
    "lever.offload": ("offload to the host", "卸载到主机"),
    "lever.cards": ("more or bigger cards", "更多或更大的卡"),
    "step_out": ("{lever} ({changes}): {size} GiB{time}", "{lever}（{changes}）：{size} GiB{time}"),
    "step_out.time": (", a step takes {times} times as long", "，每步用时为原来的 {times} 倍"),
    "step_out.free": ("they hold {size} GiB", "占用 {size} GiB"),
    "refused": ("refused: {plan}; {where}", "不可行：{plan}；{where}"),
    "ways": ("what would make it fit:", "可行的办法："),
    "tight": (
        "above {bound} of what can be used the stress test stops a run: nothing below that is feasible here",
        "超过可用内存的 {bound} 时压力测试会中止运行：此处没有低于该比例的可行方案",
    ),
    "or": ("or", "或"),
    "and": ("and", "并且"),
    "nothing": ("nothing here helps: take a smaller model", "以上办法均无效：请换用更小的模型"),
    "still_not": ("and even then it does not fit: take a smaller model", "即便如此仍放不下：请换用更小的模型"),
    "unrecorded": (
        "{count} candidates not searched ({kinds}): {why}",
        "{count} 个候选未搜索（{kinds}）：{why}",
    ),
    "all_refused": (
        "every refused plan, with what would make it fit: --json",
        "用 --json 可列出全部不可行方案及各自可行的办法",
    ),
    "data": (
        "data: run {run}, {samples} training samples of at most {longest} tokens, {held_out} held out",
        "数据：运行 {run}，训练样本 {samples} 条，最长 {longest} 词元，留出样本 {held_out} 条",
    ),
    "memory.measured": (
        "memory is the peak of the stress test of this run: {measured} GiB; the account says {account} ({times} of it)",
        "内存取本次运行压力测试的实测峰值：{measured} GiB；内存账目为 {account}（实测为账目的 {times}）",
    ),
    "memory.calibrated": (
        "memory is the account, corrected by the stress test of this run, which ran another configuration of this kind "
        "({times} of the account)",
        "内存取账目值，并按本次运行的压力测试修正：该测试运行的是同类的另一配置（实测为账目的 {times}）",
    ),
    "memory.confirmed": (
        "memory is the account: the stress test of this run, of another configuration, confirms it ({times} of the "
        "account)",
        "内存取账目值：本次运行的压力测试（另一配置）证实了账目（实测为账目的 {times}）",
    ),
    "memory.other_kind": (
        "memory is the account: the stress test of this run was of another kind of training ({kind})",
        "内存取账目值：本次运行的压力测试属于另一类训练（{kind}）",
    ),
    "no_peak": (
        "the stress test of this run has no record of its peak that can be trusted: memory is predicted",
        "本次运行的压力测试没有可信的峰值记录：内存为预测值",
    ),
    "changed_records": (
        "records of the stress test of this run are gone or were changed, and are not used: gatewright audit verify",
        "本次运行的压力测试记录缺失或被改动，未采用：gatewright audit verify",
    ),
    "ran": (
        "what the stress test ran: {plan}: {share} of what can be used, measured",
        "压力测试运行的配置：{plan}：实测占可用内存的 {share}",
    ),
}

_SCHEMES = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp": "FSDP"}

SLOWER = 1.05
"""From so many times the time on a way out says what it costs."""

text = Texts(_TEXTS)


def short(plan: Plan, language: Language) -> str:
    """Method, types, optimizer and batch in a line."""
    c = plan.configuration
    shape = f"{c.micro_batch}x{c.gradient_accumulation}"
    shape += f"x{c.data_ranks}" if c.data_ranks > 1 else ""
    more = ", " + text(language, "checkpointing") if c.activation_checkpointing else ""
    return f"{c.method} {c.weights}, {c.optimizer}, {shape} x {c.seq_len}{more}"


def placed(plan: Plan, language: Language) -> str:
    """Where a plan runs."""
    c = plan.configuration
    more = [f"TP {c.tensor_parallel}"] * (c.tensor_parallel > 1)
    if plan.pipeline is not None:
        values = {"bubble": f"{plan.pipeline.bubble:.0%}", "fewest": plan.pipeline.fewest_micro_batches}
        more.append(text(language, "pipeline", stages=c.pipeline_stages, **values))
    scheme = " + ".join([*([_SCHEMES[c.sharding]] if c.sharding in _SCHEMES else []), *more])
    if c.cards == 1:
        where = text(language, "one_card") + (f"{_comma(language)}{scheme}" if scheme else "")
    else:
        where = text(language, "cards", count=c.cards, scheme=scheme)
    return where + ("" if c.offload == "none" else _comma(language) + text(language, f"offload.{c.offload}"))


def _comma(language: Language) -> str:
    return "，" if language == "zh" else ", "


def lacking(lack: Lack, language: Language) -> str:
    """What there is too little of."""
    scale = 1.0 if lack.rule in ("hours", "money", "batch") else 2.0**30
    needed, there = lack.needed / scale, lack.there / scale
    digits = 0 if lack.rule == "batch" else 1 if needed - there >= 0.05 else 3  # what would round to nothing is shown
    return text(
        language,
        f"lack.{lack.rule}",
        needed=f"{needed:.{digits}f}",
        there=f"{there:.{digits}f}",
        over=f"{needed - there:.{digits}f}",
    )


def stepped(step: Step, language: Language) -> str:
    """One lever with the settings it changes."""
    changes = " ".join(f"{name}={_value(value)}" for name, value in step.change.items())
    if step.lever == "other_processes":
        changes = text(language, "step_out.free", size=f"{int(step.change['free_bytes']) / 2**30:.1f}")
    size, time = f"{step.needed_bytes / 2**30:.1f}", ""
    if step.slower is not None and step.slower >= SLOWER:
        time = text(language, "step_out.time", times=f"{step.slower:.3g}")
    return text(
        language, "step_out", lever=text(language, f"lever.{step.lever}"), changes=changes, size=size, time=time
    )


def ways_out(steps: list[Step], language: Language) -> list[str]:
    """The levers, one a line: each enough by itself (or), or all together (and)."""
    if not steps:
        return [text(language, "nothing")]
    parts = [stepped(step, language) for step in steps if not step.fits]
    either = [stepped(step, language) for step in steps if step.fits]
    lines = [parts[0], *(f"{text(language, 'and')} {part}" for part in parts[1:])] if parts else []
    for number, one in enumerate(either):
        word = text(language, "and" if parts and not number else "or")
        lines.append(f"{word} {one}" if lines else one)
    return lines if either else [*lines, text(language, "still_not")]


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
