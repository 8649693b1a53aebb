"""What the rules choose at each gate, and what they do with feedback. Pure: equal contexts give equal bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import ValidationError

from agents.contract import MemoryFunction, ProposerContext, fillable_at
from agents.draft import Draft, model_of, shown
from agents.expectations import expectations
from agents.facts import data_facts, source_rows
from agents.feedback import Request, moved, read_feedback
from agents.guard import memory_problems, training_problems
from agents.plan_up import after_stress_test
from agents.reason_texts import text
from agents.siblings import dry_run_model
from agents.training_rules import choose_training
from agents.trial_rules import choose_trials
from specs.canonical import plain
from specs.errors import GuardRefused
from specs.limits import fit, upper
from specs.parameters import PARAMETERS, StressTestParameters, TrainingConfiguration, leaves, replace
from specs.proposals import Answer, Proposal, Reason
from specs.trials import TrialParameters

Outcome = Literal["done", "partly", "kept", "refused", "not_understood"]
_CARRIED = ("feedback", "person:")
"""Sources of reasons whose values stay from round to round."""


def suggest(context: ProposerContext, memory: MemoryFunction | None = None) -> Proposal:
    """The rules' proposal for a gate, before the guard. Raises `GuardRefused` at `train` without a stress test."""
    draft = _DRAFTS.get(context.gate, _added)(context, memory)
    draft.keep_within_limits()
    answers = _answer(draft, context, memory)
    parameters = plain(model_of(context.spec, context.gate).model_validate(draft.parameters))
    return Proposal(
        stage=context.gate,
        round=context.round,
        parameters=parameters,
        reasons=draft.sorted_reasons(),
        expected=expectations(context, context.gate, parameters, memory),
        proposer="rules",
        answers_feedback="\n".join(answer.text for answer in answers),
        answers=answers,
        warnings=[*draft.warnings, *_unread(context)],
    )


def _unread(context: ProposerContext) -> list[str]:
    """What the expected numbers could not learn from."""
    counts = {"warn_costs_unread": context.costs_unread, "warn_runs_unread": context.runs_unread}
    return [text(context.spec.language, key, count=count) for key, count in counts.items() if count]


