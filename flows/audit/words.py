"""The words of `audit show`, in English and Chinese."""

from __future__ import annotations

from specs.base import Language

_WORDS: dict[str, tuple[str, str]] = {
    "title": ("Run {run} of project {project}: {state}", "项目 {project} 的运行 {run}：{state}"),
    "begun": ("begun {at}, code {code}", "开始于 {at}，代码版本 {code}"),
    "solo": ("Solo policy: every decision is self-approved.", "单人策略：所有决定均为自批。"),
    "differences": ("What differed", "与预期不同之处"),
    "no_differences": (
        "nothing: every criterion passed and nothing was done another way",
        "无：所有准则均通过，没有任何改动",
    ),
    "failed": (
        "{stage} {attempt}: {metric} is {value}, should be {op} {bound} ({kind})",
        "{stage} 第 {attempt} 次：{metric} 为 {value}，应 {op} {bound}（{kind}）",
    ),
    "blocking": ("blocking", "阻断"),
    "warning": ("warning", "警告"),
    "crashed": ("{stage} {attempt} failed: {message}", "{stage} 第 {attempt} 次失败：{message}"),
    "abandoned": ("{stage} {attempt}: {message}", "{stage} 第 {attempt} 次：{message}"),
    "fallback": ("{stage}: {what}: {why}; instead {instead}", "{stage}：{what}：{why}；改为 {instead}"),
    "ladder": ("memory ran out; the ladder had {count} rungs:", "内存不足；内存阶梯共 {count} 级："),
    "rung": ("{number} {rung}: {said}", "{number} {rung}：{said}"),
    "rung_taken": ("runs, and was measured", "可运行，已实测"),
    "rung_runs": ("runs", "可运行"),
    "rung_out_of_memory": ("out of memory", "内存不足"),
    "rung_above_limit": ("runs, and takes too much", "可运行，但占用过多"),
    "rung_named": ("looked at", "已查看"),
    "rung_skipped": ("not tried", "未尝试"),
    "rung_failed": ("failed otherwise", "因其他原因失败"),
    "edit": ("{actor} set {path} = {value} at gate {gate}", "{actor} 在关口 {gate} 将 {path} 设为 {value}"),
    "override": (
        "{actor} overrode a failed blocking criterion at gate {gate}: {comment}",
        "{actor} 在关口 {gate} 强制放行了未通过的阻断准则：{comment}",
    ),
    "rework": ("{actor} asked for rework at gate {gate}: {comment}", "{actor} 在关口 {gate} 要求返工：{comment}"),
    "reject_at": ("{actor} rejected at gate {gate}: {comment}", "{actor} 在关口 {gate} 否决：{comment}"),
    "times": (" ({count} times)", "（共 {count} 次）"),
    "more": (
        "and {count:,} more: gatewright audit list --kind {kind}",
        "另有 {count:,} 条：gatewright audit list --kind {kind}",
    ),
    "takeover": ("a process that was gone was taken over: {owner}", "接管了已不存在的进程：{owner}"),
    "stopped_at": ("stopped at {stage}: {reason}", "在 {stage} 停止：{reason}"),
    "closed": ("{actor} closed the run where it stood: {reason}", "{actor} 将运行就地关闭：{reason}"),
    "lost": ("it was lost: {what}", "已丢失：{what}"),
    "removed": ("{count} files were removed on request: {reason}", "应要求删除了 {count} 个文件：{reason}"),
    "gate": ("gate {gate}, round {round}, opened {at}", "关口 {gate}，第 {round} 轮，打开于 {at}"),
    "approve": ("approved", "批准"),
    "rework_choice": ("sent back", "返工"),
    "reject": ("rejected", "否决"),
    "decision": ("{choice} by {actor} at {at} ({how})", "{actor} 于 {at} {choice}（{how}）"),
    "round": ("{gate}, round {round}", "{gate}，第 {round} 轮"),
    "decided_by": ("{choice} by {actor} ({how})", "{actor} {choice}({how})"),
    "overridden": ("a failed blocking criterion was overridden", "强制放行了未通过的阻断准则"),
    "section_spec": ("spec", "规格"),
    "section_parameters": ("parameters", "参数"),
    "section_data": ("data", "数据"),
    "section_metrics": ("metrics", "指标"),
    "section_decisions": ("decisions", "决定"),
    "section_versions": ("versions", "版本"),
    "same": ("the same: {what}", "相同：{what}"),
    "same_count": ("{count} of {section}", "{section} {count} 项"),
    "same_nothing": ("nothing", "无"),
    "no_difference": ("no difference", "没有不同"),
    "not_compared": ("not compared: {what}", "未比较：{what}"),
    "handed_out": ("handed out at {at}, round {round}: {names}", "于 {at} 交出（第 {round} 轮）：{names}"),
    "handed_in": ("handed in by {actor} at {at} ({how}): {digest}", "由 {actor} 于 {at} 交回（{how}）：{digest}"),
    "approval": (
        "approved by {actor} at {at} ({how}), one of several",
        "{actor} 于 {at} 批准（{how}），为多人批准之一",
    ),
    "amended": (
        "edited by {actor} at {at} ({how}); the others confirm what it shows now",
        "{actor} 于 {at} 修改（{how}）；由其他人确认修改后的内容",
    ),
    "expired": ("gate {gate} expired at {at}: nobody decided in time", "关口 {gate} 于 {at} 过期：无人及时决定"),
    "waits": ("waits for a decision", "等待决定"),
    "ssh_signature": ("signed with an SSH key", "SSH 密钥签名"),
    "token": ("by personal token", "个人令牌"),
    "terminal": ("confirmed at a terminal", "终端确认"),
    "unauthenticated": ("unauthenticated: the name is a claim", "未认证：姓名仅为声明"),
    "self_approved": ("self-approved", "自批"),
    "attempt": ("attempt {attempt}: {state}", "第 {attempt} 次尝试：{state}"),
    "no_evidence": ("its evidence cannot be read", "无法读取其证据"),
    "header": ("metric|expected|actual|criterion", "指标|预期|实际|准则"),
    "passed": ("passed", "通过"),
    "not_passed": ("FAILED", "未通过"),
    "released": ("release published in {folder}", "已发布到 {folder}"),
    "reserved": ("running", "进行中"),
    "published": ("published", "已发布"),
    "failed_state": ("failed", "失败"),
    "abandoned_state": ("abandoned", "已放弃"),
    "superseded": ("superseded", "已被取代"),
    "running": ("running", "运行中"),
    "stopped": ("stopped", "已停止"),
    "waiting": ("waiting", "等待决定"),
    "decided": ("decided", "已决定"),
    "rejected": ("rejected", "已否决"),
    "finished": ("finished", "已完成"),
}


def word(language: Language, key: str, **values: object) -> str:
    """A text in a language, with values in it."""
    text = _WORDS[key][1 if language == "zh" else 0]
    return text.format(**values) if values else text


def state_word(language: Language, state: str) -> str:
    """The word for the state of a run or of an attempt."""
    return word(language, {"failed": "failed_state", "abandoned": "abandoned_state"}.get(state, state))
