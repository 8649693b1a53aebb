"""What a session proves before it trains and after the last step. One rank proves it for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specs.errors import TrainingError
from specs.files import write_json, write_lines
from tasks.training.checkpoints import Checkpoint
from tasks.training.checks import generated_answers, training_checks
from tasks.training.continuity import prove_loss, tolerance
from tasks.training.evaluation import pinned_loss
from tasks.training.feed import Feed, PlannedStep
from tasks.training.job import Job
from tasks.training.logbook import CENSUS, Logbook
from tasks.training.packing import prove_separation, require_separation

if TYPE_CHECKING:
    from tasks.training.trainer import PlannedTrainer


def prove_packing(job: Job, model: Any, feed: Feed, device: str) -> None:
    """`packing.json`; raises `ModelError` when samples that share a row see each other in this model."""
    proof = prove_separation(model, feed, device, job.training.compute)
    if proof is not None:
        write_json(job.out / "packing.json", proof)
        require_separation(proof)


def prove_continuity(
    job: Job,
    model: Any,
    feed: Feed,
    device: str,
    checkpoint: Checkpoint,
    pinned: Mapping[str, Any],
    elsewhere: bool = False,
) -> dict[str, Any]:
    """The line for `continuity.jsonl`; raises `ResumeRefused` unless the pinned batch has the loss that it had."""
    batch = feed.batch(feed.steps[checkpoint.step - 1].of(0)[pinned["micro_batch"]])
    compute = job.training.compute
    proof = prove_loss(
        pinned["loss"],
        lambda: pinned_loss(model, batch, device, compute),
        tolerance(device, compute, elsewhere=elsewhere),
        checkpoint.folder.name,
    )
    return {"proof": "pinned batch", "steps": 0, "loss": pinned["loss"], **proof}


def check_training(trainer: PlannedTrainer, feed: Feed) -> None:
    """`checks.json` and `generated.jsonl`, of the trained model."""
    job = trainer.job
    ids = job.probe_sample_ids
    trainer.channel.say(f"checks on {len(ids)} samples: batches, masks, ends of answers")
    write_json(job.out / "checks.json", training_checks(trainer, feed, ids))
    write_lines(job.out / "generated.jsonl", generated_answers(trainer, feed, ids))


def require_whole_census(steps: Sequence[PlannedStep], logbook: Logbook) -> None:
    """Raise `TrainingError` unless every epoch of the plan, over all sessions, has its census without a fault."""
    counted = {line["epoch"]: line["step"] for line in logbook.read(CENSUS)}
    planned = {step.epoch: step.step for step in steps}
    if counted != planned:
        raise TrainingError(
            f"the census of epochs {sorted(counted)} does not cover those of the plan, {sorted(planned)}",
            "report this: it must not happen",
        )
