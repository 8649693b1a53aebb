"""What stands between a proposal and a gate: schema, bounds, caps, scope lock, fingerprint, memory.

The same checks for the rules, for a language model and for a person's `--set`. Pure: nothing is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agents.contract import MemoryFunction, fillable_at
from agents.siblings import dry_run_model
from specs.base import Strict
from specs.canonical import plain
from specs.errors import GuardRefused
from specs.limits import limits
from specs.parameters import PARAMETERS, TrainingConfiguration, leaves, replace, resolve
from specs.parent import differing
from specs.project import Project
from specs.proposals import MemoryCheck, Proposal, Reason
from specs.words import nearest


def check(
    proposal: Proposal,
    spec: Project,
    *,
    approved: Mapping[str, Proposal] | None = None,
    memory: MemoryFunction | None = None,
) -> list[str]:
    """Everything that is wrong with a proposal, in words; an empty list is a pass.

    `approved` are the proposals that finished stages ran with. `memory` is asked only when the schema holds.
    """
    parameters, problems = _schema(proposal, spec)
    if parameters is None:
        return problems
    stored = plain(parameters)
    if stored != plain(proposal.parameters):
        problems.append("the parameters are not written out in full, every default included")
    flat = leaves(parameters.model_dump(mode="json"))  # canonical form would turn a huge number into a text
    for limit in limits(spec, proposal.stage):
        if limit.path in flat and (broken := limit.broken_by(flat[limit.path])):
            problems.append(broken)
    problems += _scope(proposal.stage, stored, spec)
    problems += _same_as_stress_test(proposal, approved or {})
    training = getattr(parameters, "training", None)
    if training is not None and proposal.stage != "dry_run":
        problems += _other_than_parent(training, spec)
    if training is not None:
        problems += training_problems(training)
        if memory is not None and not problems:
            problems += memory_problems(memory(training), training, fillable_at(spec, proposal.stage))
    return problems


def guard(
    proposal: Proposal,
    spec: Project,
    *,
    approved: Mapping[str, Proposal] | None = None,
    memory: MemoryFunction | None = None,
) -> Proposal:
    """The proposal with its memory check attached; raises `GuardRefused` with everything that is wrong."""
    problems = check(proposal, spec, approved=approved, memory=memory)
    if problems:
        raise GuardRefused(
            f"the proposal for {proposal.stage} is refused: " + "; ".join(problems),
            _stay_inside(proposal.stage, spec),
        )
    if memory is None or "training" not in proposal.parameters:
        return proposal
    account = memory(TrainingConfiguration.model_validate(proposal.parameters["training"]))
    return proposal.model_copy(update={"memory": account})


def _stay_inside(stage: str, spec: Project) -> str:
    """Where project.yaml says what a stage may be given."""
    where = "the limits under stages and caps"
    if stage in spec.added_stages:
        where = f"the names, limits and choices under added_stages.{stage}.parameters"
    return f"stay inside {where} in project.yaml, or change them there before a new run"


@dataclass(frozen=True)
class Change:
    """A new value for one parameter: `key` is a dotted path or its unique end (`lr`)."""

    key: str
    value: Any
    reason: str
    source: str


def apply_changes(proposal: Proposal, changes: Sequence[Change]) -> Proposal:
    """The proposal with changed values, schema checked, to be guarded again. Raises `GuardRefused`.

    A text value is read as JSON where it is JSON: language models write numbers as texts.
    """
    parameters: dict[str, Any] = dict(proposal.parameters)
    reasons = list(proposal.reasons)
    for change in changes:
        path = resolve(parameters, change.key)
        if path is None:
            raise GuardRefused(f"{proposal.stage} has no parameter {change.key!r}", _near(change.key, parameters))
        parameters = replace(parameters, path, _read(change.value))
        reasons = [r for r in reasons if r.parameter != path]
        reasons.append(Reason(parameter=path, text=change.reason, source=change.source))
    candidate = proposal.model_copy(update={"parameters": parameters})
    if candidate.stage not in PARAMETERS:  # of a stage that the project adds: the guard has the spec, and judges it
        return candidate.model_copy(update={"reasons": reasons, "memory": None})
    model, problems = _schema(candidate)
    if model is None:
        raise GuardRefused(
            f"the edit of {proposal.stage} is refused: " + "; ".join(problems),
            "the parameters are " + ", ".join(leaves(proposal.parameters)),
        )
    return candidate.model_copy(update={"parameters": plain(model), "reasons": reasons, "memory": None})


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _near(key: str, parameters: dict[str, Any]) -> str:
    flat = sorted(leaves(parameters))
    ends = [path for path in flat if path.rpartition(".")[2] == key.rpartition(".")[2]]
    if len(ends) > 1:
        return f"it is ambiguous: write one of {', '.join(ends)}"
    names = {path.rpartition(".")[2]: path for path in flat} | {path: path for path in flat}
    close = nearest(key.rpartition(".")[2], sorted(names)) or nearest(key, sorted(names))
    return f"did you mean {names[close[0]]}?" if close else f"parameters are {', '.join(flat)}"


def _schema(proposal: Proposal, spec: Project | None = None) -> tuple[Strict | None, list[str]]:
    model = spec.parameters_of(proposal.stage) if spec is not None else PARAMETERS.get(proposal.stage)
    if model is None:
        known = (*PARAMETERS, *(spec.added_stages if spec is not None else ()))
        return None, [f"{proposal.stage!r} is no stage with parameters; there are {', '.join(known)}"]
    try:
        return model.model_validate(proposal.parameters), []
    except ValidationError as error:
        return None, [
            f"{'.'.join(str(part) for part in e['loc']) or proposal.stage}: {e['msg']}" for e in error.errors()
        ]


def _scope(stage: str, parameters: dict[str, Any], spec: Project) -> list[str]:
    """What the spec decides and no proposal may: method, processes, the model of the dry run, the over-long rule."""
    problems = []
    training = parameters.get("training")
    if training is not None and training["method"] != spec.method:
        problems.append(f"method {training['method']} is not {spec.method}, which project.yaml sets")
    processes = spec.launcher.processes
    if stage in ("stress_test", "train") and training is not None and training["ranks"] != processes:
        problems.append(f"ranks {training['ranks']} is not {processes}, which launcher.processes of project.yaml sets")
    if stage == "dry_run" and parameters["model"] != dry_run_model(spec):
        problems.append(f"model {parameters['model']!r} is not {dry_run_model(spec)!r}, which project.yaml sets")
    if stage == "data" and spec.over_long != "ask" and parameters["over_long"] != spec.over_long:
        problems.append(f"over_long {parameters['over_long']} is not {spec.over_long}, which project.yaml sets")
    return problems


def _same_as_stress_test(proposal: Proposal, approved: Mapping[str, Proposal]) -> list[str]:
    """`train` runs under exactly the configuration that the stress test measured."""
    if proposal.stage != "train":
        return []
    if "stress_test" not in approved:
        return ["no stress test has passed for this training configuration"]
    measured = leaves(plain(approved["stress_test"].parameters["training"]))
    asked = leaves(plain(proposal.parameters["training"]))
    changed = [
        f"{k} {measured.get(k)!r} -> {asked.get(k)!r}"
        for k in sorted(measured | asked)
        if measured.get(k) != asked.get(k)
    ]
    if not changed:
        return []
    return [
        f"differs from what the stress test measured ({', '.join(changed)}); a change needs a new stress test: "
        "rework with --stage stress_test"
    ]


def _other_than_parent(training: TrainingConfiguration, spec: Project) -> list[str]:
    """An adapter goes on only with the method, rank, scale and layers that it had."""
    parent = spec.parent_record
    table = differing(parent, training, None) if parent else []
    if not parent or not table:
        return []
    return [f"the adapter of parent {parent.named} does not fit:\n" + "\n".join(table)]


def training_problems(training: TrainingConfiguration) -> list[str]:
    """What in a configuration contradicts itself: no batch plan can exist, or the warm-up never ends."""
    problems = []
    cap = training.max_tokens_per_step
    if cap is not None and training.max_length > cap:
        problems.append(
            f"one sample of max_length {training.max_length} is longer than max_tokens_per_step {cap}: "
            "no batch plan exists"
        )
    elif cap is not None and training.max_length * training.effective_batch > cap:
        problems.append(
            f"{training.effective_batch} samples of {training.max_length} tokens can pass "
            f"max_tokens_per_step {cap}; lower micro_batch or gradient_accumulation"
        )
    if training.gradient_accumulation % training.ranks:
        problems.append(
            f"{training.gradient_accumulation} micro batches per step cannot be shared by {training.ranks} ranks; make "
            f"gradient_accumulation a multiple of {training.ranks}"
        )
    if training.sharding != "ddp":
        problems.append(f"sharding {training.sharding} is predicted, but no worker trains it yet; set sharding: ddp")
    if training.max_steps is not None and training.lr_warmup_steps >= training.max_steps:
        problems.append(f"lr_warmup_steps {training.lr_warmup_steps} is not below max_steps {training.max_steps}")
    return problems


def memory_problems(account: MemoryCheck, training: TrainingConfiguration, fillable: float = 1.0) -> list[str]:
    """Why a configuration does not fit the device, of which so large a share may be filled; empty where it does.

    What is advised is what this configuration leaves to be lowered.
    """
    if account.within(fillable).fits:
        return []
    peak, usable = account.peak_bytes, account.usable_bytes
    said, advice = f"predicted peak {peak / 2**30:.2f} GiB ", _smaller(training)
    if peak > usable:
        over = (peak - usable) / 2**30
        return [
            f"{said}does not fit {account.device} with {usable / 2**30:.2f} GiB usable (over by {over:.2f} GiB): "
            f"{advice}"
        ]
    if peak > fillable * usable:
        return [
            f"{said}is {peak / usable:.1%} of the {usable / 2**30:.2f} GiB usable on {account.device}, and the stress "
            f"test blocks above {fillable:.0%} (usable_share): {advice}"
        ]
    return [
        f"{said}fits {account.device}, but its host has too little memory or disk: `gatewright estimate` shows both"
    ]


def _smaller(training: TrainingConfiguration) -> str:
    """What would take less memory and is not at its least yet."""
    lower = "lower micro_batch or max_length" if training.micro_batch > 1 else "lower max_length"
    if not training.activation_checkpointing:
        return f"{lower}, or set activation_checkpointing"
    if training.micro_batch > 1:
        return lower
    return f"{lower}, or take a smaller base model or a larger device: micro_batch is 1, activations are checkpointed"
