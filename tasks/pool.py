"""The samples that a training takes of `samples.parquet`: those of its objectives, or a rehearsal's part of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.base import Language
from specs.errors import InputError
from specs.parameters import TrainingConfiguration
from tasks.data.batch_plan import PlanRow
from tasks.data.objectives import Sized, epoch_samples, is_plain_text, plain_text_ids, taken
from tasks.rehearsal import Candidate, choose, fewest_trained

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pool:
    """Training samples, which of them are plain text, and how many training samples the objectives leave out."""

    samples: list[Sized]
    plain: frozenset[str]
    left_out: int

    def within(self, max_length: int) -> Pool:
        """Without the samples that are longer."""
        kept = [sample for sample in self.samples if sample[1] <= max_length]
        return Pool(kept, self.plain & {i for i, _ in kept}, self.left_out)

    def for_steps(self, asked: TrainingConfiguration, steps: int) -> TrainingConfiguration:
        """The configuration for exactly so many steps, with the epochs that they need.

        Of plain text so much is mixed in as there is, at most the asked share.
        """
        share = asked.plain_text_share
        if share is not None and 0 < share < 1:
            share = min(share, len(self.plain) / len(self.samples))
            asked = asked.model_copy(update={"plain_text_share": share})
        samples = len(epoch_samples(self.samples, self.plain, asked, 1))
        needed = math.ceil(steps / math.ceil(samples / asked.effective_batch))
        return asked.model_copy(update={"max_steps": steps, "epochs": max(asked.epochs, needed)})

    def notes(self, rows: Sequence[PlanRow], training: TrainingConfiguration, language: Language) -> list[str]:
        """What the mix of objectives means for the planned epochs, in words; nothing where there is none."""
        zh, found = language == "zh", []
        if self.left_out:
            found.append(
                f"{self.left_out} 条训练样本不属于所选训练目标，未使用"
                if zh
                else f"{self.left_out} training samples are of no chosen objective and are left out"
            )
        share = training.plain_text_share
        if share is None or share in (0, 1):
            return found
        first = Counter(row.sample_id in self.plain for row in rows if row.epoch == 1)
        never = len(self.plain - {row.sample_id for row in rows})
        found.append(
            f"目标混合：第 1 轮含 {first[True]} 条纯文本和 {first[False]} 条问答样本；共 {len(self.plain)} 条纯文本，"
            f"其中 {never} 条在计划的轮数内不会用到"
            if zh
            else f"mix of objectives: the first epoch has {first[True]} plain texts and {first[False]} questions; of "
            f"{len(self.plain)} plain texts {never} have no turn in the planned epochs"
        )
        return found


def training_pool(samples: Path, training: TrainingConfiguration, rehearsal: float | None = None) -> Pool:
    """The pool of a run. A rehearsal takes its part of each objective. Raises `InputError` when nothing is left."""
    import pyarrow.parquet as pq

    columns = ["sample_id", "split", "kind", "fault_type", "prompt", "n_tokens"]
    rows = [r for r in pq.read_table(samples, columns=columns).to_pylist() if r["split"] == "train"]
    return pool_of(rows, training, rehearsal)


def pool_of(rows: Sequence[Row], training: TrainingConfiguration, rehearsal: float | None = None) -> Pool:
    """The pool out of training rows."""
    used = taken(rows, training)
    if rows and not used:
        raise InputError(
            "no training sample is of the chosen objective (plain_text_share, plain_text_kinds)",
            "change objective_mix in project.yaml, or add material of that kind",
        )
    left_out = len(rows) - len(used)
    if rehearsal is not None:
        used = _rehearsed(used, training, rehearsal)
    sized = sorted((str(r["sample_id"]), int(r["n_tokens"])) for r in used)
    return Pool(sized, plain_text_ids(used), left_out)


def _rehearsed(rows: Sequence[Row], training: TrainingConfiguration, share: float) -> list[Row]:
    """A fair part of the rows; with a mix, of each objective, and as much plain text as the questions of it need."""
    mix, fewest = training.plain_text_share, fewest_trained(training)
    if mix is None:
        chosen = _part(rows, share, fewest)
    else:
        questions = _part([r for r in rows if not is_plain_text(r)], share, fewest)
        needed = math.ceil(len(questions) * mix / (1 - mix)) if mix < 1 else 0
        chosen = questions | _part([r for r in rows if is_plain_text(r)], share, max(fewest, needed))
    return [r for r in rows if r["sample_id"] in chosen]


def _part(rows: Sequence[Row], share: float, at_least: int) -> set[str]:
    candidates = [
        Candidate(r["sample_id"], f"{r['kind'] or ''}\0{r['fault_type'] or ''}", int(r["n_tokens"])) for r in rows
    ]
    return set(choose(candidates, share, at_least))
