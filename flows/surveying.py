"""What the sources hold before the data stage has run: for the first gate and for `decompose`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.goal_terms import goal_terms, pattern
from specs.project import Project


def survey_of(project_dir: Path, spec: Project, base_model: Path | None, goal: str = "") -> dict[str, Any]:
    """Counts, lengths and the words of the goal that no source has, as `ProposerContext.survey` takes them."""
    from tasks.data.survey import survey

    wanted = {word: pattern(words) for word, words in goal_terms(goal or spec.goal or "").items()}
    return survey(project_dir, spec, base_model, wanted).model_dump(mode="json")
