"""What the samples are like after an added stage has rewritten them: proposers count on these, not on the old ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.workspace import Workspace
from specs.added import stands_in
from specs.criteria import Metric
from specs.project import Project
from specs.results import Evidence


def as_rewritten(
    workspace: Workspace, spec: Project, evidence: Mapping[str, Evidence], lengths: Mapping[str, Any]
) -> tuple[dict[str, Evidence], dict[str, Any]]:
    """Evidence and summary of `data` with the counts and lengths of the samples that later stages read."""
    standing = {given["data"] for given in stands_in(spec.added_stages).values() if "data" in given}
    found, told = dict(evidence), dict(lengths)
    for name in standing & evidence.keys():
        if "data" not in found:
            continue
        table = workspace.attempt(name, evidence[name].attempt) / "artifacts" / "samples.parquet"
        metrics, mean = _counted(table)
        data = found["data"]
        found["data"] = data.model_copy(update={"metrics": {**data.metrics, **metrics}})
        tokens = told.get("tokens")
        told["tokens"] = {**(tokens if isinstance(tokens, dict) else {}), "mean": mean}
    return found, told


def rewritten_samples(workspace: Workspace, spec: Project, attempts: Mapping[str, int]) -> Path | None:
    """The samples that training reads, where an added stage rewrote them; None where it reads those of `data`.

    `attempts` maps the finished stages to the attempt that counts; None too while the rewriting stage has not run.
    """
    writer = stands_in(spec.added_stages).get("train", {}).get("data")
    if writer is None or writer not in attempts:
        return None
    return workspace.attempt(writer, attempts[writer]) / "artifacts" / "samples.parquet"


def _counted(table: Path) -> tuple[dict[str, Metric], float]:
    """(counts of both sides and the longest sample, mean tokens of a training sample)."""
    import pyarrow.parquet as pq

    columns = pq.read_table(table, columns=["split", "n_tokens"]).to_pydict()
    train = [n for split, n in zip(columns["split"], columns["n_tokens"], strict=True) if split == "train"]
    metrics = {
        "samples_train": Metric(value=len(train), unit="samples"),
        "samples_eval": Metric(value=len(columns["split"]) - len(train), unit="samples"),
        "longest_sample": Metric(value=max(columns["n_tokens"], default=0), unit="tokens"),
    }
    return metrics, sum(train) / len(train) if train else 0.0
