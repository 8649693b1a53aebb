"""Commands before a run: init, check, schema, decompose, estimate."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.options import AsJson, ProjectArgument
from flows.cli.output import emit, guarded, say, show
from specs.errors import EXIT_DONE, InputError, SpecError


@app.command()
@guarded
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet, or is empty.")],
    example: Annotated[str | None, typer.Option("--example", help="Start from an example, such as cnc-repair.")] = None,
    lang: Annotated[str, typer.Option("--lang", help="en or zh.")] = "en",
    as_json: AsJson = False,
) -> int:
    """Make a new project: a commented project.yaml, and the raw data of an example when one is named."""
    from flows.new_project import create

    made = create(folder, example, lang)
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
    from specs.defaults import effective_spec
    from specs.loading import load_project
    from tasks.check import check_project

    loaded = load_project(project)
    report = check_project(loaded, with_model=True)
    if report.problems:
        raise SpecError(report.problems)
    settings = effective_spec(loaded.spec)
    if as_json:
        emit(
            {
                "project": loaded.spec.project,
                "sources": [s.model_dump(mode="json") for s in report.sources],
                "settings": [{"path": p, "value": v, "default": d} for p, v, d in settings],
            }
        )
        return EXIT_DONE
    show(_sources_table(report.sources))
    for path, value, is_default in settings:
        say(f"  {path}: {_yaml(value)}" + ("   (default)" if is_default else ""))
    say(f"{loaded.file}: no problems")
    return EXIT_DONE


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
    as_json: AsJson = False,
) -> int:
    """Draft the task sheet: per stage its inputs, expected outputs in numbers, criteria, budget and signers."""
    from flows.decomposing import draft

    language, sheet = draft(project, goal)
    if as_json:
        emit(sheet.model_dump(mode="json"))
    else:
        from rich.markdown import Markdown

        from agents.reporter import sheet_page

        show(Markdown(sheet_page(sheet, language)))
    return EXIT_DONE


@app.command()
@guarded
def estimate(
    model: Annotated[str, typer.Option("--model", help="A name of the catalog, a folder, or a config.json.")],
    method: Annotated[str, typer.Option("--method", help="full, lora, qlora or dora.")] = "lora",
    lora_rank: Annotated[int, typer.Option("--lora-rank", help="Rank of the adapters.")] = 16,
    lora_targets: Annotated[
        str, typer.Option("--lora-targets", help="all-linear, or names with commas.")
    ] = "all-linear",
    weights: Annotated[str, typer.Option("--weights", help="fp32, bf16, fp16, nf4 or nf4-dq.")] = "bf16",
    compute: Annotated[str, typer.Option("--compute", help="bf16, amp-bf16, amp-fp16 or fp32.")] = "bf16",
    optimizer: Annotated[
        str, typer.Option("--optimizer", help="adamw, adamw_fused, adamw_8bit, paged_adamw_8bit, adafactor or sgd.")
    ] = "adamw",
    micro_batch: Annotated[int, typer.Option("--micro-batch", help="Samples per device and step.")] = 1,
    seq_len: Annotated[int, typer.Option("--seq-len", help="Tokens per sample.")] = 1024,
    activation_checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Recompute activations in the backward pass.")
    ] = False,
    attention: Annotated[str, typer.Option("--attention", help="flash, sdpa or eager.")] = "sdpa",
    gpu: Annotated[Optional[str], typer.Option("--gpu", help="A card of the catalog, to see whether it fits.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> int:
    """One memory account: the predicted peak of one training configuration, by phase and by resident."""
    from pydantic import ValidationError

    from specs.parameters import TrainingConfiguration
    from tasks.memory.architecture import architecture_of
    from tasks.memory.devices import named
    from tasks.memory.estimate import estimate as estimate_account
    from tasks.memory.settings import from_training

    targets: Any = lora_targets if lora_targets == "all-linear" else lora_targets.split(",")
    values = {
        "method": method,
        "lora": {"rank": lora_rank, "targets": targets},
        "weights": weights,
        "compute": compute,
        "optimizer": optimizer,
        "micro_batch": micro_batch,
        "max_length": seq_len,
        "activation_checkpointing": activation_checkpointing,
        "attention": attention,
    }
    try:
        training = TrainingConfiguration.model_validate(values)
    except ValidationError as error:
        lines = [f"--{'-'.join(str(p) for p in e['loc']).replace('_', '-')}: {e['msg']}" for e in error.errors()]
        raise InputError("; ".join(lines), "gatewright estimate --help lists the values") from None
    account = estimate_account(
        from_training(architecture_of(model), training, seq_len, "cuda"), named(gpu) if gpu else None
    )
    if as_json:
        emit(account.model_dump(mode="json"))
    else:
        show(_account_table(account))
    return EXIT_DONE


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
    return table
