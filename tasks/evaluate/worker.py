"""The evaluation worker: `python -m tasks.evaluate.worker job.json`. One loaded model serves base and adapter."""

from __future__ import annotations

import gc
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.canonical import digest_folder
from specs.errors import ModelError
from specs.files import write_bytes, write_json, write_lines
from specs.stages import Progress
from tasks.evaluate.job import EvaluatedSample, EvaluateJob, GeneralPassage
from tasks.interrupts import StopRequest
from tasks.turns import spoken
from tasks.worker_side import Channel, work

if TYPE_CHECKING:
    from tasks.evaluate.scoring import Answer, Summed
    from tasks.prompts import Encoded, PromptTemplate

Done = Callable[[int], None]


def main() -> int:
    """The program."""
    return work(_body)


def _body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
    job = EvaluateJob.model_validate_json(job_file.read_bytes())
    evaluate(job, channel, stop)
    channel.result(samples=len(job.samples), generations=len(job.generate))


def evaluate(job: EvaluateJob, progress: Progress, stop: StopRequest) -> None:
    """The whole evaluation, in this process. Raises `ModelError`, or `Stopped` with nothing written."""
    progress.start("loading the model")
    import torch

    from tasks.prompts import PromptTemplate

    torch.set_num_threads(job.parameters.threads)
    _require_digest(job)
    _Evaluation(job, PromptTemplate.load(job.base_model), progress, stop).run()


def _require_digest(job: EvaluateJob) -> None:
    from tasks.models.folder import digest_model

    if digest_model(job.base_model) != job.base_model_sha256:
        raise ModelError(
            f"{job.base_model} is not the base model that this run is about: its files have another digest",
            "put the files back as they were, or start a new run with this model",
        )