def _data(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    draft = Draft(context.spec, "data", plain(PARAMETERS["data"]()))
    if context.spec.over_long != "ask":
        draft.choose("over_long", context.spec.over_long, "over_long", source="project.yaml")
    rows = source_rows(context)
    if 0 < rows < 250:
        draft.choose("eval_share", 0.2, "eval_share_small", source="sources", rows=rows)
        draft.choose("buckets", 4, "buckets_small", source="sources", rows=rows)
    return draft


def _dry_run(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    model = dry_run_model(context.spec)
    steps, _ = fit(context.spec, "dry_run", "steps", 30)
    blocks = {"training": plain(TrainingConfiguration()), "trials": plain(TrialParameters())}
    draft = Draft(context.spec, "dry_run", {"model": model, "steps": steps, **blocks})
    draft.put("model", model, text(context.spec.language, "dry_model"), "project.yaml")
    draft.choose("steps", 30, "dry_steps", steps=30)
    choose_training(draft, context, memory if model == context.spec.base_model else None)
    choose_trials(draft, context)
    return draft


def _stress_test(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    draft = Draft(context.spec, "stress_test", plain(StressTestParameters(training=TrainingConfiguration())))
    choose_training(draft, context, memory)
    if data_facts(context).train == 0:
        draft.warnings.append(text(context.spec.language, "warn_no_data"))
    return draft


def _train(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    """Exactly the configuration that passed the stress test, limits or not: the guard says when they clash."""
    measured = context.approved.get("stress_test")
    if measured is None:
        raise GuardRefused("there is no stress test whose configuration could be trained", "run the stress test first")
    draft = Draft(context.spec, "train", {"training": measured.parameters["training"]})
    reason = text(context.spec.language, "repeat")
    draft.reasons["training.method"] = Reason(parameter="training.method", text=reason, source="stress_test")
    for reason_given in measured.reasons:
        if reason_given.parameter.startswith("training."):
            draft.reasons[reason_given.parameter] = reason_given
    draft.warnings += after_stress_test(context, measured, memory)
    return draft


def _evaluate(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    draft = Draft(context.spec, "evaluate", plain(PARAMETERS["evaluate"]()))
    facts = data_facts(context)
    types = fault_types(context)
    if types > draft.get("generations"):
        wanted = min(types, max(1, facts.evaluation))
        draft.choose("generations", wanted, "fault_spread", source="data", types=types)
    for name in ("generations", "max_new_tokens"):
        cap = upper(context.spec, "evaluate", name)
        if cap is not None and cap < draft.get(name):
            draft.choose(name, int(cap), "generations", source="project.yaml")
    trained = context.approved.get("train") or context.approved.get("stress_test")
    if trained is not None:
        training = TrainingConfiguration.model_validate(trained.parameters["training"])
        draft.choose("loss_batch", max(1, training.micro_batch // 2), "loss_batch", source="train")
        draft.choose("threads", training.threads, "threads", source="train")
    return draft


def _added(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    """A stage of the project's own: its parameters as project.yaml has them."""
    return Draft(context.spec, context.gate, plain(model_of(context.spec, context.gate)()))


def fault_types(context: ProposerContext) -> int:
    """Fault types among the held-out samples, as summary.json counts them; 0 where it does not."""
    found = context.lengths.get("fault_types")
    if isinstance(found, dict):
        return len(found.get("eval", found) if isinstance(found.get("eval", None), dict) else found)
    return int(found) if isinstance(found, int) else 0


def _release(context: ProposerContext, memory: MemoryFunction | None) -> Draft:
    return Draft(context.spec, "release", plain(PARAMETERS["release"]()))


_DRAFTS: dict[str, Callable[[ProposerContext, MemoryFunction | None], Draft]] = {
    "data": _data,
    "dry_run": _dry_run,
    "stress_test": _stress_test,
    "train": _train,
    "evaluate": _evaluate,
    "release": _release,
}


def _answer(draft: Draft, context: ProposerContext, memory: MemoryFunction | None) -> list[Answer]:
    """Act on the feedback as far as rules can, and say for each part what was done with it."""
    _carry_over(draft, context)
    if not context.feedback.strip():
        return []
    requests, left = read_feedback(context.feedback, draft.parameters)
    answers = [_act(draft, request, memory) for request in requests]
    if left:
        names = ", ".join(path.rpartition(".")[2] for path in list(leaves(draft.parameters))[:8])
        words = "; ".join(f"“{clause}”" for clause in left)
        said = text(context.spec.language, "not_understood", text=words, names=names)
        answers.append(Answer(asked="; ".join(left), outcome="not_understood", text=said))
    return answers


def _carry_over(draft: Draft, context: ProposerContext) -> None:
    """Keep what earlier rounds of this gate were told."""
    last = context.last_proposal
    if last is None or last.stage != context.gate or context.gate == "train":
        return
    values = leaves(last.parameters)
    for reason in last.reasons:
        if reason.source.startswith(_CARRIED) and reason.parameter in values:
            value, _ = fit(context.spec, context.gate, reason.parameter, values[reason.parameter])
            draft.put(reason.parameter, value, text(context.spec.language, "kept_feedback"), reason.source)


def _act(draft: Draft, request: Request, memory: MemoryFunction | None) -> Answer:
    """Do what one request asks for as far as it may be done, and say so."""

    def answer(outcome: Outcome, key: str, **values: object) -> Answer:
        said = text(draft.spec.language, key, parameter=request.path, **values)
        return Answer(asked=request.words, outcome=outcome, text=said)

    before = draft.get(request.path)
    if draft.gate == "train" or request.path in ("training.method", "model"):
        return answer("refused", "answered_locked")
    if request.direction and (isinstance(before, bool) or not isinstance(before, int | float)):
        return answer("kept", "answered_same", before=shown(before))
    wanted = moved(before, request.direction) if request.direction else request.value
    allowed, source = fit(draft.spec, draft.gate, request.path, wanted)
    if allowed == before:
        if source:
            return answer("refused", "answered_fixed", before=shown(before), source=source)
        return answer("done" if wanted == before else "kept", "answered_same", before=shown(before))
    if problem := _problem(draft, request.path, allowed, memory):
        return answer("refused", "answered_refused", wanted=shown(allowed), problem=problem)
    draft.put(request.path, allowed, text(draft.spec.language, "feedback"), "feedback")
    changed = {"before": shown(before), "after": shown(allowed)}
    if source:
        return answer("partly", "answered_limited", wanted=shown(wanted), source=source, **changed)
    return answer("done", "answered", **changed)


def _problem(draft: Draft, path: str, value: Any, memory: MemoryFunction | None) -> str:
    """Why the guard would refuse this value, or an empty string."""
    try:
        model = model_of(draft.spec, draft.gate).model_validate(replace(draft.parameters, path, value))
    except ValidationError as error:
        return "; ".join(e["msg"] for e in error.errors())
    training = getattr(model, "training", None)
    if training is None:
        return ""
    problems = training_problems(training)
    if memory is not None and not problems:
        problems = memory_problems(memory(training), training, fillable_at(draft.spec, draft.gate))
    return "; ".join(problems)
