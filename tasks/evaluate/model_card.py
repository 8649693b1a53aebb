"""`model_card.md`: what was released, in the project's language. Pure; every number comes from the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specs.base import Language
from specs.bilingual import Texts
from specs.criteria import Metric, Verdict
from specs.metrics import definitions
from specs.results import Evidence
from specs.units import human
from tasks.evaluate.release_facts import ReleaseDecision, ReleaseExpectation, ReleaseFacts

DATA_SHOWN = ("rows_total", "quarantined_share", "samples_train", "samples_eval", "near_duplicate_leakage")

_TEXT: dict[str, tuple[str, str]] = {
    "title": ("{project}: fine-tuned model", "{project}：微调模型"),
    "what": (
        "{kind} for `{base}`, fine-tuned with method `{method}` in run `{run}`. It answers questions about equipment "
        "faults in the way of the project's own records.",
        "基于 `{base}` 的{kind}，由运行 `{run}` 以 `{method}` 方法微调，按本项目的记录回答设备故障问题。",
    ),
    "adapter": ("An adapter", "适配器"),
    "model": ("A full set of weights", "全量权重"),
    "files": (
        "`adapter/` or `model/` holds the trained weights, `merged/` (when asked for) the base model with the adapter "
        "in it. `manifest.json` lists every file with its SHA-256, `attestation.json` what they were made from.",
        "`adapter/` 或 `model/` 为训练所得权重，`merged/`（按需）为合并后的模型。`manifest.json` 列出全部文件及 "
        "SHA-256，`attestation.json` 记录其来源。",
    ),
    "base": ("Base model", "基座模型"),
    "licence": ("licence: {licence}", "许可证：{licence}"),
    "no_licence": ("not stated by the base model; find out before you pass it on", "基座未注明；分发前请自行确认"),
    "parent": (
        "Trained on from the adapter of `{named}`, SHA-256 `{sha}`.",
        "由 `{named}` 的适配器继续训练而来，SHA-256 `{sha}`。",
    ),
    "data": ("Data", "数据"),
    "evaluation": ("Evaluation on held-out samples", "留出样本评估"),
    "columns": ("| what | value | bound | passed |", "| 指标 | 数值 | 界限 | 通过 |"),
    "passed": ("yes", "是"),
    "failed": ("**no**", "**否**"),
    "warning": ("no (warning)", "否（警告）"),
    "not_applicable": ("not applicable", "不适用"),
    "other": ("Criteria of all stages", "各阶段准则"),
    "counts": ("{stage}: {good} of {all} passed", "{stage}：{all} 项中 {good} 项通过"),
    "besides": ("; not applicable: {names}", "；不适用：{names}"),
    "sheet": ("The task sheet, expected beside actual", "任务单：预期与实际"),
    "sheet_columns": (
        "| stage | what | signed | expected last | came | difference |",
        "| 阶段 | 指标 | 签字时 | 最后预期 | 实际 | 差异 |",
    ),
    "limits": ("Limits", "局限"),
    "limit_known": (
        "It knows the fault types of its training data and guesses beyond them; it can name a wrong part with "
        "confidence. A qualified person decides about every repair, and about safety always.",
        "模型只了解训练数据中的故障类型，超出范围即为猜测，也可能自信地给出错误部件。每次维修须由有资质的人员"
        "判断，涉及安全时尤其如此。",
    ),
    "limit_numbers": (
        "The numbers above hold for the held-out samples of this project and say nothing about other machines.",
        "以上数字只对本项目的留出样本成立，不能推及其他设备。",
    ),
    "limit_failed": ("These criteria failed:", "以下准则未通过："),
    "approvals": ("Approvals", "审批"),
    "approval_columns": (
        "| gate | round | who | when (UTC) | decision | how certain who it was |",
        "| 关口 | 轮次 | 审批人 | 时间（UTC） | 决定 | 身份确认方式 |",
    ),
    "self": (
        "**Self-approved:** one person alone ran and approved this; nobody else has looked at it.",
        "**自批：** 由同一人执行并批准，没有第二人审查。",
    ),
    "claim": (
        "**Unauthenticated:** at least one decision rests on a name that was only claimed.",
        "**未认证：** 至少一项决定只凭自报的姓名。",
    ),
    "override": (
        "**Overridden:** a failed blocking criterion was approved by override.",
        "**强制放行：** 有未通过的阻断准则被人工放行。",
    ),
    "unsigned": ("The attestation is not signed.", "证明文件未签名。"),
    "signed": ("The attestation is signed with the key {signer}.", "证明文件由密钥 {signer} 签名。"),
    "head": ("Ledger head: `{head}`", "台账末端哈希：`{head}`"),
    "unauthenticated": ("unauthenticated, a claim", "未认证，仅自报"),
    "terminal": ("confirmed at a terminal", "终端确认"),
    "token": ("personal token", "个人令牌"),
    "ssh_signature": ("SSH signature", "SSH 签名"),
    "approve": ("approved", "批准"),
    "rework": ("rework", "返工"),
    "reject": ("rejected", "否决"),
}
_t = Texts(_TEXT)


def model_card(facts: ReleaseFacts, evidence: Mapping[str, Evidence], kind: str, signer: str = "") -> str:
    """The card; `evidence` by stage, `kind` is adapter or model, `signer` the key that will sign the attestation."""
    language = facts.language
    parts = [
        f"# {_t(language, 'title', project=facts.project)}",
        _t(language, "what", kind=_t(language, kind), base=facts.base_model, method=facts.method, run=facts.run),
        _t(language, "files"),
        f"## {_t(language, 'base')}",
        f"`{facts.base_model}`, SHA-256 `{facts.base_model_sha256}`, "
        + _t(language, "licence", licence=facts.licence or _t(language, "no_licence")),
        _parent(language, facts),
        f"## {_t(language, 'data')}",
        _table(language, "data", evidence["data"], DATA_SHOWN),
        f"## {_t(language, 'evaluation')}",
        _table(language, "evaluate", evidence["evaluate"], [d.name for d in definitions("evaluate")]),
        f"## {_t(language, 'other')}",
        _counts(language, facts.verdicts),
        *([f"## {_t(language, 'sheet')}", _sheet(language, facts.sheet)] if facts.sheet else []),
        f"## {_t(language, 'limits')}",
        _limits(language, facts.verdicts),
        f"## {_t(language, 'approvals')}",
        _approvals(language, facts, signer),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parent(language: Language, facts: ReleaseFacts) -> str:
    if facts.parent is None:
        return ""
    return _t(language, "parent", named=facts.parent.named, sha=facts.parent.weights_sha256)


def _table(language: Language, stage: str, evidence: Evidence, names: Sequence[str]) -> str:
    titles = {d.name: d.title[language] for d in definitions(stage)}
    verdicts: dict[str, list[Verdict]] = {}
    for verdict in evidence.verdicts:
        verdicts.setdefault(verdict.metric, []).append(verdict)
    extra = sorted(name for name in verdicts if name not in titles) if stage == "evaluate" else []
    lines = [_t(language, "columns"), "|---|---|---|---|"]
    for name in [*names, *extra]:
        if name in evidence.metrics:
            lines.append(_row(language, titles.get(name, name), evidence.metrics[name], verdicts.get(name, [])))
    return "\n".join(lines)


def _row(language: Language, title: str, metric: Metric, verdicts: Sequence[Verdict]) -> str:
    bounds = ", ".join(f"{v.op} {human(v.bound, v.unit, language)}" for v in verdicts)
    passed = ", ".join(_passed(language, v) for v in verdicts)
    value = human(metric.value, metric.unit, language) if metric.applies else _t(language, "not_applicable")
    return f"| {title} | {value} | {bounds} | {passed} |"


def _sheet(language: Language, rows: Sequence[ReleaseExpectation]) -> str:
    lines = [_t(language, "sheet_columns"), "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        signed, expected = (
            "" if value is None else human(value, row.unit, language) for value in (row.signed, row.expected)
        )
        off = ""
        if row.actual is not None and row.expected:
            off = f"{(row.actual - row.expected) / abs(row.expected):+.1%}"
        cells = [row.stage_title, row.title, signed, expected, human(row.actual, row.unit, language), off]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _passed(language: Language, verdict: Verdict) -> str:
    return _t(language, verdict.outcome)


def _counts(language: Language, verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    lines = []
    for stage, found in verdicts.items():
        judged, others = [v for v in found if v.applies], [f"`{v.metric}`" for v in found if not v.applies]
        good = sum(v.passed for v in judged)
        line = "- " + _t(language, "counts", stage=f"`{stage}`", good=good, all=len(judged))
        names = ("、" if language == "zh" else ", ").join(others)
        lines.append(line + (_t(language, "besides", names=names) if others else ""))
    return "\n".join(lines)


def _limits(language: Language, verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    lines = [f"- {_t(language, 'limit_known')}", f"- {_t(language, 'limit_numbers')}"]
    failed = [(stage, v) for stage, found in verdicts.items() for v in found if v.outcome in ("failed", "warning")]
    if failed:
        lines.append(f"- {_t(language, 'limit_failed')}")
    for stage, v in failed:
        value, bound = (human(number, v.unit, language) for number in (v.value, v.bound))
        title = next((d.title[language] for d in definitions(stage) if d.name == v.metric), v.metric)
        colon, comma = ("：", "，") if language == "zh" else (": ", ", ")
        said = comma.join([value, f"{v.op} {bound}", _passed(language, v)])
        lines.append(f"  - `{stage}.{v.metric}` {title}{colon}{said}")
    return "\n".join(lines)


def _approvals(language: Language, facts: ReleaseFacts, signer: str) -> str:
    decisions = facts.decisions
    warnings = [
        _t(language, key)
        for key, said in (
            ("self", any(d.self_approved for d in decisions)),
            ("claim", any(d.authentication == "unauthenticated" for d in decisions)),
            ("override", any(d.override for d in decisions)),
        )
        if said
    ]
    table = "\n".join(
        [_t(language, "approval_columns"), "|---|---|---|---|---|---|", *(_decision(language, d) for d in decisions)]
    )
    signed = _t(language, "signed", signer=signer) if signer else _t(language, "unsigned")
    return "\n\n".join([*warnings, table, signed, _t(language, "head", head=facts.ledger_head)])


def _decision(language: Language, decision: ReleaseDecision) -> str:
    when = decision.at.isoformat(timespec="seconds").replace("+00:00", "Z")
    actor = decision.actor.replace("|", "\\|")
    choice, how = _t(language, decision.choice), _t(language, decision.authentication)
    return f"| {decision.gate} | {decision.round} | {actor} | {when} | {choice} | {how} |"
