"""The command `plan`: every way to train a model on given cards, ranked, with what would make the others fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli import plan_options as given
from flows.cli.app import app
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show
from flows.cli.values import refuse_empty
from specs.base import Language
from specs.errors import EXIT_DONE, InputError
from tasks.planning.texts import text as text_of

if TYPE_CHECKING:
    from flows.plan_words import Answer
    from tasks.planning.plans import PlanSearch


@app.command()
@guarded
def plan(
    model: given.Model = None,
    gpu: given.Cards = None,
    nodes: given.Nodes = 1,
    data: given.Data = None,
    method: given.Methods = None,
    optimizer: given.Optimizers = None,
    effective_batch: given.EffectiveBatch = None,
    length: given.Lengths = None,
    samples: given.Samples = None,
    epochs: given.Epochs = None,
    lora_rank: given.Rank = None,
    lora_targets: given.Targets = None,
    attention: given.Attention = "sdpa",
    offload: given.Offload = True,
    price: given.Price = None,
    hours: given.Hours = None,
    money: given.Money = None,
    memory_gb: given.MemoryGb = None,
    free_gb: given.FreeGb = None,
    host_memory_gb: given.HostMemoryGb = None,
    disk_gb: given.DiskGb = None,
    link_gb_s: given.LinkGbS = None,
    node_link_gb_s: given.NodeLinkGbS = None,
    plot: given.Plot = None,
    lang: given.Lang = None,
    as_json: AsJson = False,
) -> int:
    """Search all plans for given cards: method, optimizer, batch, length, shards, offload; ranked, with reasons."""
    from flows import plan_asked as asked
    from flows.cli.progress import for_terminal

    words = {"--model": model, "--gpu": gpu, "--data": data, "--lora-targets": lora_targets}
    refuse_empty(words | {"--method": method, "--optimizer": optimizer})
    asked.refuse_contradictions(data, samples, hours, money, price)
    links = {"link_gb_s": link_gb_s, "node_link_gb_s": node_link_gb_s}
    sizes = {"memory_gb": memory_gb, "host_memory_gb": host_memory_gb, "disk_gb": disk_gb, **links}
    machine = asked.machine_asked(gpu, nodes, price, sizes)
    _drawn_as(plot)
    run, base, language = asked.run_data(data, model, lang)
    training, adapters = run.training if run else None, (lora_rank, lora_targets)
    workload = asked.workload_of(run, samples, tuple(length or ()), effective_batch, epochs, attention)
    bounds = {"offload": offload, "hours": hours, "money": money}
    limits = asked.limits_of(training, method, optimizer, adapters, free_gb, bounds)
    with for_terminal() as progress:
        answer = asked.searched(base, machine, workload, limits, run, model, progress)
    _show(answer, language, plot, as_json)
    return EXIT_DONE


def _show(answer: Answer, language: Language, plot: Path | None, as_json: bool) -> None:
    """The picture where one is asked for, then the answer as JSON or in words."""
    from flows.plan_words import document

    if plot is not None:
        _draw(answer.found, plot, language)
    if as_json:
        emit(document(answer, language))
        return
    _say(answer, language)
    if plot is not None:
        say(text_of(language, "picture", path=plot))


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
