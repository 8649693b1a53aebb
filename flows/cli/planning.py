"""Commands before a run: init, check, schema, decompose, estimate."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.options import AsJson, ProjectArgument
from flows.cli.output import emit, guarded, say, show, tell
from specs.errors import EXIT_DONE, InputError, SpecError


@app.command()
@guarded
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet, or is empty.")],
    example: Annotated[str | None, typer.Option("--example", help="Start from an example, such as cnc-repair.")] = None,
    lang: Annotated[str, typer.Option("--lang", help="en or zh.")] = "en",
    added_stages: Annotated[
        bool, typer.Option("--added-stages", help="With three example stages of the project's own; docs/stages.md.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a new project: a commented project.yaml, and the raw data of an example when one is named."""
    from flows.new_project import create

    made = create(folder, example, lang, added_stages)
    if as_json:
        emit({"project": str(folder.resolve()), "files": made})
    else:
        say(f"made {folder} ({len(made)} files)")
        edit = "" if example else "   (after editing project.yaml)"
        say(f"  next: gatewright check {shlex.quote(str(folder))}{edit}")
    return EXIT_DONE


@app.command()
@guarded
def check(project: ProjectArgument, as_json: AsJson = False) -> int:
    """Validate the spec and the sources; every problem at once, then every setting with its default."""
    from specs.credentials import without_secrets
    from specs.defaults import effective_spec
    from specs.loading import load_project
    from tasks.check import check_project, with_proposals

    try:
        loaded = load_project(project)
    except SpecError as error:
        raise with_proposals(error, project) from None
    report = check_project(loaded, with_model=True)
    if report.problems:
        raise SpecError(report.problems)
    settings = effective_spec(without_secrets(loaded.spec))
    if as_json:
        emit(
            {
                "project": loaded.spec.project,
                "sources": [s.model_dump(mode="json") for s in report.sources],
                "settings": [{"path": p, "value": v, "default": d} for p, v, d in settings],
                "notes": report.notes,
                "previews": [{"source": n, "rows": rows} for n, rows in sorted(report.previews.items())],
            }
        )
        return EXIT_DONE
    show(_sources_table(report.sources))
    if any(s.kind in ("manuals", "notes", "sensor_logs") for s in report.sources):
        say("  rows of manuals and notes are blocks of text, of logs readings; the data stage makes paragraphs,")
        say("  notes and windows of them, and its report counts those")
    _say_previews(report)
    for path, value, is_default in settings:
        say(f"  {path}: {_yaml(value)}" + ("   (default)" if is_default else ""))
    for note in report.notes:
        say(f"  note: {note}")
    say(f"{loaded.file}: no problems")
    return EXIT_DONE


def _say_previews(report: Any) -> None:
    """How the first rows of each table are read, so that a wrong mapping is seen before anything runs."""
    from tasks.data.mapping import preview_text

    for number, rows in sorted(report.previews.items()):
        say(f"  sources[{number}], {report.sources[number].path}, first rows:")
        for row in rows:
            say(f"    {preview_text(row)}")


def _yaml(value: Any) -> str:
    """A value as a person would write it in project.yaml."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sources_table(sources: Any) -> Any:
    from rich.table import Table

    table = Table(title="sources", title_justify="left")
    for column in ("kind", "path", "files", "rows", "encoding"):
        table.add_column(column)
    for source in sources:
        encodings = ", ".join(sorted(set(source.encodings.values())))
        table.add_row(source.kind, source.path, str(len(source.files)), str(source.rows), encodings)
    return table


@app.command()
@guarded
def schema(as_json: AsJson = True) -> int:
    """JSON Schema of project.yaml, for editors."""
    from specs.schema import project_json_schema

    emit(project_json_schema())
    return EXIT_DONE


@app.command()
@guarded
def decompose(
    project: ProjectArgument,
    goal: Annotated[
        str | None, typer.Argument(metavar="GOAL", help="One line: what the model should be able to do.")
    ] = None,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write task_sheet.yaml into the project: the file that the first gate signs."),
    ] = False,
    to: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--to", metavar="FILE", help="Write it there instead: .yaml, or .md or .html to read."),
    ] = None,
    check_file: Annotated[
        bool, typer.Option("--check", help="Check the project's task_sheet.yaml and show it, as the first gate would.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Draft the task sheet: per stage its inputs, expected outputs in numbers, criteria, budget and signers."""
    from agents.reporter import sheet_page
    from flows.cli.progress import for_terminal
    from flows.decomposing import draft, require_no_goal, write_to
    from flows.sheets import read_back

    if write or check_file or to is not None:
        require_no_goal(goal, to)
    with for_terminal() as progress:
        drafted = draft(project, goal, progress)
    spec, sheet = drafted.loaded.spec, drafted.sheet
    if check_file:
        sheet = read_back(drafted.loaded.folder, drafted.context, sheet)
    written = write_to(drafted, to, sheet) if write or to else None
    if as_json:
        emit(sheet.model_dump(mode="json"))
    elif written is None:
        from flows.cli.pages import Page

        show(Page(sheet_page(sheet, spec)))
    if written is not None:
        tell(f"wrote {written.file}" + (f"; {written.kept} numbers of yours were kept" if written.kept else ""))
        blocking = sum(f.blocking for f in sheet.findings)
        tell(f"it leaves {len(sheet.findings)} things open, {blocking} of them keep the first gate closed")
    for note in drafted.notes:
        tell(f"note: {note}")
    return EXIT_DONE


