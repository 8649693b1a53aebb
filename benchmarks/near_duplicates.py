"""Near duplicates: ours against datatrove and text-dedup, on generated work orders with known copies and variants.

    python benchmarks/near_duplicates.py [--count 100000] [--peers PYTHON] [--tools NAME...] [--out FILE]

The peers are installed into an environment of their own under a temporary folder, or used from `--peers`, the
python of an environment that has them. Every tool reads the same JSON lines in a process of its own and writes which
records stay. Wall seconds are of the whole process, CPU seconds of it and its children. Each peer runs twice per
language: as its documentation proposes (5-grams), and with the grams that found most copies in our trials.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from generated_orders import Order, orders

PEERS = ("datatrove==0.10.1", "text-dedup==0.4.0", "spacy", "jieba", "orjson", "tokenizers", "xxhash<4")
VARIANTS = 3_000
COPIES = 0.08

OURS = "ours"
RUNS: dict[str, list[tuple[str, str, str]]] = {
    "zh": [
        (OURS, "", ""),
        ("datatrove", "5", "cmn_Hani"),
        ("datatrove", "3", "cmn_Hani"),
        ("text-dedup", "5", ""),
        ("text-dedup", "1", ""),
    ],
    "en": [
        (OURS, "", ""),
        ("datatrove", "5", "eng_Latn"),
        ("datatrove", "2", "eng_Latn"),
        ("text-dedup", "5", ""),
        ("text-dedup", "2", ""),
    ],
}

DATATROVE = """
import json, sys
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig

def main():
    source, work, grams, language = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    config = MinhashConfig(n_grams=grams, num_buckets=16, hashes_per_bucket=8, hash_config=HashConfig(precision=64))
    reader = lambda: JsonlReader(str(source.parent), glob_pattern=source.name)
    steps = [
        [reader(), MinhashDedupSignature(output_folder=str(work / "s"), config=config, language=language)],
        [MinhashDedupBuckets(input_folder=str(work / "s"), output_folder=str(work / "b"), config=config)],
        [MinhashDedupCluster(input_folder=str(work / "b"), output_folder=str(work / "r"), config=config)],
        [reader(), MinhashDedupFilter(input_folder=str(work / "r")), JsonlWriter(str(work / "k"), compression=None)],
    ]
    for number, step in enumerate(steps):
        tasks = 16 if number == 1 else 1
        LocalPipelineExecutor(pipeline=step, tasks=tasks, workers=2 if tasks > 1 else 1,
                              logging_dir=str(work / f"log{number}")).run()
    rows = [json.loads(line) for f in sorted((work / "k").glob("*")) for line in f.open()]
    (work / "kept.json").write_text(json.dumps({"kept": [{**r, **r.get("metadata", {})}["number"] for r in rows]}))

if __name__ == "__main__":
    main()