class _Evaluation:
    """Both models over all sequences, then over all questions; the files at the end, all or none."""

    def __init__(self, job: EvaluateJob, template: PromptTemplate, progress: Progress, stop: StopRequest) -> None:
        self.job = job
        self.template = template
        self.progress = progress
        self.stop = stop
        self.folder = next(f for kind in ("adapter", "model") if (f := job.trained / kind).is_dir())

    def run(self) -> None:
        """Score, answer, write."""
        began = time.monotonic()
        own, other = _sequences(self.job.samples, self.template)
        general = [self.template.encode("", passage.text) for passage in self.job.general]
        sequences = [*own, *other.values(), *general]
        before = digest_folder(self.folder)
        losses: dict[str, list[Summed]] = {}
        answers: dict[str, list[Answer]] = {}
        device = ""
        for which, model in self._models():
            losses[which] = self._losses(which, model, own if which == "parent" else sequences)
            if which != "parent":
                answers[which] = self._answers(which, model)
            device = str(model.device)
        if digest_folder(self.folder) != before:
            raise ModelError(f"{self.folder} changed while it was evaluated", "find out who writes there; run again")
        if general:
            found = {which: losses[which][-len(general) :] for which in ("base", "adapter")}
            _write_table(self.job.out / "general_losses.parquet", _general_columns(self.job.general, found))
        columns = _columns(self.job.samples, own, list(other), losses)
        _write_table(self.job.out / "eval_losses.parquet", columns)
        write_lines(self.job.out / "generations.jsonl", self._generations(answers))
        write_json(self.job.out / "evaluated.json", self._identity(before, device, time.monotonic() - began))

    def _models(self) -> Iterator[tuple[str, Any]]:
        """(name, model): the base model, then the trained one. With an adapter both are one model in memory.

        Last the parent that an adapter went on from, in the same model again, for losses alone.
        """
        from tasks.training.models import choose_device, load_base, load_parent, load_trained

        job, device = self.job, choose_device()
        if self.folder.name == "adapter":
            model = load_trained(job.base_model, job.trained, job.weights, job.attention, device)
            with model.disable_adapter():
                yield "base", model
            yield "adapter", model
            if job.parent is not None:
                load_parent(model, job.parent, job.parent_sha256)
                yield "parent", model
            return
        model = load_base(job.base_model, job.weights, job.attention, device)
        yield "base", model
        del model
        gc.collect()
        yield "adapter", load_trained(job.base_model, job.trained, job.weights, job.attention, device)

    def _losses(self, which: str, model: Any, sequences: Sequence[Encoded]) -> list[Summed]:
        from tasks.evaluate.scoring import padding_id, summed_losses

        with self._counted(f"held-out loss, {which}", len(sequences)) as done:
            return summed_losses(
                model, sequences, self.job.parameters.loss_batch, padding_id(self.template.tokenizer), done
            )

    def _answers(self, which: str, model: Any) -> list[Answer]:
        from tasks.evaluate.scoring import greedy_answers

        prompts = [self.template.encode_prompt(s.prompt, s.turns) for s in self._asked()]
        parameters = self.job.parameters
        with self._counted(f"answers, {which}", len(prompts)) as done:
            return greedy_answers(
                model,
                self.template.tokenizer,
                prompts,
                parameters.generation_batch,
                parameters.max_new_tokens,
                done,
                self.template.ends,
            )

    @contextmanager
    def _counted(self, what: str, total: int) -> Iterator[Done]:
        self.progress.start(what, total)

        def done(units: int) -> None:
            self.progress.advance(units)
            self.stop.raise_if_requested("evaluation begins anew on resume; it takes minutes")

        yield done

    def _asked(self) -> list[EvaluatedSample]:
        by_id = {s.sample_id: s for s in self.job.samples}
        return [by_id[sample_id] for sample_id in self.job.generate]

    def _generations(self, answers: dict[str, list[Answer]]) -> list[dict[str, Any]]:
        rows = zip(self._asked(), answers["base"], answers["adapter"], strict=True)
        return [
            {
                "sample_id": sample.sample_id,
                "fault_type": sample.fault_type,
                "before": spoken(sample.turns),
                "prompt": sample.prompt,
                "reference": sample.answer,
                "base": base.text,
                "adapter": adapter.text,
                "base_ended": base.ended,
                "adapter_ended": adapter.ended,
                "tokens": adapter.tokens,
                "base_tokens": base.tokens,
            }
            for sample, base, adapter in rows
        ]

    def _identity(self, trained_sha256: str, device: str, seconds: float) -> dict[str, Any]:
        """What was evaluated, by digest, and on what."""
        import torch
        import transformers

        return {
            "adapter_sha256": trained_sha256,
            "kind": self.folder.name,
            "base_model_sha256": self.job.base_model_sha256,
            "parent_sha256": self.job.parent_sha256,
            "weights": self.job.weights,
            "device": device,
            "threads": torch.get_num_threads(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "seconds": seconds,
        }


def _sequences(
    samples: Sequence[EvaluatedSample], template: PromptTemplate
) -> tuple[list[Encoded], dict[str, Encoded]]:
    """Every sample with its own answer, and by sample id those with another sample's answer.

    A conversation is measured by its last answer, asked with every turn before it: earlier answers are the same in
    both and would say nothing of the pairing.
    """
    answers = {s.sample_id: s.answer for s in samples}
    own = [template.encode(s.prompt, s.answer, s.turns) for s in samples]
    other = {
        s.sample_id: template.encode(s.prompt, answers[s.mispaired_with], s.turns)
        for s in samples
        if s.mispaired_with is not None
    }
    return own, other


def _columns(
    samples: Sequence[EvaluatedSample], own: Sequence[Encoded], paired: Sequence[str], losses: dict[str, list[Summed]]
) -> dict[str, list[Any]]:
    """Columns of eval_losses.parquet; losses in nats per token of the answer they are about."""
    from tasks.evaluate.scoring import learnt_tokens

    mean = {which: [s.nats / s.tokens for s in found] for which, found in losses.items()}
    place = {sample_id: len(samples) + index for index, sample_id in enumerate(paired)}

    def mispaired(which: str) -> list[float | None]:
        return [mean[which][place[s.sample_id]] if s.sample_id in place else None for s in samples]

    return {
        "sample_id": [s.sample_id for s in samples],
        "kind": [s.kind for s in samples],
        "fault_type": [s.fault_type for s in samples],
        "n_answer_tokens": [learnt_tokens(e) for e in own],
        "loss_base": mean["base"][: len(samples)],
        "loss_adapter": mean["adapter"][: len(samples)],
        **({"loss_parent": mean["parent"]} if "parent" in mean else {}),
        "loss_base_mispaired": mispaired("base"),
        "loss_adapter_mispaired": mispaired("adapter"),
        "mispaired_with": [s.mispaired_with for s in samples],
    }


def _general_columns(passages: Sequence[GeneralPassage], losses: dict[str, list[Summed]]) -> dict[str, list[Any]]:
    """Columns of general_losses.parquet; losses in nats per predicted token."""
    return {
        **{name: [getattr(p, name) for p in passages] for name in GeneralPassage.model_fields},
        "n_tokens": [s.tokens for s in losses["base"]],
        "loss_base": [s.nats / s.tokens for s in losses["base"]],
        "loss_adapter": [s.nats / s.tokens for s in losses["adapter"]],
    }


def _write_table(path: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("sample_id", "kind", "fault_type", "mispaired_with", *GeneralPassage.model_fields)
    counts = ("n_answer_tokens", "n_tokens")
    kinds = {n: pa.string() if n in texts else pa.int64() if n in counts else pa.float64() for n in columns}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=pa.schema(list(kinds.items()))), buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


if __name__ == "__main__":
    sys.exit(main())
