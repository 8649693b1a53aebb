"""What the commands of a run say to a person: where it waits, what was recorded, how it ended. English and Chinese."""

from __future__ import annotations

from specs.bilingual import Texts
from specs.phrases import Phrases

_TEXTS: dict[str, tuple[str, str]] = {
    # where a run waits
    "waits": ("run {run} waits at gate {gate}, round {round}", "运行 {run} 停在关口 {gate}（第 {round} 轮），等待决定"),
    "look": ("  1. look:    {command}", "  1. 查看：   {command}"),
    "decide": ("  2. decide:  {command}", "  2. 决定：   {command}"),
    "or_as": ("     or as:   {people}", "     或作为： {people}"),
    "correct": ("  2. correct: project.yaml, then: {command}", "  2. 更正：   project.yaml，然后 {command}"),
    "or_override": ("     or:      {command}", "     或者：   {command}"),
    "further_back": (
        "     further back: the same with --stage STAGE",
        "     退回更早的阶段：同一命令加 --stage 阶段名",
    ),
    "go_on_at": ("  {number}. go on:   {command}", "  {number}. 继续：   {command}"),
    "left_open": ("  left open: {text}; write: {sentence}", "  尚缺：{text}；请写：{sentence}"),
    "failed": (
        "  failed: {metric} = {value} (must be {op} {bound})",
        "  未通过：{metric} = {value}（要求 {op} {bound}）",
    ),
    "not_measured": ("not measured", "未测得"),
    "waits_for_work": (
        "run {run} waits for a person's work on {stage}: {sheet}",
        "运行 {run} 等待有人完成 {stage} 的工作：{sheet}",
    ),
    "hand_in": ("  1. hand in: {command}", "  1. 交回：   {command}"),
    "why_rework": ("what to change", "要改什么"),
    "why_gone": ("what it showed is gone", "所示内容已经缺失"),
    "why": ("why", "理由"),
    # where it stands
    "stands": ("run {run} of {project}: {state}", "运行 {run}，项目 {project}：{state}"),
    "rehearsal_stands": (
        "rehearsal on {share} % of the samples: {run} of {project}: {state}",
        "用 {share} % 的样本演练：{run}，项目 {project}：{state}",
    ),
    "run_running": ("running", "进行中"),
    "run_waiting": ("waiting", "等待决定"),
    "run_decided": ("decided", "已决定，尚未继续"),
    "run_failed": ("failed", "失败"),
    "run_rejected": ("rejected", "已否决"),
    "run_stopped": ("stopped", "已停止"),
    "run_finished": ("finished", "已完成"),
    "column_stage": ("stage", "阶段"),
    "column_attempt": ("attempt", "尝试"),
    "column_state": ("state", "状态"),
    "column_criteria": ("criteria", "准则"),
    "attempt_pending": ("pending", "未开始"),
    "attempt_reserved": ("reserved", "已开始"),
    "attempt_published": ("published", "已发布"),
    "attempt_failed": ("failed", "失败"),
    "attempt_abandoned": ("abandoned", "已放弃"),
    "attempt_superseded": ("superseded", "已取代"),
    "passed_of": ("{passed} of {all} passed", "{all} 项中 {passed} 项通过"),
    "and_failed": ("; {names}", "；未通过：{names}"),
    "is_warning": (" (warning)", "（警告）"),
    "and_not_applicable": ("; {count} not applicable", "；{count} 项不适用"),
    "comma": (", ", "、"),
    "open_gate": ("  gate {gate}, round {round}: {sentence}", "  关口 {gate}，第 {round} 轮：{sentence}"),
    "waits_for_decision": ("waits for a decision", "等待决定"),
    "work_waits": ("  {stage} waits for a person's work: {command}", "  {stage} 等待有人完成工作：{command}"),
    "work_failed": (
        "  {stage} failed on the work that was handed in; hand in another file: {command}",
        "  {stage} 因交回的工作失败，请另交一份：{command}",
    ),
    "next_look": ("  look and decide: {command}", "  查看并决定：{command}"),
    "next_go_on": ("  go on: {command}", "  继续：{command}"),
    # how it ended
    "started": ("run {run} of {project}", "运行 {run}，项目 {project}"),
    "rehearsal_started": (
        "rehearsal on {share} % of the samples: run {run} of {project}",
        "用 {share} % 的样本演练：运行 {run}，项目 {project}",
    ),
    "finished": ("run {run} is finished; release bundle: {release}", "运行 {run} 已完成；发布包：{release}"),
    "read_card": (
        "  what it is and what it scored: {card}\n  check a copy of it: gatewright release verify {release}",
        "  内容与成绩：{card}\n  核对副本：  gatewright release verify {release}",
    ),
    "rehearsal_failed": (
        "rehearsal {run} did not pass: a blocking criterion failed in {stages}",
        "演练 {run} 未通过：{stages} 有阻断准则未通过",
    ),
    "rehearsal_passed": (
        "rehearsal {run} passed; nothing of it is released. In earnest: gatewright run",
        "演练 {run} 通过，不发布任何内容。正式运行：gatewright run",
    ),
    "until": ("{stage} is done; go on with: gatewright resume {run}", "{stage} 已完成；继续：gatewright resume {run}"),
    "rejected": (
        "run {run} is rejected and stays so. Another one, after what you change: gatewright run {project}",
        "运行 {run} 已被否决，不能再继续。修改之后另起一次运行：gatewright run {project}",
    ),
    "stopped": ("run {run}: {message}. Go on: {command}", "运行 {run} {message}。继续：{command}"),
    "with_worker": (
        "run {run} is with the worker; where it stands: gatewright status {run}",
        "运行 {run} 已交给后台进程；查看进展：gatewright status {run}",
    ),
    # a decision
    "recorded": (
        "recorded: {choice} of gate {gate} round {round} by {actor}{claim}",
        "已记录：{actor} 对关口 {gate} 第 {round} 轮的决定是{choice}{claim}",
    ),
    "claim": (" (unauthenticated: a claim, allowed because the policy is solo)", "（未认证，仅自报；单人策略允许）"),
    "approve": ("approve", "批准"),
    "rework": ("rework", "返工"),
    "reject": ("reject", "否决"),
    "note": ("note: {text}", "注意：{text}"),
    "shows_edit": (
        "the gate shows your edit now, as {digest}; others confirm it:",
        "关口现在显示你的修改（{digest}），由其他人确认：",
    ),
    "worker_goes_on": ("a worker goes on with it", "后台进程会继续"),
    "go_on": ("go on: {command}", "继续：{command}"),
    "type_again": ("Type {word} to confirm: ", "输入 {word} 以确认："),
    "you_decide": ("You decide as {actor}: {choice} run {run}.", "你以 {actor} 的名义决定：{choice}，运行 {run}。"),
    "edited": ("  edited by {actor}: {edits}", "  {actor} 已修改：{edits}"),
    # a new project
    "made": ("made {folder} ({count} files)", "已生成 {folder}（{count} 个文件）"),
    "made_one": ("made {folder} ({count} file)", "已生成 {folder}（{count} 个文件）"),
    "put_files": (
        "  put your files into {raw}, and their paths and columns into {spec}",
        "  把文件放进 {raw}，再把路径和列名写进 {spec}",
    ),
    "next_check": ("  next: {command}", "  下一步：{command}"),
    # a task sheet that was written
    "wrote": ("wrote {file}", "已写入 {file}"),
    "numbers_kept": ("; {count} numbers of yours were kept", "；保留了你填写的 {count} 个数"),
    "leaves_open": (
        "things that it leaves open: {open}; of these, {blocking} keep the first gate closed",
        "尚缺 {open} 项，其中 {blocking} 项使第一道关口不能通过",
    ),
    # asked at the terminal
    "keys": (
        "[a]pprove  [s]et a parameter and approve  [w] rework  [x] reject: ends the run  [l]eave: ",
        "[a] 批准  [s] 改一个参数后批准  [w] 返工  [x] 否决，运行到此结束  [l] 稍后再定：",
    ),
    "blocked_ways": (
        "A blocking criterion failed. [w] runs {stage} again. To go back further: [l], then gatewright rework {run} "
        "--stage STAGE --as WHO -m TEXT. [a] overrides the criterion, with a reason.",
        "有阻断准则未通过。[w] 重做 {stage}。要退回更早的阶段：先选 [l]，再运行 gatewright rework {run} --stage 阶段名 "
        "--as 审批人 -m 理由。[a] 是强制放行，须写明理由。",
    ),
    "who_decides": ("who decides ({people}): ", "由谁决定（{people}）："),
    "what_changes": ("what should change: ", "要改什么："),
    "why_reject": ("why (the run ends for good; empty: back): ", "理由（运行将就此结束；留空则返回）："),
    "parameter": ("parameter=value: ", "参数=值："),
    "reason": ("reason: ", "理由："),
    "comment": ("comment: ", "说明："),
    "sheet_open": ("the sheet leaves open: {text}; write: {sentence}", "任务单尚缺：{text}；请写：{sentence}"),
    "overrides_sheet": (
        "the sheet leaves this open: approving overrides it and needs a reason",
        "任务单有所缺：此时批准属于强制放行，须写明理由",
    ),
    "overrides_criterion": (
        "a blocking criterion failed: approving overrides it and needs a reason",
        "有阻断准则未通过：此时批准属于强制放行，须写明理由",
    ),
    "report": ("report with plots: {path}", "带图表的报告：{path}"),
    "stays_open": ("\nthe gate stays open", "\n关口保持等待"),
    "stays_open_for": ("the gate stays open: {sentence}", "关口保持等待：{sentence}"),
    "refused": ("refused: {message}\n  way out: {hint}", "未被接受：{message}\n  办法：{hint}"),
    "recorded_here": ("recorded: {choice} by {actor}", "已记录：{actor} {choice}"),
}
run_word = Texts(_TEXTS)

