"""The command `plan`: every way to train a model on given cards, ranked, with what would make the others fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional, TypeVar

import typer

from flows.cli.app import app
from flows.cli.language import asked, of_project
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show
from specs.base import Language, Strict
from specs.errors import EXIT_DONE, InputError
from specs.parameters import LoraParameters
from tasks.planning.texts import text as text_of

if TYPE_CHECKING:
    from flows.plan_data import RunData
    from flows.plan_words import Answer
    from specs.parameters import TrainingConfiguration
    from tasks.planning.plans import PlanSearch

T = TypeVar("T", bound=Strict)
OPTION = {"methods": "method", "optimizers": "optimizer", "limits": "length", "effective_batch": "effective-batch"}
"""Fields whose option has another name."""

Texts = Optional[list[str]]  # noqa: UP045  typer reads this at run time
Text = Optional[str]  # noqa: UP045


@app.command()
@guarded
def plan(
    model: Annotated[
        Text,
        typer.Option("--model", help="A name of the catalog, a folder, or a config.json; default: that of --data."),
    ] = None,
    gpu: Annotated[
        Text, typer.Option("--gpu", metavar="NAME[:N]", help="Cards of the catalog; left out: this machine.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Machines with so many cards each.")] = 1,
    data: Annotated[
        Text, typer.Option("--data", metavar="RUN", help="A run or a project's folder: its lengths and measured times.")
    ] = None,
    method: Annotated[
        Texts, typer.Option("--method", help="lora, qlora, dora or full; several in the order of preference.")
    ] = None,
    optimizer: Annotated[
        Texts,
        typer.Option("--optimizer", help="Optimizers to try, in the order of preference; that of --data comes first."),
    ] = None,
    effective_batch: Annotated[
        int | None, typer.Option("--effective-batch", min=1, help="Samples per optimizer step, kept by every plan; 8.")
    ] = None,
    length: Annotated[
        list[int] | None, typer.Option("--length", min=8, help="Length limits to try; default: those of the data.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Training samples, where no --data says it.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="Passes over the samples; default: of --data, else 1.")
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option("--lora-rank", min=1, help="Rank of the adapters; default: of --data, else 16.")
    ] = None,
    lora_targets: Annotated[
        Text, typer.Option("--lora-targets", help="all-linear, or names with commas; default: of --data, else all.")
    ] = None,
    attention: Annotated[str, typer.Option("--attention", help="flash, sdpa or eager.")] = "sdpa",
    offload: Annotated[bool, typer.Option("--offload/--no-offload", help="Try plans that use host memory.")] = True,
    price: Annotated[
        float | None, typer.Option("--price", min=0, help="Of one card for one hour, in your currency.")
    ] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="Refuse plans that take longer.")] = None,
    money: Annotated[float | None, typer.Option("--money", help="Refuse plans that cost more; with --price.")] = None,
    memory_gb: Annotated[
        float | None, typer.Option("--memory-gb", help="Usable memory of a card that the catalog lacks, in GiB.")
    ] = None,
    free_gb: Annotated[
        float | None, typer.Option("--free-gb", help="What other processes leave of a card, in GiB.")
    ] = None,
    host_memory_gb: Annotated[float | None, typer.Option("--host-memory-gb", help="Host memory, in GiB.")] = None,
    disk_gb: Annotated[float | None, typer.Option("--disk-gb", help="Free disk, in GiB.")] = None,
    link_gb_s: Annotated[
        float | None, typer.Option("--link-gb-s", help="Between the cards of a machine, GB/s in one direction.")
    ] = None,
    node_link_gb_s: Annotated[
        float | None, typer.Option("--node-link-gb-s", help="Between machines, GB/s in one direction.")
    ] = None,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--plot", metavar="FILE", help="Draw the best plans into a .png or .svg."),
    ] = None,
    lang: Annotated[Text, typer.Option("--lang", help="en or zh; default: that of the project.")] = None,
    as_json: AsJson = False,
) -> int:
    """Search all plans for given cards: method, optimizer, batch, length, shards, offload; ranked, with reasons."""
    from flows.cli.progress import for_terminal
    from flows.plan_data import measured_for
    from flows.plan_words import Answer, document
    from tasks.memory.architecture import architecture_of
    from tasks.planning.machine import machine_named, parse_cards
    from tasks.planning.plans import Limits
    from tasks.planning.search import find_plans
    from tasks.planning.weighing import positions_of
    from tasks.planning.workload import Workload

    _refuse_empty({"--model": model, "--gpu": gpu, "--data": data, "--lora-targets": lora_targets})
    _refuse_contradictions(data, samples, hours, money, price)
    _refuse_odd(
        {
            "--memory-gb": memory_gb,
            "--free-gb": free_gb,
            "--host-memory-gb": host_memory_gb,
            "--disk-gb": disk_gb,
            "--link-gb-s": link_gb_s,
            "--node-link-gb-s": node_link_gb_s,
            "--hours": hours,
            "--money": money,
            "--price": price or None,
        }
    )
    if memory_gb is not None and gpu is None:
        raise InputError("--memory-gb is of a card that --gpu names", "give --gpu NAME too, or leave --memory-gb out")
    _drawn_as(plot)
    given, base, language = _run_data(data, model, lang)
    name, count = parse_cards(gpu) if gpu is not None else (None, 1)
    machine = machine_named(
        name,
        count,
        nodes=nodes,
        memory_gb=memory_gb,
        link_gb_s=link_gb_s,
        node_link_gb_s=node_link_gb_s,
        host_memory_gb=host_memory_gb,
        disk_gb=disk_gb,
        price_per_card_hour=price,
    )
    training = given.training if given else None
    workload = _checked(
        Workload,
        lengths=given.lengths if given else (),
        evaluation_lengths=given.evaluation_lengths if given else (),
        samples=samples,
        limits=tuple(length or ()),
        effective_batch=effective_batch or (training.effective_batch if training else 8),
        epochs=epochs or (training.epochs if training else 1),
        max_steps=training.max_steps if training and epochs is None else None,
        attention=attention,
    )
    limits = _checked(
        Limits,
        **({"methods": tuple(method)} if method else {}),
        **_optimizers(optimizer, training),
        **_adapters(lora_rank, lora_targets, training),
        offload=offload,
        hours=hours,
        money=money,
        free_bytes=round(free_gb * 2**30) if free_gb is not None else None,
    )
    measured, unused = measured_for(given, model, machine.device) if given else (None, None)
    architecture = architecture_of(base.place)
    positions = positions_of(architecture)
    if length and positions and min(length) > positions:
        raise InputError(f"--length {min(length)}: the model was made for {positions} tokens", "give a shorter one")
    with for_terminal() as progress:
        found = find_plans(base.name, architecture, machine, workload, limits, measured, progress)
    if plot is not None:
        _draw(found, plot, language)
    answer = Answer(found, machine, workload, limits, positions, given, measured, unused)
    if as_json:
        emit(document(answer, language))
        return EXIT_DONE
    _say(answer, language)
    if plot is not None:
        say(text_of(language, "picture", path=plot))
    return EXIT_DONE


def _refuse_contradictions(
    data: str | None, samples: int | None, hours: float | None, money: float | None, price: float | None
) -> None:
    """Options that would have no effect beside the others."""
    if data is not None and samples is not None:
        raise InputError("--samples and --data both say how many samples there are", "leave --samples out")
    if (hours is not None or money is not None) and data is None and samples is None:
        raise InputError("--hours and --money need the number of samples", "give --data RUN, or --samples N")
    if money is not None and price is None:
        raise InputError("--money needs the price of a card", "give --price, of one card for one hour")


def _refuse_empty(given: dict[str, str | None]) -> None:
    """Options without a word, as an unset variable of a shell leaves them: their default is not what was asked for."""
    for option, value in given.items():
        if value is not None and not value.strip():
            raise InputError(f"{option} is empty", "give it a value, or leave it out for the default")


def _refuse_odd(given: dict[str, float | None]) -> None:
    """Sizes, rates and limits that are no finite number above 0."""
    for option, value in given.items():
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{option} is a number above 0, not {value:g}", "leave it out for the default")


def _optimizers(asked: list[str] | None, training: TrainingConfiguration | None) -> dict[str, tuple[str, ...]]:
    """Those asked for, else that of the run and the usual ones."""
    from tasks.planning.plans import Limits

    if asked:
        return {"optimizers": tuple(asked)}
    own = [training.optimizer] if training else []
    return {"optimizers": tuple(dict.fromkeys([*own, *Limits().optimizers]))}


def _adapters(rank: int | None, targets: str | None, training: TrainingConfiguration | None) -> dict[str, Any]:
    """Rank and targets asked for, else those of the run."""
    lora = training.lora if training else LoraParameters()
    named = targets.split(",") if targets and targets != "all-linear" else targets or lora.targets
    shapes = {"rank": rank or lora.rank, "targets": named if isinstance(named, str) else tuple(named)}
    return {**shapes, "dropout": lora.dropout}


class Base(NamedTuple):
    """A model as it was asked for, and where its configuration is."""

    name: str
    place: str | Path


def _run_data(data: str | None, model: str | None, lang: str | None) -> tuple[RunData | None, Base, Language]:
    """The run that is named, the model to plan for, and the language to say it in."""
    language = asked(lang)
    if data is None:
        if model is None:
            raise InputError("no model is named", "give --model NAME, or --data RUN for the model of a run")
        return None, Base(model, model), language or of_project()
    from flows.cli.find import look_for
    from flows.folding import fold
    from flows.plan_data import data_of, model_folder

    workspace, ledger = look_for(data)
    given = data_of(workspace, fold(ledger.events(workspace.run)))
    base = Base(model, model) if model else Base(given.base_model, model_folder(workspace))
    return given, base, language or given.language


def _checked(kind: type[T], **values: Any) -> T:
    """A document from options; what is not known is said by the option's name."""
    from pydantic import ValidationError

    try:
        return kind(**values)
    except ValidationError as error:
        wrong = "; ".join(f"--{OPTION.get(str(e['loc'][0]), str(e['loc'][0]))}: {e['msg']}" for e in error.errors())
        raise InputError(wrong, "gatewright plan --help lists the values") from None