"""


def ours(source: Path, target: Path) -> None:
    """What the data stage does with the texts: exact copies, star clusters under the guard, pairs for review."""
    import numpy as np

    from tasks.data.merging import critical, fingerprints, in_memory, merge_duplicates
    from tasks.data.similarity import normalise

    records = [json.loads(line) for line in source.open(encoding="utf-8")]
    normalised = [normalise(record["text"]) for record in records]
    guards = [
        critical(text, "work_order", r["device_model"], r["fault_type"])
        for text, r in zip(normalised, records, strict=True)
    ]
    everyone = np.ones(len(records), np.bool_)
    merged = merge_duplicates(
        fingerprints(normalised, guards),
        np.zeros(len(records), np.int64),
        everyone,
        everyone,
        0.7,
        in_memory(normalised),
    )
    pairs = zip(merged.pairs.a[merged.review].tolist(), merged.pairs.b[merged.review].tolist(), strict=True)
    kept = [records[i]["id"] for i in np.flatnonzero(merged.into < 0)]
    target.write_text(json.dumps({"kept": kept, "review": list(pairs)}))


def peers_python(given: str | None, folder: Path) -> str:
    """The python of an environment with the peers, made under `folder` unless one is given."""
    if given:
        return given
    subprocess.run([sys.executable, "-m", "venv", folder / "peers"], check=True)
    python = folder / "peers" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
    return str(python)


def command(tool: str, grams: str, language: str, python: str, source: Path, work: Path) -> list[str]:
    """The command line that runs one tool over `source`."""
    if tool == OURS:
        return [sys.executable, __file__, "--ours", str(source), str(work / "kept.json")]
    if tool == "datatrove":
        (work / "run.py").write_text(DATATROVE)
        return [python, str(work / "run.py"), str(source), str(work), grams, language]
    sizes = ["--ngram", grams, "--min_length", grams, "--num_perm", "128", "--b", "16", "--r", "8"]
    where = ["--path", "json", "--data_files", str(source), "--split", "train", "--output", str(work / "out")]
    quick = ["--threshold", "0.7", "--hash_func", "xxh3", "--num_proc", "2"]
    columns = ["--column", "text", "--idx_column", "id", "--cache_dir", str(work / "cache")]
    return [python, "-m", "text_dedup.minhash", *where, *columns, *sizes, *quick]


def kept_by(tool: str, python: str, work: Path) -> dict[str, Any]:
    """What a tool kept, and for ours also the pairs for review."""
    if tool == "text-dedup":
        code = "import sys, json; from datasets import load_from_disk;"
        code += "print(json.dumps({'kept': [int(i) for i in load_from_disk(sys.argv[1])['number']]}))"
        out = subprocess.run([python, "-c", code, str(work / "out")], capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(out.stdout)
        return found
    result: dict[str, Any] = json.loads((work / "kept.json").read_text())
    return result


def measure(line: list[str], work: Path) -> tuple[float, float]:
    """(wall seconds, CPU seconds) of a command. Its output goes to a file, which is shown when it fails."""
    environment = {**os.environ, "HF_HOME": str(work / "hf"), "HF_DATASETS_OFFLINE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with (work / "log").open("wb") as log:
        code = subprocess.run(line, stdout=log, stderr=log, cwd=work, env=environment).returncode
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise SystemExit(f"{line}: exit code {code}\n{(work / 'log').read_text()[-3000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def judge(records: list[Order], result: dict[str, Any]) -> dict[str, float]:
    """Copies found (removed, or listed for review), and records of their own that are gone altogether.

    A group of copies may keep any one of its members, not only the first; a group of which none is kept is lost.
    """
    kept = set(result["kept"])
    listed = {i for pair in result.get("review", []) for i in pair}
    groups: dict[int, list[int]] = {}
    for i, order in enumerate(records):
        groups.setdefault(order.group, []).append(i)
    variants = {order.group for order in records if order.planted == "variant"}
    lost = {group for group, members in groups.items() if kept.isdisjoint(members)}
    copies = sum(len(members) - 1 for members in groups.values())
    removed = sum(min(len(m) - 1, sum(i not in kept for i in m)) for m in groups.values())
    found = sum(min(len(m) - 1, sum(i not in kept or i in listed for i in m)) for m in groups.values())
    return {
        "copies": copies,
        "copies_removed": removed / copies,
        "copies_found": found / copies,
        "variants_lost": len(variants & lost),
        "other_records_lost": len(lost - variants),
        "review_pairs": len(result.get("review", [])),
    }


def compare(language: str, count: int, python: str, folder: Path, tools: Collection[str]) -> list[dict[str, Any]]:
    """One line of figures per tool; ours is always one of them."""
    records = list(orders(language, 1, count, COPIES, VARIANTS))
    source = folder / f"{language}.jsonl"
    with source.open("w", encoding="utf-8") as file:
        for i, order in enumerate(records):
            named = {"device_model": order.device_model, "fault_type": order.fault_type}
            # text-dedup drops its index column: the number stands in a second one.
            row = {"id": i, "number": i, "text": order.content(), **named}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    lines = []
    for tool, grams, code in (run for run in RUNS[language] if run[0] in {OURS, *tools}):
        work = folder / f"{language}-{tool}-{grams}"
        work.mkdir()
        wall, cpu = measure(command(tool, grams, code, python, source, work), work)
        figures = judge(records, kept_by(tool, python, work))
        lines.append({"language": language, "tool": tool, "grams": grams, "wall_s": wall, "cpu_s": cpu, **figures})
        print(json.dumps(lines[-1]), flush=True)
        shutil.rmtree(work)
    return lines


def main() -> None:
    """Run every tool on both languages and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--peers", help="python of an environment with " + ", ".join(PEERS))
    parser.add_argument("--tools", nargs="+", default=["datatrove", "text-dedup"], help="peers to run beside ours")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--ours", nargs=2, type=Path, metavar=("SOURCE", "TARGET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        ours(*options.ours)
        return
    with tempfile.TemporaryDirectory() as name:
        python = peers_python(options.peers, Path(name))
        lines = [line for lang in RUNS for line in compare(lang, options.count, python, Path(name), options.tools)]
    mine = {line["language"]: line for line in lines if line["tool"] == OURS}
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'times':>7}{'found':>8}{'removed':>9}", "  variants lost  others lost")
    for line in lines:
        times = line["cpu_s"] / mine[line["language"]]["cpu_s"]
        name = f"{line['language']} {line['tool']} {line['grams']}"
        print(
            f"{name:24}{line['wall_s']:8.1f}{line['cpu_s']:8.1f}{times:7.1f}{line['copies_found']:8.3f}"
            f"{line['copies_removed']:9.3f}{line['variants_lost']:15}{line['other_records_lost']:13}"
        )
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
