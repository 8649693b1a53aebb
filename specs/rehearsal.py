"""A rehearsal: the whole chain on a small part of the samples. What is asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from specs.criteria import Criterion

LEARNT: dict[str, frozenset[str]] = {
    "train": frozenset({"loss_trend", "training_hours"}),
    "evaluate": frozenset(
        {
            "eval_loss_change",
            "pairing_gain",
            "pairing_certainty",
            "fault_type_coverage",
            "general_text_loss_change",
            "ended_share",
        }
    ),
}
"""What says how much was learnt: of a rehearsal, which hardly trains, it is shown and blocks nothing."""


def rehearsed_criteria(stage: str, criteria: Sequence[Criterion], objective: str = "") -> list[Criterion]:
    """The criteria of a stage in a rehearsal: what it is there to show blocks, what was learnt does not.

    `objective` is the metric of the spec's objective. A rehearsal resumes its training once.
    """
    learnt = LEARNT.get(stage, frozenset()) | ({objective} if stage == "evaluate" else set())
    found = [c.model_copy(update={"blocking": False}) if c.metric in learnt else c for c in criteria]
    return [*found, Criterion(metric="resumes", op=">=", bound=1)] if stage == "train" else found
