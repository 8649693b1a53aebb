"""What `checks.json` and `generated.jsonl` of a dry run show: batches, masks, and ends of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.criteria import Metric
from specs.tolerances import tolerance
from tasks.verify import training_logs as logs
from tasks.verify.applicable import NO_QUESTION, not_applicable, without_questions_in

GRADIENT = 10.0
"""A gradient may differ by so many times what a loss may: its sums cancel more. Measured on the tiny model in fp32:
1.6e-7 where the losses differ by 5e-8."""

Document = Mapping[str, Any]


Planned = Sequence[Mapping[str, Any]]
"""The lines of a batch plan."""


def regrouping_difference(checks: Document, settings: Document, planned: Planned) -> Metric:
    """Loss and gradient of one step as one micro batch against single samples, as a share of what is allowed.

    It does not apply where every planned step has one sample.
    """
    row = _row(settings)
    if not checks or row is None:
        return logs.missing("share", "checks.json or settings.json")
    if len(checks["samples"]) < 2:
        reason = "one sample cannot be cut into two micro batches"
        several = not planned or max(Counter(line["step"] for line in planned).values()) > 1
        return Metric(value=None, unit="share", reason=reason) if several else not_applicable("share", reason)
    whole, split, norm = checks["loss_whole"], checks["loss_split"], checks["gradient_norm"]
    if None in (whole, split, norm, checks["gradient_distance"]) or not whole or not norm:
        return Metric(value=None, unit="share", reason="a loss or gradient of checks.json is zero or not finite")
    loss = abs(split - whole) / abs(whole)
    gradient = checks["gradient_distance"] / norm / GRADIENT
    return Metric(value=max(loss, gradient) / row.regrouped, unit="share")


def masked_token_effect(checks: Document, settings: Document, planned: Planned) -> Metric:
    """What the loss changes by when padding holds other tokens, and what it differs by from the sum over the tokens
    that are to be learnt alone; each beyond what the device computes differently anyway.

    A step without padding shows it where the whole plan has none.
    """
    unit, row = "nats/token", _row(settings)
    if not checks or row is None:
        return logs.missing(unit, "checks.json or settings.json")
    whole, changed, alone = (checks[k] for k in ("loss_whole", "loss_padding_changed", "loss_of_learnt_tokens"))
    if None in (whole, changed, alone):
        return Metric(value=None, unit=unit, reason="a loss of checks.json is not finite")
    padded = not planned or any(line["padded_tokens"] > line["n_tokens"] for line in planned)
    if not checks["padding_tokens"] and padded:
        return Metric(value=None, unit=unit, reason="the checked step holds no padding")
    padding = max(0.0, abs(changed - whole) - row.repeated * abs(whole))
    others = max(0.0, abs(alone - whole) - row.regrouped * abs(whole))
    return Metric(value=max(padding, others), unit=unit)


def ended_share(generated: Sequence[Document], samples: Path | None) -> Metric:
    """Answers that ended before they had all the tokens they were given; `samples` are those that were trained on."""
    if not generated and samples is not None and without_questions_in(samples):
        return not_applicable("share", NO_QUESTION)
    if not generated:
        return logs.missing("share", "generated.jsonl")
    return Metric(value=sum(bool(g["ended"]) for g in generated) / len(generated), unit="share")


def _row(settings: Document) -> Any:
    if not settings:
        return None
    return tolerance(settings["device"]["kind"], settings["requested"]["compute"])
