"""The commands `trial make`, `trial run` and `trial compare`: the same few real steps on several machines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Optional

import typer

from flows.cli.app import app
from flows.cli.language import asked
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show
from specs.errors import EXIT_DONE, VerificationFailed

trial = typer.Typer(help="A few real steps in one file, run on several machines and compared.", no_args_is_help=True)
app.add_typer(trial, name="trial")

Lang = Annotated[Optional[str], typer.Option("--lang", help="en or zh; default: that of the project.")]  # noqa: UP045
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
    lang: Lang = None,
    as_json: AsJson = False,
) -> int:
    """Write a trial: the training configuration, and the samples of its heaviest and its bucket steps."""
    from flows.cli.deciding import pairs
    from flows.cli.find import look_for
    from flows.cli.progress import for_terminal
    from flows.folding import fold
    from flows.proposing import model_of
    from flows.trial_data import changed, samples_of, training_of
    from flows.workspace import frozen_spec
    from tasks.advising.trial import made, read_trial, write
    from tasks.advising.trial_texts import text

    wanted = asked(lang)
    workspace, ledger = look_for(run)
    state, spec = fold(ledger.events(workspace.run)), frozen_spec(workspace)
    samples = samples_of(workspace, state)
    training = changed(training_of(workspace, state), pairs(settings or [], "--set"))
    language = wanted or spec.language
    with for_terminal() as progress:
        model = model_of(workspace, spec, progress)
    found = made(spec.project, model.source, model.sha256, training, samples, language)
    write(found, file)
    sha256 = read_trial(file).sha256
    steps, run = len({r["step"] for r in found.plan}), workspace.run
    if as_json:
        emit({"file": str(file), "sha256": sha256, "run": run, "steps": steps})
    else:
        counts = {"steps": steps, "samples": len(found.samples)}
        say(text(language, "made", file=file, project=spec.project, run=run, **counts))
        say(text(language, "real"))
        say(text(language, "next", file=shlex.quote(str(file))))
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
    lang: Lang = None,
    as_json: AsJson = False,
) -> int:
    """Train the steps of a trial on this machine, and write what was measured."""
    import re

    from flows.cli.progress import for_terminal
    from specs.project import Hub
    from tasks.advising.trial import read_trial, run, write
    from tasks.advising.trial_texts import text
    from tasks.memory.devices import this_device
    from tasks.models.resolve import resolve_base_model

    wanted, found = asked(lang), read_trial(file)
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
        language = wanted or found.language or "en"
        rate, seconds = f"{measured.tokens_per_second:.0f}", f"{measured.seconds_per_step:.3g}"
        say(text(language, "ran", name=called, rate=rate, seconds=seconds, steps=len(measured.steps), file=target))
        say(text(language, "then", file=shlex.quote(str(target))))
    return EXIT_DONE


@trial.command("compare")
@guarded
def compare(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of `trial run`.")],
    lang: Lang = None,
    as_json: AsJson = False,
) -> int:
    """Set results of the same trial side by side, the quickest machine first."""
    from tasks.advising.trial import compared, read_result
    from tasks.advising.trial_texts import text

    language, results = asked(lang), [read_result(file) for file in files]
    rows = compared(results)
    if as_json:
        emit([row.model_dump(mode="json") for row in rows])
        return EXIT_DONE
    from rich.table import Table

    spoken = language or results[0].language or "en"
    names = ("name", "device", "seconds", "rate", "slower", "peak", "share", "loss", "software")
    table = Table(*(text(spoken, f"col.{name}") for name in names))
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
    say(text(spoken, "read", first=results[0].name))
    return EXIT_DONE
