"""Rules of thumb that are passed around, each set against the account. A verdict is computed, its reason is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specs.hardware import find_model
from specs.stages import Progress
from tasks.advising.claims import GIB, Claim, answered, needed_bytes, needed_gib, resident_bytes
from tasks.planning.plans import Plan

L7, L13, L33, L70 = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b-hf",
    "huggyllama/llama-30b",
    "meta-llama/Llama-2-70b-hf",
)
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
CARD_24, CARD_32, CARD_80, CARD_128 = "RTX 4090", "RTX 5090", "A100 SXM4 80GB", "Gaudi 3"
QUERY_VALUE = ("q_proj", "v_proj")

Plans = Sequence[Plan]


@dataclass(frozen=True)
class Rule:
    """`holds` judges the plans of `claims`; `says` puts their figures into words; `why` explains the verdict."""

    rule: str
    claims: tuple[Claim, ...]
    holds: Callable[[Plans], bool]
    says: Callable[[Plans], str]
    why: str


@dataclass(frozen=True)
class Judged:
    """A rule with what the account says."""

    rule: Rule
    says: str
    holds: bool


def judged(progress: Progress | None = None, rules: Sequence[Rule] | None = None) -> list[Judged]:
    """Every rule against the account, in their order."""
    rules = RULES if rules is None else rules
    plans = answered([claim for rule in rules for claim in rule.claims], progress)
    found = []
    for rule in rules:
        mine, plans = plans[: len(rule.claims)], plans[len(rule.claims) :]
        found.append(Judged(rule, rule.says(mine), rule.holds(mine)))
    return found


def _claim(model: str, gpu: str, method: str, micro_batch: int, seq_len: int, **more: object) -> Claim:
    values = {"model": model, "gpu": gpu, "method": method, "micro_batch": micro_batch, "seq_len": seq_len}
    return Claim.model_validate(values | more)


def _of(plan: Plan) -> str:
    assert plan.account is not None
    assert plan.account.fits is not None
    return f"{needed_gib(plan):.1f} of {plan.account.fits.usable_bytes / GIB:.1f} GiB ({plan.utilisation:.0%})"


def _each(plans: Plans) -> str:
    return ", ".join(map(_of, plans))


def _gb(plan: Plan) -> float:
    return needed_bytes(plan) / 1e9


def _states(plan: Plan) -> float:
    return resident_bytes(plan, "weights", "gradients", "optimizer_states") / 1e9


def _slower(with_it: Plan, without: Plan) -> float:
    assert with_it.seconds is not None
    assert without.seconds is not None
    return with_it.seconds.expected / without.seconds.expected - 1


def _saved(plans: Plans, heavy: int, light: int) -> float:
    return (needed_bytes(plans[heavy]) - needed_bytes(plans[light])) / 1e9


def _left(plan: Plan) -> float:
    assert plan.account is not None
    assert plan.account.fits is not None
    return (plan.account.fits.usable_bytes - needed_bytes(plan)) / 1e9


RULES: tuple[Rule, ...] = (
    Rule(
        "7B full fine-tuning has 112 GB of states",
        (_claim(L7, CARD_80, "full", 1, 2048), _claim(L7, CARD_80, "full", 1, 2048, exact=False)),
        lambda p: abs(_states(p[0]) / 112 - 1) <= 0.05,
        lambda p: f"{_states(p[0]):.0f} GB with fp32 weights, {_states(p[1]):.0f} GB in pure bf16",
        "16 bytes a parameter, and Llama 2 7B has 6.74 billion. Only true where weights are kept in fp32.",
    ),
    Rule(
        "7B LoRA runs on cards of 24 and 32 GB",
        (_claim(L7, CARD_24, "lora", 1, 2048), _claim(L7, CARD_32, "lora", 1, 2048)),
        lambda p: all(one.feasible for one in p),
        _each,
        "One sample of 2,048 tokens, recomputed activations.",
    ),
    Rule(
        "7B LoRA, 4 samples of 2,048, takes 24 to 28 GB",
        (
            _claim(L7, CARD_32, "lora", 4, 2048),
            _claim(L7, CARD_32, "lora", 4, 2048, activation_checkpointing=False),
        ),
        lambda p: any(24 <= _gb(one) <= 28 for one in p),
        lambda p: f"{_gb(p[0]):.1f} GB, without recomputed activations {_gb(p[1]):.1f} GB",
        "Too high with recomputed activations, far too low without them.",
    ),
    Rule(
        "7B in 4 bit, 8 samples of 4,096, leaves 2 to 3 of 32 GB",
        (
            _claim(L7, CARD_32, "qlora", 8, 4096),
            _claim(L7, CARD_32, "qlora", 8, 4096, targets=QUERY_VALUE),
            _claim(L7, CARD_32, "qlora", 4, 4096),
        ),
        lambda p: any(2 <= _left(one) <= 3 for one in p[:2]),
        lambda p: f"{_of(p[0])}; adapters on q and v alone {_of(p[1])}; 4 samples {_of(p[2])}",
        "It does not fit: the activations of 32,768 tokens at once take most of the card.",
    ),
    Rule(
        "7B full fine-tuning runs on 4 cards of 32 GB with ZeRO-3",
        tuple(_claim(L7, CARD_32, "full", 1, 2048, cards=n, sharding="zero3") for n in (4, 5)),
        lambda p: p[0].feasible,
        lambda p: f"{_states(p[0]) * 1e9 / GIB:.1f} GiB of states, {_of(p[0])}; 5 cards {_of(p[1])}",
        "It fits, with almost nothing to spare: above 90 % the stress test stops a run, and 5 cards have room. The "
        "step of the optimizer is taken in DeepSpeed's groups of `sub_group_size` values (1e9 by default); one step "
        "over the whole share would not fit.",
    ),
    Rule(
        "13B LoRA is tight on 32 GB",
        (_claim(L13, CARD_32, "lora", 1, 2048),),
        lambda p: 0.8 <= p[0].utilisation <= 1.0,
        _each,
        "Weights in 16 bits alone are 24.2 GiB.",
    ),
    Rule(
        "13B full fine-tuning runs on 4 cards of 80 GB",
        (_claim(L13, CARD_80, "full", 1, 2048, cards=4, sharding="zero3"),),
        lambda p: p[0].feasible,
        _each,
        "With ZeRO-3; one sample of 2,048 tokens a card.",
    ),
    Rule(
        "33B can only be trained as QLoRA (on one card of 32 GB)",
        (_claim(L33, CARD_32, "lora", 1, 1024), _claim(L33, CARD_32, "qlora", 1, 1024)),
        lambda p: not p[0].feasible and p[1].feasible,
        lambda p: f"LoRA {_of(p[0])}, QLoRA {_of(p[1])}",
        "LoRA needs the weights in 16 bits, which are twice the card.",
    ),
    Rule(
        "33B in 4 bit is under 20 GB",
        (_claim(L33, CARD_24, "qlora", 1, 1024),),
        lambda p: _gb(p[0]) < 20,
        lambda p: f"weights {resident_bytes(p[0], 'weights') / 1e9:.1f} GB, training {_gb(p[0]):.1f} GB",
        "True of the weights, not of training: adapters with their states, activations and the framework come on top.",
    ),
    Rule(
        "70B QLoRA takes about 42 GB and so does not run on 32 GB",
        (_claim(L70, CARD_32, "qlora", 1, 1024),),
        lambda p: abs(_gb(p[0]) / 42 - 1) <= 0.1 and not p[0].feasible,
        lambda p: f"{_gb(p[0]):.1f} GB: {_of(p[0])}",
        "One sample of 1,024 tokens.",
    ),
    Rule(
        "70B full fine-tuning runs on 16 cards of 128 GB",
        (_claim(L70, CARD_128, "full", 1, 2048, cards=16, nodes=2, sharding="zero3"),),
        lambda p: p[0].feasible,
        _each,
        "With ZeRO-3 over two machines; what can be used of 128 GB is less than 128 GB.",
    ),
    Rule(
        "8 cards of 128 GB are too few for 70B full fine-tuning",
        (_claim(L70, CARD_128, "full", 1, 2048, cards=8, sharding="zero3"),),
        lambda p: not p[0].feasible,
        _each,
        "The states alone are more than all 8 cards have.",
    ),
    Rule(
        "A mixture of experts saves no memory",
        (_claim(MIXTRAL, CARD_80, "lora", 1, 2048, targets=QUERY_VALUE),),
        lambda p: resident_bytes(p[0], "weights") >= 2 * 0.98 * (find_model(MIXTRAL).params_total or 0),
        lambda p: f"{resident_bytes(p[0], 'weights') / 1e9:.1f} GB of weights for 46.7 billion parameters",
        "Every expert is resident, although two of eight are used for a token.",
    ),
    Rule(
        "Recomputing activations costs 20 to 40 % of time",
        (
            _claim(L7, CARD_80, "full", 1, 2048, exact=False),
            _claim(L7, CARD_80, "full", 1, 2048, exact=False, activation_checkpointing=False),
            _claim(L7, CARD_24, "lora", 1, 2048),
            _claim(L7, CARD_24, "lora", 1, 2048, activation_checkpointing=False),
        ),
        lambda p: all(0.2 <= slower <= 0.4 for slower in (_slower(p[0], p[1]), _slower(p[2], p[3]))),
        lambda p: f"full {_slower(p[0], p[1]):.0%}, LoRA {_slower(p[2], p[3]):.0%} (counted work, not measured)",
        "True of full fine-tuning, where a forward pass is a third of the work. Adapters need no gradients of the "
        "frozen weights, so that it is nearly half of the work, and doing it twice costs more.",
    ),
    Rule(
        "An 8-bit optimizer saves 1 GB",
        (
            _claim(L7, CARD_24, "lora", 1, 2048),
            _claim(L7, CARD_24, "lora", 1, 2048, optimizer="adamw_8bit"),
            _claim(L7, CARD_80, "full", 1, 2048, exact=False),
            _claim(L7, CARD_80, "full", 1, 2048, exact=False, optimizer="adamw_8bit"),
        ),
        lambda p: 0.8 <= _saved(p, 0, 1) <= 1.2,
        lambda p: f"7B LoRA {_saved(p, 0, 1):.1f} GB, 7B full in bf16 {_saved(p, 2, 3):.1f} GB",
        "It saves 6 bytes a trained parameter in fp32, 2 in bf16. Adapters of rank 16 are 40 million: there is nothing "
        "to save. Full fine-tuning saves far more than 1 GB.",
    ),
)
