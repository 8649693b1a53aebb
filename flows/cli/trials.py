"""The commands `trial make`, `trial run` and `trial compare`: the same few real steps on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.app import app
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show
from specs.errors import EXIT_DONE, InputError, VerificationFailed

if TYPE_CHECKING:
    from specs.parameters import TrainingConfiguration

trial = typer.Typer(help="A few real steps in one file, run on several machines and compared.", no_args_is_help=True)
app.add_typer(trial, name="trial")

TrialFile = Annotated[Path, typer.Argument(metavar="FILE", help="The trial: trial.json of `trial make`.")]


@trial.command("make")
@guarded
def make(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run with a finished data stage, or its project.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The trial to write, such as trial.json.")],
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045  typer reads this at run time
        typer.Option("--set", metavar="NAME=VALUE", help="Another setting of the training, such as weights=bf16."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Write a trial: the training configuration, and the samples of its heaviest and its bucket steps."""
    from flows.cli.find import look_for
    from flows.cli.progress import for_terminal
    from flows.folding import fold
    from flows.proposing import model_of
    from flows.trial_data import samples_of, training_of
    from flows.workspace import frozen_spec
    from tasks.advising.trial import made, read_trial, write

    workspace, ledger = look_for(run)
    state, spec = fold(ledger.events(workspace.run)), frozen_spec(workspace)
    samples = samples_of(workspace, state)
    training = changed(training_of(workspace, state), settings or [])
    with for_terminal() as progress:
        model = model_of(workspace, spec, progress)
    found = made(spec.project, model.source, model.sha256, training, samples)
    write(found, file)
    sha256 = read_trial(file).sha256
    document = {"file": str(file), "sha256": sha256, "steps": len({r["step"] for r in found.plan})}
    if as_json:
        emit(document)
    else:
        say(f"wrote {file}: {document['steps']} steps with {len(found.samples)} samples of {spec.project}")
        say("  it holds real samples: give it to whom the data may be given")
        say(f"  next, on each machine: gatewright trial run {file} --name MACHINE")
    return EXIT_DONE


@trial.command("run")
@guarded
def run_trial(
    file: TrialFile,
    name: Annotated[str | None, typer.Option("--name", help="How this machine is called in the comparison.")] = None,
    model: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--model", help="Folder of the base model, where its name in the trial is not to be had here."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="FILE", help="The result to write; default: beside the trial, by the name."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Train the steps of a trial on this machine, and write what was measured."""
    import re

    from flows.cli.progress import for_terminal
    from specs.project import Hub
    from tasks.advising.trial import read_trial, run, write
    from tasks.memory.devices import this_device
    from tasks.models.resolve import resolve_base_model

    found = read_trial(file)
    called = name or this_device().name
    plain = re.sub(r"[^\w.-]+", "-", called).strip("-") or "machine"
    target = out or file.with_name(f"{file.stem}-{plain}.json")
    with for_terminal() as progress:
        place = str(model.resolve()) if model is not None else found.base_model
        resolved = resolve_base_model(place, file.resolve().parent, Hub(mirror=None, revision=None), progress)
        if resolved.sha256 != found.base_model_sha256:
            raise VerificationFailed(
                f"{place} is not the base model of this trial: {resolved.sha256[:12]} instead of "
                f"{found.base_model_sha256[:12]}",
                "copy the model that the trial was made with, and name its folder with --model",
            )
        measured = run(found, resolved.folder, called, progress)
    write(measured, target)
    if as_json:
        emit({"file": str(target), **measured.model_dump(mode="json")})
    else:
        rate, step = measured.tokens_per_second, measured.seconds_per_step
        say(f"{called}: {rate:.0f} tokens/s, {step:.3g} s a step, {len(measured.steps)} steps; wrote {target}")
    return EXIT_DONE


@trial.command("compare")
@guarded
def compare(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of `trial run`.")],
    as_json: AsJson = False,
) -> int:
    """Set results of the same trial side by side, the quickest machine first."""
    from tasks.advising.trial import compared, read_result

    rows = compared([read_result(file) for file in files])
    if as_json:
        emit([row.model_dump(mode="json") for row in rows])
        return EXIT_DONE
    from rich.table import Table

    table = Table("machine", "device", "s/step", "tokens/s", "slower", "peak GiB", "of usable", "loss off", "software")
    for row in rows:
        table.add_row(
            row.name,
            row.device,
            f"{row.seconds_per_step:.3g}",
            f"{row.tokens_per_second:.0f}",
            f"{row.times_slower:.2f}x",
            "" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.2f}",
            "" if row.share is None else f"{row.share:.0%}",
            "" if row.loss_difference is None else f"{row.loss_difference:.2g}",
            ", ".join(f"{name} {version}" for name, version in row.different.items()),
        )
    show(table)
    return EXIT_DONE


def changed(training: TrainingConfiguration, settings: list[str]) -> TrainingConfiguration:
    """The configuration with settings from the command line. Raises `InputError` for one that is not known."""
    from pydantic import ValidationError

    values: dict[str, Any] = {}
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign or name not in type(training).model_fields:
            raise InputError(
                f"--set {text}: no setting of a training", "docs/parameters.md lists TrainingConfiguration"
            )
        values[name] = {"true": True, "false": False, "null": None}.get(value, value)
    try:
        return type(training).model_validate_json(_json(training.model_dump(mode="json") | values), strict=False)
    except ValidationError as error:
        wrong = "; ".join(f"{e['loc'][0] if e['loc'] else 'training'}: {e['msg']}" for e in error.errors())
        raise InputError(f"--set: {wrong}", "docs/parameters.md lists the values") from None


def _json(values: dict[str, Any]) -> str:
    import json

    return json.dumps(values)
