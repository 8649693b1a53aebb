"""What a stage took and the work that it did: from this the next one's time is predicted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specs.base import Language, Strict

STAGE_SECONDS = "stage_seconds"
"""The name under which a sheet expects how long a whole stage takes, from its start to its evidence."""

TITLES: dict[str, dict[Language, str]] = {STAGE_SECONDS: {"en": "time of the whole stage", "zh": "整个阶段的用时"}}
"""Of what every stage has and no artifact shows, so that it is no metric."""


COUNTING = 3
"""Version of how work is counted: what was counted otherwise says nothing of the rates of now."""


class Took(Strict):
    """A piece of work: seconds on the clock, seconds of processor time, and how much was done.

    `work` counts in units that a prediction can count too, see `agents/work.py`. A step of training that begins a
    session is in no piece: libraries and caches warm up in it.
    """

    kind: Literal["stage", "steps"] = Field(description="a whole stage, or optimizer steps")
    work: dict[str, float]
    counting: int = Field(1, description="the version of `COUNTING` that counted the work")
    wall_s: float = Field(gt=0)
    cpu_s: float | None = Field(None, ge=0, description="of all processes that did it; null: not measured")
    cores: float | None = Field(None, ge=0, description="most processors it kept busy: of ten steps nine kept fewer")
    others_cpu_share: float | None = Field(None, ge=0, le=1, description="of the processors' time, used by others")
    stage: str
    device: str = Field(description="what must be the same for a rate to hold, as `flows/costs.py` names it")
    model: str = Field("", description="digest of the model that was worked on; empty: none")
    setting: str = Field("", description="what else decides how fast training is: method, types, threads, ranks")

    @property
    def on_cpu(self) -> bool:
        """Whether the processors did the work, so that their time says how much it was."""
        return not self.device.startswith("cuda")
