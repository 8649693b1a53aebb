"""Metrics of the `evaluate` stage from its artifacts, the samples, the plan and the trained weights alone.

`pairing_gain` compares each answer with itself: how much more surprising it is after another sample's question than
after its own, with the adapter minus with the base model. How hard an answer is falls out of the difference, which
makes the mean ten times more certain than comparing two answers. Losses alone do not tell a useful adapter from one
trained on shuffled labels: both learn how answers look. `pairing_certainty` is the mean over fault types in standard
errors, since the samples of one fault type are not independent.

Measured on the tiny model, LoRA rank 16, 100 steps of 8, 8 fault types, 5 seeds in each of two languages:
    true labels        gain  0.69 to  1.28 nats/token    certainty   5.4 to 10.4
    shuffled labels    gain  0.00 to  0.04               certainty  -0.2 to  1.5   (1 in 8 is right by chance)
    wrong labels only  gain -1.34 to -0.77               certainty -19.7 to -4.7
    identity adapter   gain  0                           certainty   0
The loss falls by 5.7 to 7.7 nats/token with true, shuffled and wrong labels alike.
On the 135M model of the English example, 30 held-out fault types: 40 steps of 8 with true labels 0.19 and 4.2; 24
steps 0.15 and 2.9; 24 steps with shuffled labels -0.11 and -0.5, while the loss fell by 1.7 and 1.6 nats/token.
The bound of 3 lies between. An adapter that learnt nothing of the pairing passes it by a chance of about 1 % with 8
fault types, and 0.3 % with 30.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specs.canonical import digest_folder
from specs.criteria import Metric
from tasks.verify import training_logs as logs
from tasks.verify.applicable import NO_FAULT_TYPE, NO_QUESTION, names_fault_types, not_applicable, without_questions
from tasks.verify.evaluate_answers import References, coverage
from tasks.verify.general_text import general_text
from tasks.verify.rehearsal import part_wrong, share_of
from tasks.verify.tensors import trained_folder

Row = Mapping[str, Any]


def metrics(attempt_dir: Path, inputs: Mapping[str, Path], context: Mapping[str, Any]) -> dict[str, Metric]:
    """One metric per name of `specs/metrics`; what cannot be shown is null with a reason."""
    artifacts = attempt_dir / "artifacts"
    samples = {row["sample_id"]: row for row in logs.table(inputs["data"] / "artifacts" / "samples.parquet")}
    losses = logs.table(artifacts / "eval_losses.parquet")
    answers = logs.lines(artifacts / "generations.jsonl")
    base, adapter = _weighted(losses, "loss_base"), _weighted(losses, "loss_adapter")
    gain, certainty = _pairing(losses, samples)
    unasked = not_applicable("share", NO_QUESTION) if without_questions(samples.values()) else None
    return {
        "leaked_samples": _leaked(losses, samples, _trained_on(inputs)),
        "eval_samples_missing": _missing(losses, samples, share_of(context)),
        "evaluated_other_weights": _other_weights(artifacts, inputs["train"] / "artifacts", context),
        "samples_evaluated": Metric(value=len(losses), unit="samples"),
        "eval_loss_base": base,
        "eval_loss_adapter": adapter,
        "eval_loss_change": _difference(adapter, base),
        "parent_loss_change": _since_parent(losses, adapter, context),
        "instruction_loss_change": _change_of(losses, samples, plain=False),
        "plain_text_loss_change": _change_of(losses, samples, plain=True),
        "pairing_gain": gain,
        "pairing_certainty": certainty,
        "fault_type_coverage": unasked or _coverage(answers, samples, context, "adapter"),
        "fault_type_coverage_base": unasked or _coverage(answers, samples, context, "base"),
        "ended_share": unasked or _ended(answers),
        **general_text(artifacts, context, samples, bool(losses)),
    }


def _trained_on(inputs: Mapping[str, Path]) -> set[str]:
    """Every sample id that was planned, and every one that the worker says it was fed."""
    planned = {row["sample_id"] for row in logs.table(inputs["stress_test"] / "artifacts" / "batch_plan.parquet")}
    fed = logs.lines(inputs["train"] / "artifacts" / "micro_batches.jsonl")
    return planned | {sample_id for line in fed for sample_id in line["sample_ids"]}


def _leaked(losses: Sequence[Row], samples: Mapping[str, Row], trained: set[str]) -> Metric:
    """Held-out samples of which the sample itself, its duplicate component or its exact text was trained on."""
    if not trained or not losses:
        return logs.missing("samples", "batch_plan.parquet of stress_test or eval_losses.parquet")
    known = [samples[i] for i in trained if i in samples]
    components = {row["component"] for row in known if row.get("component") is not None}
    texts = {row["text"] for row in known}
    evaluated = {row["sample_id"] for row in losses} | {i for i, row in samples.items() if row["split"] == "eval"}

    def leaked(sample_id: str) -> bool:
        row = samples.get(sample_id, {})
        return sample_id in trained or row.get("component") in components or row.get("text") in texts

    return Metric(value=sum(leaked(i) for i in evaluated), unit="samples")


def _missing(losses: Sequence[Row], samples: Mapping[str, Row], share: float | None) -> Metric:
    """Held-out samples without exactly one finite pair of losses, and losses of samples that are not held out.

    A rehearsal evaluates a `share` of them; what is missing of a fair part counts.
    """
    held_out = {i for i, row in samples.items() if row["split"] == "eval"}
    if not held_out:
        return logs.missing("samples", "the held-out part of samples.parquet")
    good = [row["sample_id"] for row in losses if _finite(row, "loss_base", "loss_adapter") and _tokens(row) > 0]
    unexpected = len(good) - len(held_out & set(good))
    if share is not None:
        rows = [samples[i] for i in held_out]
        return Metric(value=part_wrong(rows, set(good), share) + unexpected, unit="samples")
    return Metric(value=len(held_out - set(good)) + unexpected, unit="samples")


def _finite(row: Row, *names: str) -> bool:
    return all(row[name] is not None and math.isfinite(row[name]) for name in names)


def _tokens(row: Row) -> int:
    return int(row["n_answer_tokens"])


def _other_weights(artifacts: Path, train: Path, context: Mapping[str, Any]) -> Metric:
    """0 when `evaluated.json` names the digests of the trained weights, the base model and the parent of this run."""
    found = logs.document(artifacts / "evaluated.json")
    if not found:
        return logs.missing("count", "evaluated.json")
    digests = [digest_folder(folder) for _, folder in trained_folder(train)]
    wrong = (found.get("adapter_sha256") not in digests) + (
        found.get("base_model_sha256") != context["base_model_sha256"]
    )
    parent = (context.get("spec") or {}).get("parent_record")
    wrong += found.get("parent_sha256") != (parent["weights_sha256"] if parent else None)
    return Metric(value=wrong, unit="count")


def _weighted(losses: Sequence[Row], name: str) -> Metric:
    """Mean over all answer tokens; a loss that is missing or infinite makes it null."""
    if not losses or not all(_finite(row, name) for row in losses):
        return logs.missing("nats/token", f"a finite {name} in eval_losses.parquet")
    total = sum(_tokens(row) for row in losses)
    return Metric(value=math.fsum(row[name] * _tokens(row) for row in losses) / total, unit="nats/token")


def _difference(one: Metric, other: Metric) -> Metric:
    if one.value is None or other.value is None:
        return logs.missing("nats/token", "a finite loss of base and adapter in eval_losses.parquet")
    return Metric(value=one.value - other.value, unit="nats/token")


def _since_parent(losses: Sequence[Row], adapter: Metric, context: Mapping[str, Any]) -> Metric:
    """Adapter minus the parent that it went on from; null without one."""
    if losses and not (context.get("spec") or {}).get("parent_record"):
        return Metric(value=None, unit="nats/token", reason="this run has no parent")
    if not losses or "loss_parent" not in losses[0]:
        return logs.missing("nats/token", "loss_parent in eval_losses.parquet")
    return _difference(adapter, _weighted(losses, "loss_parent"))


def _change_of(losses: Sequence[Row], samples: Mapping[str, Row], *, plain: bool) -> Metric:
    """Adapter minus base on one objective alone: what was learnt of it, or forgotten."""
    mine = [row for row in losses if (not samples.get(row["sample_id"], {}).get("prompt")) == plain]
    if losses and not mine:
        what = "plain text" if plain else "question with an answer"
        return Metric(value=None, unit="nats/token", reason=f"no {what} is held out")
    return _difference(_weighted(mine, "loss_adapter"), _weighted(mine, "loss_base"))


def _pairing(losses: Sequence[Row], samples: Mapping[str, Row]) -> tuple[Metric, Metric]:
    """(gain in nats per token over all answers, mean over fault types in standard errors)."""
    if without_questions(samples.values()):
        return not_applicable("nats/token", NO_QUESTION), not_applicable("standard errors", NO_QUESTION)
    by_id = {row["sample_id"]: row for row in losses}
    pairs = [(row, by_id[other]) for row in losses if (other := row["mispaired_with"]) in by_id]
    reason = _pairing_fault(pairs, losses, samples)
    if reason:
        return Metric(value=None, unit="nats/token", reason=reason), Metric(
            value=None, unit="standard errors", reason=reason
        )
    groups: dict[str, list[float]] = {}
    gained, tokens = [], 0
    for question, answer in pairs:  # `answer` put to `question` instead of to its own
        gain = (question["loss_adapter_mispaired"] - answer["loss_adapter"]) - (
            question["loss_base_mispaired"] - answer["loss_base"]
        )
        groups.setdefault(samples[answer["sample_id"]]["fault_type"] or answer["sample_id"], []).append(gain)
        gained.append(gain * _tokens(answer))
        tokens += _tokens(answer)
    means = [statistics.fmean(groups[kind]) for kind in sorted(groups)]
    return (
        Metric(value=math.fsum(gained) / tokens, unit="nats/token"),
        Metric(value=_in_standard_errors(means), unit="standard errors"),
    )


def _in_standard_errors(means: Sequence[float]) -> float:
    """Mean over its standard error; 0 when all are equal, as with an adapter that changes nothing."""
    error = statistics.stdev(means) / math.sqrt(len(means))
    return statistics.fmean(means) / error if error > 0 else 0.0


def _pairing_fault(pairs: Sequence[tuple[Row, Row]], losses: Sequence[Row], samples: Mapping[str, Row]) -> str:
    """Why the pairing shows nothing; empty when it does."""
    questions = [row for row in losses if samples.get(row["sample_id"], {}).get("prompt")]
    if len(pairs) < 0.8 * len(questions) or len(pairs) < 4:
        return f"only {len(pairs)} of {len(questions)} held-out questions have an answer of another fault type"
    for question, answer in pairs:
        one, other = samples.get(question["sample_id"], {}), samples.get(answer["sample_id"], {})
        kinds = one.get("fault_type"), other.get("fault_type")
        if not one or not other or one["answer"] == other["answer"] or (kinds[0] == kinds[1] and kinds[0]):
            return f"{question['sample_id']} is not mispaired: the answer has the same fault type or text"
        if not _finite(question, "loss_base_mispaired", "loss_adapter_mispaired"):
            return f"{question['sample_id']} has no finite mispaired loss"
    if len({samples[a["sample_id"]]["fault_type"] or a["sample_id"] for _, a in pairs}) < 2:
        return "all held-out questions have one fault type"
    return ""


def _coverage(answers: Sequence[Row], samples: Mapping[str, Row], context: Mapping[str, Any], which: str) -> Metric:
    """Fault types with a right answer, over those that could be asked for: all held-out ones, at most `generations`.

    The reference is the held-out sample's own answer in samples.parquet. Where no held-out sample has a fault type,
    every sample counts as a type of its own; without any in the whole project it does not apply.
    """
    held_out = {i: row for i, row in samples.items() if row["split"] == "eval" and row["prompt"]}
    named = any(row["fault_type"] for row in held_out.values())
    kinds = {i: (row["fault_type"] or "") if named else i for i, row in held_out.items()}
    asked = min(len(set(kinds.values()) - {""}), int(context["parameters"]["generations"]))
    if not answers or not asked:
        return logs.missing("share", "an answer to a held-out question in generations.jsonl")
    references = References([(kinds[i], held_out[i]["answer"]) for i in sorted(held_out) if kinds[i]])
    found = [(i, row) for row in answers if kinds.get(i := row["sample_id"])]
    share, _ = coverage(references, [(kinds[i], held_out[i]["answer"], row[which]) for i, row in found], asked)
    if named:
        return Metric(value=share, unit="share")
    anywhere = names_fault_types(context.get("spec")) or any(row["fault_type"] for row in samples.values())
    of_all = "every held-out answer counts as one"
    if not anywhere:
        return not_applicable("share", f"{NO_FAULT_TYPE}: {of_all}", share)
    return Metric(value=share, unit="share", reason=f"no held-out sample has a fault type: {of_all}")


def _ended(answers: Sequence[Row]) -> Metric:
    if not answers:
        return logs.missing("share", "generations.jsonl")
    return Metric(value=sum(bool(row["adapter_ended"]) for row in answers) / len(answers), unit="share")
