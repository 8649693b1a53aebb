"""What the rules make of small trials: which the dry run makes, and what their trends change in the next proposal."""

from __future__ import annotations

from agents.contract import ProposerContext
from agents.draft import Draft, shown
from agents.facts import parameter_count
from agents.lr_rule import learning_rate
from agents.reason_texts import text
from agents.siblings import dry_run_model
from specs.base import Language
from specs.trials import Confirmation, Outcome, TrialsReport
from specs.units import human, significant
from tasks.training.trial_words import measured_on, setting, why

_PATHS = {"rank": "training.lora.rank", "lr": "training.lr"}


def choose_trials(draft: Draft, context: ProposerContext) -> None:
    """The trials that project.yaml asks for. An adapter that goes on keeps its rank: nothing is tried there."""
    spec = context.spec
    settings = spec.dry_run.trials
    vary = [d for d in settings.vary if d != "rank" or spec.parent_record is None]
    if len(vary) < len(settings.vary):
        draft.warnings.append(text(spec.language, "warn_trials_parent"))
    if not vary:
        return
    for name in ("steps", "repeats", "confirm_steps"):
        draft.choose(f"trials.{name}", getattr(settings, name), "trials", source="project.yaml")
    draft.choose("trials.vary", vary, "trials", source="project.yaml")
    if dry_run_model(spec) != spec.base_model:
        lr = learning_rate(spec.method, parameter_count(context.base_model))
        draft.choose("trials.target_lr", lr, "trials_target_lr", source="rule")


def follow_trends(draft: Draft, context: ProposerContext) -> None:
    """At the gate of the stress test: settings that learnt more in the trials, each relative to the rule's choice.

    What the base model contradicted is not taken over; what it did not confirm is marked.
    """
    if draft.gate != "stress_test" or not context.trials:
        return
    found = TrialsReport.model_validate(context.trials)
    for trend in found.proposed:
        _follow(draft, context, found, trend)


def _follow(draft: Draft, context: ProposerContext, found: TrialsReport, trend: Outcome) -> None:
    language, path = context.spec.language, _PATHS[trend.dimension or "lr"]
    if trend.dimension == "rank" and context.spec.parent_record is not None:
        return
    name = path.rpartition(".")[2]
    if found.confirmation is not None and found.confirmation.status == "contradicted":
        said = _measured(found.confirmation, language)
        draft.warnings.append(
            text(language, "warn_trend_contradicted", name=name, trend=setting(language, trend), said=said)
        )
        return
    before = draft.get(path)
    wanted = max(1, round(before * trend.factor)) if trend.dimension == "rank" else _rounded(before * trend.factor)
    values: dict[str, object] = {"factor": significant(trend.factor), "model": found.model, "share": _share(trend)}
    values |= {"steps": found.steps, "on": measured_on(language, found.measured_on)}
    taken = draft.choose(path, wanted, "trend", source="dry_run", **values)
    if taken == before:
        return
    if trend.dimension == "rank":
        alpha = draft.get("training.lora.alpha") * taken / before
        draft.choose("training.lora.alpha", alpha, "trend_alpha", source="dry_run")
    moved: dict[str, object] = {"name": name, "before": shown(before), "after": shown(taken)}
    if found.measured_on == "training":
        draft.warnings.append(text(language, "warn_trend_training", **moved))
    unsure = _unconfirmed(found, language)
    if taken != wanted:
        unsure = text(language, "trend_limited", wanted=shown(wanted))
    if unsure is not None:
        values = {**moved, "why": unsure}
        draft.warnings.append(text(language, "warn_trend_unconfirmed", **values))


def _rounded(lr: float) -> float:
    return min(0.999, float(f"{lr:.3g}"))


def _share(trend: Outcome) -> str:
    """How much more was learnt, in per cent of what the base trial learnt."""
    return human(-(trend.share or 0.0), "share")


def _unconfirmed(found: TrialsReport, language: Language) -> str | None:
    """Why a trend counts as unconfirmed on the base model; null where it is confirmed, or was measured there."""
    of = found.confirmation
    if of is None or of.status in ("confirmed", "same model"):
        return None
    if of.status == "not run":
        return text(language, "trend_not_run", reason=why(language, of))
    return text(language, "trend_in_noise", said=_measured(of, language))


def _measured(of: Confirmation, language: Language) -> str:
    """A change with its half width; why there is none."""
    if of.change is None or of.half_width is None:
        return why(language, of)
    return f"{significant(of.change)} ± {human(of.half_width, 'nats/token', language)}"
