"""Words of the advice, in English and Chinese."""

from __future__ import annotations

from specs.base import Language
from specs.bilingual import Texts
from tasks.advising.route import Reason

_TEXTS: dict[str, tuple[str, str]] = {
    "title": ("advice for {project}", "{project} 的建议"),
    "route": ("1. route: {route}", "1. 路线：{route}"),
    "model": ("   model: {model}", "   模型：{model}"),
    "peak": ("2. peak: {needed} GiB on a card: {plan}", "2. 峰值：每卡 {needed} GiB：{plan}"),
    "card": (
        "3. card: {cards} x {gpu}, {share} of {usable} GiB; {time}",
        "3. 显卡：{cards} x {gpu}，占可用 {usable} GiB 的 {share}；{time}",
    ),
    "at_hand.slow": (
        "{gpu} is at hand and fits, but a run takes {hours} hours, and {limit} are allowed",
        "手边的 {gpu} 可行，但一次运行需 {hours} 小时，上限为 {limit}",
    ),
    "at_hand.small": ("{gpu} is at hand, and too small", "手边的 {gpu} 显存不足"),
    "at_hand.unseen": ("{gpu} is at hand and was not looked at", "手边的 {gpu} 未列入比较"),
    "card_none": (
        "3. card: none of the catalog fits; see what the nearest lack",
        "3. 显卡：目录中没有可行的卡；见最接近者所缺",
    ),
    "trial": (
        "4. trial: gatewright trial make {project} trial.json; then on each machine: gatewright trial run trial.json",
        "4. 实测：gatewright trial make {project} trial.json；然后在每台机器上：gatewright trial run trial.json",
    ),
    "trial_first": (
        "4. trial: needs samples: gatewright run {project} --until data, then gatewright trial make",
        "4. 实测：需要样本：先 gatewright run {project} --until data，再 gatewright trial make",
    ),
    "delivery": (
        "5. delivery: --sheet FILE.md or FILE.html writes what to ask a vendor for",
        "5. 交付：--sheet FILE.md 或 FILE.html 写出采购清单",
    ),
    "time": ("{low} to {high} hours a run", "每次运行 {low} 到 {high} 小时"),
    "time_unknown": ("time not known: {why}", "时间未知：{why}"),
    "why.samples": ("give --samples, or finish a data stage", "请给出 --samples，或完成 data 阶段"),
    "why.rates": ("no rates of this card are published", "该卡没有公布的速率"),
    "route.name.inference": ("inference (no training)", "推理（不训练）"),
    "route.name.qlora": ("QLoRA", "QLoRA"),
    "route.name.lora": ("LoRA", "LoRA"),
    "route.name.continued": ("continued pre-training", "继续预训练"),
    "route.name.full": ("full fine-tuning", "全量微调"),
    "route.inference": (
        "{samples} training samples are fewer than {few}: first try a prompt with examples; nothing can be held out",
        "训练样本只有 {samples} 条，少于 {few}：先用带示例的提示词；也无法留出评估集",
    ),
    "route.continued": (
        "{share} of an epoch is plain text: this is continued pre-training",
        "每轮有 {share} 是纯文本：属于继续预训练",
    ),
    "route.full": (
        "the adapter run {run} missed the objective with this model, and method is full",
        "适配器运行 {run} 用该模型未达目标，且 method 为 full",
    ),
    "route.qlora_asked": ("method is qlora in project.yaml", "project.yaml 中 method 为 qlora"),
    "route.qlora_memory": (
        "16-bit weights of {weights} GiB leave no room on a card of {usable} GiB",
        "16 位权重 {weights} GiB，在可用 {usable} GiB 的卡上没有余地",
    ),
    "route.qlora_cards": (
        "LoRA fits none of the cards that were looked at, 4-bit weights do",
        "LoRA 在所列显卡上都不可行，4 位权重可行",
    ),
    "route.lora": ("adapters are the lightest training that keeps the weights exact", "适配器是保持权重精确的最轻训练"),
    "route.lora_first": (
        "adapters first: no adapter run of this project has been shown to fall short",
        "先用适配器：本项目还没有适配器运行被证明不足",
    ),
    "model.reached": ("{model} reached the objective in run {run}", "{model} 在运行 {run} 中达到目标"),
    "model.only": (
        "{model} has no smaller relatives in the catalog: it is taken as it is",
        "目录中没有 {model} 的更小同系模型：按原样采用",
    ),
    "model.missed": (
        "run {run} missed the objective: {model} is the next larger of the family",
        "运行 {run} 未达目标：{model} 是同系下一个更大的模型",
    ),
    "model.largest": (
        "run {run} missed the objective, and {model} is the largest of the family: look at the data first",
        "运行 {run} 未达目标，而 {model} 已是同系最大：先检查数据",
    ),
    "model.first": (
        "nothing is measured yet: begin with {model}, go up to {base} when evaluation misses the objective",
        "尚无实测：先用 {model}，评估未达目标时再升到 {base}",
    ),
    "warn.full": (
        "method full before any adapter run of this project: a LoRA run costs a fraction and shows what data can do",
        "本项目还没有适配器运行就用 full：LoRA 成本只是零头，且能先看出数据的效果",
    ),
    "warn.large": (
        "{model} has {billions} billion parameters, and no adapter run of this project shows that a smaller one fails",
        "{model} 有 {yi} 亿参数，而本项目没有适配器运行证明更小的模型不够",
    ),
    "warning": ("warning: {text}", "警告：{text}"),
    "table": ("cards for {model}, {method}", "{model}，{method} 的显卡"),
    "col.gpu": ("cards", "显卡"),
    "col.memory": ("memory", "显存"),
    "col.plan": ("plan", "方案"),
    "col.hours": ("hours a run", "小时/次"),
    "col.rent": ("rent", "租"),
    "col.own": ("own", "买"),
    "col.host": ("host", "托管"),
    "col.way": ("better", "建议"),
    "way.rent": ("rent", "租"),
    "way.own": ("own", "自有"),
    "way.host": ("host", "托管"),
    "oversized": ("over-sized", "过大"),
    "laptop": ("laptop", "笔记本"),
    "verdict.local_data": ("data must stay: own or host in the house", "数据不得外传：自有或本地托管"),
    "verdict.cheapest_rent": ("renting is cheapest for this use", "按此用量租用最便宜"),
    "verdict.cheapest_own": ("owning is cheapest for this use", "按此用量自有最便宜"),
    "verdict.cheapest_host": ("hosting is cheapest for this use", "按此用量托管最便宜"),
    "verdict.long": (
        "a run takes more than 12 hours: rent, rather than block a card at hand",
        "一次运行超过 12 小时：租用，不要占住手边的卡",
    ),
    "verdict.no_prices": (
        "a run takes less than 12 hours: a card at hand does it; to buy or rent, give --rent, --buy, --host, --kwh",
        "一次运行不到 12 小时：手边的卡即可；是否租或买，请给出 --rent、--buy、--host、--kwh",
    ),
    "break_even": (
        "owning is cheaper from {hours} hours of training on; planned: {worked} hours, a load of {load}",
        "训练超过 {hours} 小时后自有更便宜；计划 {worked} 小时，负载 {load}",
    ),
    "oversized_note": (
        "over-sized: {names} would be used to less than half, and a smaller card of the table does it",
        "过大：{names} 的显存用不到一半，表中有更小的卡可用",
    ),
    "laptop_note": (
        "laptops: times at 0.60 to 0.70 of the listed rate, because they throttle; keep runs under {hours} hours",
        "笔记本：按标称速率的 0.60 到 0.70 计，因为会降频；运行请控制在 {hours} 小时内",
    ),
    "assumed": (
        "counted with rent: {setup} h set-up and {transfer:.2f} h transfer ({gb:.1f} GB at {rate:g} MB/s) for each of "
        "{runs} runs; power: TDP x 1.5 of the machine",
        "租用计入：每次 {setup} 小时准备和 {transfer:.2f} 小时传输（{gb:.1f} GB，{rate:g} MB/s），共 {runs} 次；"
        "用电：TDP x 1.5",
    ),
    "left_out": (
        "{count} cards of the catalog were not looked at (no CUDA or no bf16); --gpu NAME looks at one",
        "目录中 {count} 种卡未列入（无 CUDA 或无 bf16）；用 --gpu NAME 单独查看",
    ),
    "more": ("{count} more fit; --all shows them", "还有 {count} 种可行；--all 全部显示"),
    "none_fit": ("{count} do not fit; the nearest: {names}", "{count} 种不可行；最接近：{names}"),
    "unknown": ("not known: {names}", "未知：{names}"),
    "unknown.samples": ("number of samples", "样本数"),
    "unknown.parameters": ("parameters of the base model", "基座模型的参数量"),
    "lengths": (
        "lengths: {source}",
        "长度：{source}",
    ),
    "measured": (
        "measured: the stress test of run {run} on {device}; the rows of that card take its peak and times",
        "实测：运行 {run} 在 {device} 上的压力测试；该显卡所在行采用其峰值与用时",
    ),
    "measured.elsewhere": (
        "the stress test of run {run} was on {device}, of which no row is, or of another model: all rows are predicted",
        "运行 {run} 的压力测试在 {device} 上进行，表中没有该设备，或其模型不同：各行均为预测值",
    ),
    "lengths.run": ("of run {run}", "来自运行 {run}"),
    "lengths.given": (
        "every sample as long as {length} tokens (no data stage is finished)",
        "每条样本按 {length} 词元计（data 阶段未完成）",
    ),
    "recipe.card": ("card", "显卡"),
    "recipe.method": ("method", "方法"),
    "recipe.model": ("largest model", "最大模型"),
    "recipe.batch": ("batch", "批"),
    "recipe.optimizer": ("optimizer", "优化器"),
    "recipe.needed": ("needs, GB", "所需 GB"),
    "recipe.peak": ("peak in", "峰值所在"),
    "recipe.practitioners": ("practitioners say", "经验说法"),
    "recipe.none": ("none of the ladder", "所列模型均不可行"),
    "recipe.read": (
        "batch: micro batch x length x accumulation; the largest model that keeps 1,024 tokens within 90 % of what can "
        "be used; practitioners' figures are of 7B models and checked in docs/choosing-hardware.md",
        "批：微批 x 长度 x 累积；最大模型指至少 1,024 词元且不超过可用显存 90 % 者；经验说法多指 7B 模型，"
        "核对见 docs/choosing-hardware.md",
    ),
    "practice.6": ("3B to 4B QLoRA", "3B 到 4B 的 QLoRA"),
    "practice.8": ("7B QLoRA at 512 to 1,024", "7B QLoRA，长度 512 到 1,024"),
    "practice.12": ("7B QLoRA 1x1024, 9 to 11 GB", "7B QLoRA 1x1024，9 到 11 GB"),
    "practice.24": ("7B LoRA 1x1536", "7B LoRA 1x1536"),
    "practice.32": ("7B LoRA 2x2048x8", "7B LoRA 2x2048x8"),
    "written": ("written: {path}", "已写入：{path}"),
}

text = Texts(_TEXTS)


def reason(language: Language, one: Reason) -> str:
    """A reason as a sentence."""
    return text(language, one.key, **one.values)
