"""How much work a stage is, counted in a few units, and the rule of thumb for the seconds of each.

The units: `starts` of worker processes, `micro_batches` (a forward and backward pass), floating-point `operations`,
`rows` of the sources, `generated` tokens of answers. What a rule of thumb leaves out (verification, plots, saving) is
in the rates once something was timed, see `agents/rates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agents.contract import ProposerContext
from agents.facts import SECONDS_PER_MICRO_BATCH, DataFacts, seconds_per_operation, source_rows
from agents.operations import Products, products_of
from agents.training_rules import planned_steps
from specs.parameters import EvaluateParameters, TrainingConfiguration
from specs.trials import TrialParameters

Work = dict[str, float]

STARTS: Work = {"data": 0.15, "dry_run": 3, "stress_test": 2, "train": 1, "evaluate": 1}
"""Worker processes that a stage starts one after the other; the dry run's proof of resume takes two, and the data stage
loads some libraries only."""
SECONDS_PER_START = 7.0
"""Python, libraries, a model of half a million parameters: the quiet runs of the examples, two cores."""
SECONDS_PER_ROW = 1.7e-3
"""Preparing and verifying 103,000 work orders took 78 and 91 CPU seconds."""
PROOF_STEPS = 8
"""Steps that the dry run trains for its proof of resume, both ways."""
STRESS_STEPS = 3
"""Steps of the stress test beside those of the heaviest bucket, in each of its two passes."""
LOSSES_OF_A_SAMPLE = 4
"""Forward passes of an evaluation: base and trained model, on the sample's own answer and on another's."""
_MEMORY_BYTES_PER_S, _SECONDS_PER_TOKEN = 20e9, 5e-3
"""What bounds an answer that is written token by token: every weight is read for each, and the program around it."""


def seconds_of_units(context: ProposerContext) -> dict[str, float] | None:
    """The rule of thumb for each unit; null where the speed of the device or the size of the model is not known."""
    model, of_operation = products_of(context.base_model), seconds_per_operation(context.device)
    if model is None or of_operation is None:
        return None
    return {
        "starts": SECONDS_PER_START,
        "micro_batches": SECONDS_PER_MICRO_BATCH,
        "operations": of_operation,
        "rows": SECONDS_PER_ROW,
        "generated": _SECONDS_PER_TOKEN + 4 * model.parameters / _MEMORY_BYTES_PER_S,
    }


def training_work(
    model: Products, training: TrainingConfiguration, tokens: float, length: float, passes: float
) -> Work:
    """Of `passes` forward and backward passes over so many tokens in all, of samples of this length."""
    return {"micro_batches": passes, "operations": model.training(tokens, tokens * length, training)}


def mean_tokens(facts: DataFacts) -> float | None:
    """Of a sample; where nobody looked at the records, a guess from the longest."""
    return facts.mean or (facts.longest * 0.6 if facts.longest else None)


def mean_step(model: Products, training: TrainingConfiguration, mean: float) -> Work:
    """An optimizer step of samples of the mean length."""
    tokens = _within_a_step(training, training.effective_batch * mean)
    return training_work(model, training, tokens, mean, _passes(training, mean, training.effective_batch))


def worst_step(model: Products, training: TrainingConfiguration) -> Work:
    """An optimizer step of the longest samples."""
    length = training.max_length
    tokens = _within_a_step(training, float(training.effective_batch * length))
    return training_work(model, training, tokens, length, training.gradient_accumulation)


def _within_a_step(training: TrainingConfiguration, tokens: float) -> float:
    return tokens if training.max_tokens_per_step is None else min(tokens, float(training.max_tokens_per_step))


def all_steps(model: Products, training: TrainingConfiguration, mean: float, samples: int) -> Work:
    """The training of so many samples, those of later epochs counted again."""
    return training_work(model, training, samples * mean, mean, _passes(training, mean, samples))


def _passes(training: TrainingConfiguration, mean: float, samples: int) -> int:
    """Micro batches of so many samples; fewer where short ones fill what long ones would take, one a step at least."""
    alone = math.ceil(samples / training.micro_batch)
    if not training.fill_micro_batches:
        return alone
    room = training.max_tokens_per_micro_batch or training.micro_batch * training.max_length
    return min(alone, math.ceil(max(samples / training.effective_batch, samples * mean / room)))


def stage_work(
    context: ProposerContext, stage: str, parameters: Mapping[str, Any], facts: DataFacts, samples: int
) -> Work | None:
    """The whole stage, start-up included; null where it cannot be counted.

    `facts` are of the data, `samples` those that are trained in this stage, or evaluated.
    """
    rows = context.survey.get("rows") if context.survey.get("complete") else None
    if stage == "data":
        counted = rows if rows is not None else source_rows(context)
        return {"starts": STARTS[stage], "rows": counted} if counted else None
    model, mean = products_of(context.base_model), mean_tokens(facts)
    if model is None or mean is None or stage not in STARTS:
        return None
    starts = {"starts": STARTS[stage]}
    if stage == "evaluate":
        return starts | _evaluation(model, EvaluateParameters.model_validate(dict(parameters)), mean, samples)
    training = TrainingConfiguration.model_validate(parameters["training"])
    if stage == "stress_test":
        steps = 2 * (int(parameters.get("growth_steps") or 0) + STRESS_STEPS)
        return starts | _times(worst_step(model, training), steps)
    if stage == "dry_run":
        steps = planned_steps(samples, training).steps + PROOF_STEPS + _trial_steps(parameters)
        return starts | _times(mean_step(model, training, mean), steps)
    return starts | all_steps(model, training, mean, samples)


def _times(work: Work, count: float) -> Work:
    return {name: value * count for name, value in work.items()}


def _trial_steps(parameters: Mapping[str, Any]) -> int:
    """Optimizer steps of all small trials, on the dry run's model."""
    trials = TrialParameters.model_validate(parameters.get("trials") or {})
    kinds = sum(1 if dimension == "length" else 2 for dimension in trials.vary)
    return (1 + kinds) * trials.repeats * trials.steps if kinds else 0


def _evaluation(model: Products, parameters: EvaluateParameters, mean: float, samples: int) -> Work:
    passes = LOSSES_OF_A_SAMPLE * samples
    answers = 2 * min(parameters.generations, samples) * parameters.max_new_tokens
    return {
        "micro_batches": passes / parameters.loss_batch,
        "operations": model.forward(mean * passes, mean**2 * passes),
        "generated": answers / parameters.generation_batch,
    }