def _drawn_as(path: Path | None) -> str:
    """The kind of picture that a file's name asks for. Said before the search, which takes a while."""
    kind = path.suffix.lower().lstrip(".") if path else "png"
    if kind not in ("png", "svg"):
        raise InputError(f"--plot {path} is neither a .png nor a .svg", "end the file's name in one of them")
    if path and not path.absolute().parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.absolute().parent}", "make it, or name another")
    return kind


def _draw(found: PlanSearch, path: Path, language: Language) -> None:
    from flows.plan_words import REFUSED_SHOWN, SHOWN
    from specs.files import write_bytes
    from tasks.planning.picture import picture
    from tasks.planning.search import best_of_each

    refused = [p for p in found.refused if p.account is not None]
    shown = best_of_each(found.plans, SHOWN) or refused[:REFUSED_SHOWN]
    write_bytes(path, picture(found, shown, language, _drawn_as(path)))


def _say(answer: Answer, language: Language) -> None:
    """The run that was read, the table of the best plan of every kind, the notes, and the refused ones."""
    from rich.table import Table

    from flows.plan_words import lines_after, lines_before, table_cells

    for line in lines_before(answer, language):
        say(line)
    title, names, rows = table_cells(answer.found, language)
    if rows:
        table = Table(title=title, title_justify="left")
        for name in names:
            words = name in ("plan", "placement", "binds")
            table.add_column(text_of(language, name), justify="left" if words else "right")
        for row in rows:
            table.add_row(*row)
        show(table)
    for line in lines_after(answer, language):
        say(line)
