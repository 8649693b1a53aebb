"""The earlier training that a run goes on from: which weights, proven by digest, and what was trained to get them."""

from __future__ import annotations

from pydantic import Field

from specs.base import Sha256, Strict
from specs.parameters import LoraParameters, Method, TrainingConfiguration
from specs.words import compared


class LearntSamples(Strict):
    """A `samples.parquet` whose training part is in the weights; `path` is relative to the project."""

    run: str = Field(description="the run that they are of")
    path: str = Field(description="relative to the project")
    sha256: Sha256 = Field(description="of the file")


class Parent(Strict):
    """What `parent` in a spec meant when the run began; frozen with the spec, and so in every gate's digest."""

    named: str = Field(description="as in the spec")
    run: str = Field("", description="the run that trained it; empty: not known")
    folder: str = Field(description="holds adapter/; relative to the project")
    weights_sha256: Sha256 = Field(description="of adapter/")
    base_model: str = Field("", description="as the parent's spec named it")
    base_model_sha256: Sha256 = Field(description="weights, configuration and tokenizer of the base model")
    method: Method = Field(description="how it was trained")
    lora: LoraParameters = Field(description="its adapters")
    learnt: list[LearntSamples] = Field(
        default_factory=list, description="samples of the parent, and of its own parents"
    )
    learnt_unknown: bool = Field(False, description="the samples of it or of one of its parents are not here")


def differing(parent: Parent, training: TrainingConfiguration | None, base_model_sha256: str | None) -> list[str]:
    """A table of what must be the same as for the parent and is not, as lines (what, of the parent, here); else empty.

    An adapter fits only the weights, the tokenizer and the layers that it was trained on, at the scale it had. Null
    for what is not known yet.
    """
    pairs: list[tuple[str, object, object]] = []
    if base_model_sha256 is not None:
        pairs.append(("base model and tokenizer", parent.base_model_sha256[:16], base_model_sha256[:16]))
    if training is not None:
        pairs.append(("method", parent.method, training.method))
        pairs += [
            (f"lora.{name}", _shown(getattr(parent.lora, name)), _shown(getattr(training.lora, name)))
            for name in ("rank", "alpha", "targets")
        ]
    rows = [(what, str(was), str(now)) for what, was, now in pairs if was != now]
    if not rows:
        return []
    return compared(("what", "of the parent", "here"), rows)


def _shown(value: object) -> object:
    return ", ".join(sorted(value)) if isinstance(value, list) else value
