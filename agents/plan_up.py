"""What the gate after a stress test warns of: settings that its ladder took, and memory that was left unused."""

from __future__ import annotations

from agents.contract import MemoryFunction, ProposerContext
from agents.reason_texts import text
from agents.training_rules import CPU_MICRO_TOKENS
from specs.hardware import FILLED_FROM, FILLED_TO
from specs.limits import limits
from specs.parameters import TrainingConfiguration, leaves
from specs.proposals import Proposal
from specs.units import human


def after_stress_test(context: ProposerContext, measured: Proposal, memory: MemoryFunction | None) -> list[str]:
    """Warnings of the gate of `train`. A plan that uses more needs a stress test of its own: a person asks for it."""
    language = context.spec.language
    took = [f"{r.parameter.rpartition('.')[2]} {r.text}" for r in measured.reasons if r.source == "ladder"]
    found = [text(language, "warn_ladder", changes="; ".join(took))] if took else []
    evidence = context.evidence.get("stress_test")
    share = evidence.metrics.get("usable_share") if evidence else None
    if took or share is None or share.value is None or share.value >= FILLED_FROM:
        return found
    shown = human(share.value, "share", language)
    if count := left_for_length(context):
        return [*found, text(language, "warn_longer", share=shown, count=count)]
    training = TrainingConfiguration.model_validate(measured.parameters["training"])
    up = plan_up(context, training, memory) if memory else None
    if up is None or memory is None:
        return found
    names = ("gradient_accumulation", "micro_batch")
    values = {name: getattr(up, name) for name in names}
    check = memory(up)
    found.append(
        text(
            language,
            "warn_plan_up",
            share=shown,
            change=", ".join(f"{name} {value}" for name, value in values.items()),
            predicted=human(check.peak_bytes / check.usable_bytes, "share", language),
            wants=" ".join(f"--want {name}={value}" for name, value in values.items()),
        )
    )
    return found


def left_for_length(context: ProposerContext) -> int:
    """Records that the data stage left out because they were longer than its limit."""
    reasons = context.lengths.get("reasons")
    found = reasons.items() if isinstance(reasons, dict) else ()
    return sum(int(count) for reason, count in found if str(reason).endswith(": over_long"))


def plan_up(
    context: ProposerContext, training: TrainingConfiguration, memory: MemoryFunction
) -> TrainingConfiguration | None:
    """The largest micro batch above the measured one, with less accumulation, that is predicted to fit.

    It stays within the limits of the spec, and on a CPU within the tokens of a pass that bring speed.
    """
    size, ranks = training.effective_batch, training.ranks
    on_cpu = context.device.get("kind", "cpu") == "cpu"
    for micro in range(size, training.micro_batch, -1):
        if size % micro or size // micro % ranks or (on_cpu and micro * training.max_length > CPU_MICRO_TOKENS):
            continue
        other = training.model_copy(update={"micro_batch": micro, "gradient_accumulation": size // micro})
        if _limited(context, other):
            continue
        if memory(other).within(min(FILLED_TO, context.spec.fillable or FILLED_TO)).fits:
            return other
    return None


def _limited(context: ProposerContext, training: TrainingConfiguration) -> bool:
    flat = leaves(training.model_dump(mode="json"))
    names = ("training.micro_batch", "training.gradient_accumulation")
    return any(
        limit.broken_by(flat[limit.path.removeprefix("training.")])
        for limit in limits(context.spec, "stress_test")
        if limit.path in names
    )