@app.command()
@guarded
def estimate(
    model: Annotated[str, typer.Option("--model", help="A name of the catalog, a folder, or a config.json.")],
    method: Annotated[str, typer.Option("--method", help="full, lora, qlora, dora or inference.")] = "lora",
    lora_rank: Annotated[int, typer.Option("--lora-rank", help="Rank of the adapters.")] = 16,
    lora_targets: Annotated[
        str, typer.Option("--lora-targets", help="all-linear, or names with commas.")
    ] = "all-linear",
    weights: Annotated[
        str | None, typer.Option("--weights", help="fp32, bf16, fp16, nf4 or nf4-dq; by method when left out.")
    ] = None,
    compute: Annotated[str | None, typer.Option("--compute", help="bf16, amp-bf16, amp-fp16 or fp32.")] = None,
    optimizer: Annotated[
        str, typer.Option("--optimizer", help="adamw, adamw_fused, adamw_8bit, paged_adamw_8bit, adafactor or sgd.")
    ] = "adamw",
    micro_batch: Annotated[int, typer.Option("--micro-batch", "--batch", help="Samples at a time.")] = 1,
    seq_len: Annotated[
        int, typer.Option("--seq-len", help="Tokens per sample; for inference prompt and answer together.")
    ] = 1024,
    activation_checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Recompute activations in the backward pass.")
    ] = False,
    packing: Annotated[
        bool, typer.Option("--packing", help="Samples share rows of --seq-len tokens and do not see each other.")
    ] = False,
    attention: Annotated[str, typer.Option("--attention", help="flash, sdpa or eager.")] = "sdpa",
    loss_path: Annotated[
        str,
        typer.Option(
            "--loss-path",
            help="Software: current, hf-2024, fused, fused-2025, chunked, chunked-current.",
        ),
    ] = "current",
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs that share the work.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="Machines that these GPUs are in, evenly.")] = 1,
    sharding: Annotated[str, typer.Option("--sharding", help="none, ddp, zero1, zero2, zero3 or fsdp.")] = "none",
    offload: Annotated[str, typer.Option("--offload", help="none, optimizer or all, to host memory.")] = "none",
    kbit_prepare: Annotated[
        str, typer.Option("--kbit-prepare", help="yes or no: what stays unpacked beside 4-bit weights goes to fp32.")
    ] = "yes",
    kv_dtype: Annotated[
        str | None, typer.Option("--kv-dtype", help="Of the cache in inference: fp32, bf16, fp16, fp8, int8 or int4.")
    ] = None,
    gpu: Annotated[Optional[str], typer.Option("--gpu", help="A card of the catalog, to see whether it fits.")] = None,  # noqa: UP045
    host_memory_gb: Annotated[
        float | None, typer.Option("--host-memory-gb", help="Host memory there is, in GiB; with --gpu.")
    ] = None,
    disk_gb: Annotated[float | None, typer.Option("--disk-gb", help="Free disk there is, in GiB; with --gpu.")] = None,
    as_json: AsJson = False,
) -> int:
    """One memory account: the predicted peak of one training or inference configuration, by phase and by resident."""
    from tasks.memory.architecture import architecture_of
    from tasks.memory.asked import settings_of
    from tasks.memory.devices import named
    from tasks.memory.estimate import estimate as estimate_account

    if kbit_prepare not in ("yes", "no"):
        raise InputError(f"--kbit-prepare is yes or no, not {kbit_prepare}", "yes is what PEFT's preparation does")
    options: dict[str, Any] = {
        "method": method,
        "rank": lora_rank,
        "targets": lora_targets if lora_targets == "all-linear" else lora_targets.split(","),
        "weights": weights,
        "compute": compute,
        "optimizer": optimizer,
        "micro_batch": micro_batch,
        "seq_len": seq_len,
        "activation_checkpointing": activation_checkpointing,
        "packed": packing,
        "attention": attention,
        "loss_path": loss_path,
        "gpus": gpus,
        "nodes": nodes,
        "sharding": sharding,
        "offload": offload,
        "kbit_prepare": kbit_prepare == "yes",
        "kv_dtype": kv_dtype,
    }
    device = named(gpu, gpus) if gpu is not None else None
    if device:
        device = device.with_host(host_memory_gb, disk_gb)
    account = estimate_account(settings_of(architecture_of(model), options), device)
    if as_json:
        emit(account.model_dump(mode="json"))
    else:
        show(_account_table(account))
        for line in _verdict(account):
            say(line)
    return EXIT_DONE


def _verdict(account: Any) -> list[str]:
    """Whether it fits, what it takes beside the GPU, and what was assumed."""
    found = account.fits
    lines = [f"note: {note}" for note in account.notes]
    if found is None:
        return lines
    word = "fits" if found.fits else "does not fit"
    lines.append(f"{word} {found.device}: {found.share:.0%} of {found.usable_bytes / 2**30:.1f} GiB that can be used")
    return [*lines, *(f"  {reason}" for reason in found.reasons)]


def _account_table(account: Any) -> Any:
    from rich.table import Table

    table = Table(title=f"predicted peak ({account.method})", title_justify="left")
    table.add_column("")
    table.add_column("GiB", justify="right")
    table.add_row("peak allocated", f"{account.peak_allocated_bytes / 2**30:.2f}", style="bold")
    table.add_row("peak reserved", f"{account.peak_reserved_bytes / 2**30:.2f}")
    for name, size in account.phases.items():
        table.add_row(f"phase {name}", f"{size / 2**30:.2f}")
    for name, size in account.residents.items():
        table.add_row(f"at the peak: {name}", f"{size / 2**30:.2f}")
    table.add_row("host memory", f"{account.host_peak_bytes / 2**30:.2f}")
    table.add_row("disk", f"{account.disk_bytes / 2**30:.2f}")
    return table
