"""Every artifact of the data stage, damaged in every way: the verifier names the file and the way out, or judges on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.errors import VerificationFailed
from specs.project import Project
from tasks.verify.data import metrics
from tasks.verify.data_artifacts import require_artifacts
from tests.support.raw_project import run_stage, stage_context, write_csv

TABLES = ("samples", "row_ledger", "review_pairs", "quarantine", "masked", "paragraphs", "windows")
NAMES = (*(f"{name}.parquet" for name in TABLES), "decoding.json", "buckets.json", "held_out.json", "summary.json")
MAY_LACK = ("held_out.json", "summary.json", "masked.parquet")


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """(attempt, context) of a small finished run."""
    folder = tmp_path_factory.mktemp("damage")
    rows = [[f"VM-{n}", f"The belt {n} of the mill is loud", f"Replaced belt {n}"] for n in range(30)]
    write_csv(folder / "a.csv", ["M", "P", "R"], rows)
    columns = {"device_model": "M", "phenomenon": "P", "repair": "R"}
    source = {"kind": "work_orders", "path": "a.csv", "columns": columns}
    spec = Project.model_validate({"project": "p", "base_model": "m", "sources": [source]})
    run_stage(folder, spec, tiny_model, folder / "out")
    return folder / "out", stage_context(folder, spec, tiny_model, folder / "out").model_dump(mode="json")


@pytest.fixture
def attempt(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(run[0] / "artifacts", tmp_path / "artifacts")
    return tmp_path


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def swap(path: Path) -> None:
    names = [n for n in NAMES if Path(n).suffix == path.suffix]
    other = names[(names.index(path.name) + len(path.name)) % len(names)]
    path.write_bytes((path.parent / (other if other != path.name else names[0])).read_bytes())


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "truncated": truncate,
    "emptied": lambda path: path.write_bytes(b""),
    "other text": lambda path: path.write_bytes(b"\x00" * 40),
    "a folder": directory,
    "of another file": swap,
    "no file but a pointer to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_damaged_artifact_is_named_with_the_way_out(attempt: Path, damage: str):
    for name in NAMES:
        kept = (attempt / "artifacts" / name).read_bytes()
        DAMAGE[damage](attempt / "artifacts" / name)
        lacking = damage in ("gone", "no file but a pointer to itself")
        if lacking and name in MAY_LACK:
            require_artifacts(attempt / "artifacts")
        else:
            with pytest.raises(VerificationFailed, match=f"artifacts/{name} ") as raised:
                require_artifacts(attempt / "artifacts")
            assert raised.value.message.count("artifacts/") == 1
            assert "gatewright rework" in raised.value.hint
        if (attempt / "artifacts" / name).is_dir():
            (attempt / "artifacts" / name).rmdir()
        (attempt / "artifacts" / name).unlink(missing_ok=True)
        (attempt / "artifacts" / name).write_bytes(kept)


def test_all_damaged_artifacts_are_named_at_once(run, attempt: Path):
    for name in ("samples.parquet", "buckets.json"):
        truncate(attempt / "artifacts" / name)
    with pytest.raises(VerificationFailed, match=r"artifacts/samples\.parquet .*; artifacts/buckets\.json "):
        metrics(attempt, {}, run[1])


def test_damage_inside_a_table_names_it(run, attempt: Path):
    path = attempt / "artifacts" / "samples.parquet"
    data = bytearray(path.read_bytes())
    data[60:200] = bytes(140)
    path.write_bytes(bytes(data))
    with pytest.raises(VerificationFailed, match=r"artifacts/samples\.parquet is damaged inside"):
        metrics(attempt, {}, run[1])


@pytest.mark.parametrize(("name", "column"), [("samples", "answer"), ("row_ledger", "location")])
def test_a_row_without_its_text_is_named(run, attempt: Path, name: str, column: str):
    path = attempt / "artifacts" / f"{name}.parquet"
    table = pq.read_table(path)
    texts = [None, *table[column].to_pylist()[1:]]
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array(texts, pa.string())), path)
    with pytest.raises(VerificationFailed, match=rf"artifacts/{name}\.parquet is damaged inside: {column} has no text"):
        metrics(attempt, {}, run[1])


def test_a_column_of_another_type_is_named(run, attempt: Path):
    path = attempt / "artifacts" / "samples.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("n_tokens")
    pq.write_table(table.set_column(at, "n_tokens", pa.array(map(str, table["n_tokens"].to_pylist()))), path)
    with pytest.raises(VerificationFailed, match="another type of column in n_tokens"):
        metrics(attempt, {}, run[1])


def test_json_of_another_form_is_named(run, attempt: Path):
    (attempt / "artifacts" / "buckets.json").write_text(json.dumps([1, 2]))
    with pytest.raises(VerificationFailed, match=r"artifacts/buckets\.json has no 'edges'"):
        metrics(attempt, {}, run[1])