STOPPED = Phrases(
    {
        "stopped on request": "已按要求停止，进度均已保存",
        "stopped on request ({why}): nothing was loaded yet": "已按要求停止：尚未加载任何内容",
        "stopped on request ({why}): nothing was trained since the last start, nothing is lost": (
            "已按要求停止：本次启动后尚未训练，没有损失"
        ),
        "stopped on request ({why}): every step trained is saved; the loss is measured again on resume": (
            "已按要求停止：训练过的各步均已保存，继续时重新测量损失"
        ),
        "stopped on request ({why}): every step trained is saved; the checks are made again on resume": (
            "已按要求停止：训练过的各步均已保存，继续时重新检查"
        ),
        "stopped on request ({why}): evaluation begins anew on resume; it takes minutes": (
            "已按要求停止：继续时重新评估，需要几分钟"
        ),
        "stopped on request ({why}): nothing is written yet": "已按要求停止：尚未写入任何内容",
        "stopped on request ({why}) after step {done} of {planned} (step {begun} had begun; it is trained again from "
        "its start); checkpoint {checkpoint} holds everything": (
            "已按要求停止在第 {done} 步（共 {planned} 步），检查点 {checkpoint} 保存了全部内容；"
            "已开始的第 {begun} 步将从头训练"
        ),
        "stopped on request ({why}) after step {done} of {planned}; checkpoint {checkpoint} holds everything": (
            "已按要求停止在第 {done} 步（共 {planned} 步），检查点 {checkpoint} 保存了全部内容"
        ),
        "stopped on request ({why}): {what}": "已按要求停止：{what}",
        "stopped on request after {count} trials, which are kept": "已按要求停止：完成的 {count} 项小规模试验均已保存",
        "stopped on request in {stage}": "已按要求停止在 {stage}",
    }
)
"""How a run says that it was stopped, in Chinese."""
