"""The command `advise`: route, peak, card and count, trial, delivery; and the recipes of single cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from flows.cli.app import app
from flows.cli.language import asked, of_project
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show, tell
from specs.base import Language
from specs.errors import EXIT_DONE, InputError

if TYPE_CHECKING:
    from flows.advising import Answer
    from tasks.advising.costs import Prices

Texts = Optional[list[str]]  # noqa: UP045  typer reads this at run time
SHOWN, NEAREST = 12, 3


@app.command()
@guarded
def advise(
    project: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="PROJECT", help="Folder with project.yaml; not needed with --recipes."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Another model than the advice would take.")] = None,
    gpu: Annotated[Texts, typer.Option("--gpu", help="Look at this card only; several times for several.")] = None,
    most: Annotated[int, typer.Option("--max-cards", min=1, max=8, help="Cards of one machine at most.")] = 8,
    samples: Annotated[int | None, typer.Option("--samples", min=1, help="Training samples, before any data.")] = None,
    length: Annotated[
        int | None, typer.Option("--length", min=8, help="Longest sample in tokens; default: of the data, else 2048.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the samples.")] = 1,
    effective_batch: Annotated[int, typer.Option("--effective-batch", min=1, help="Samples per optimizer step.")] = 8,
    rent: Annotated[Texts, typer.Option("--rent", metavar="NAME=PRICE", help="Of a rented card for an hour.")] = None,
    buy: Annotated[
        Texts, typer.Option("--buy", metavar="NAME=PRICE", help="Of a card to buy, with its part of a machine.")
    ] = None,
    host: Annotated[
        Texts, typer.Option("--host", metavar="NAME=PRICE", help="Of a hosted card for a month, power included.")
    ] = None,
    kwh: Annotated[float | None, typer.Option("--kwh", min=0, help="Price of one kilowatt-hour.")] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Trainings that are planned, rework included.")] = 1,
    months: Annotated[float, typer.Option("--months", help="Over which they are spread.")] = 12.0,
    local_data: Annotated[
        bool, typer.Option("--local-data/--data-may-leave", help="Whether the data must stay in the house.")
    ] = False,
    setup_hours: Annotated[float, typer.Option("--setup-hours", min=0, help="To set up a rented machine.")] = 1.0,
    upload_mb_s: Annotated[float, typer.Option("--upload-mb-s", help="To a rented machine, in MB/s.")] = 10.0,
    sheet: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option("--sheet", metavar="FILE", help="Write the purchase sheet as .md or .html; may be repeated."),
    ] = None,
    recipes: Annotated[
        bool, typer.Option("--recipes", help="Recipes for the cards of --gpu, else 6 to 32 GB.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every card that fits.")] = False,
    lang: Annotated[str | None, typer.Option("--lang", help="en or zh; default: that of the project.")] = None,
    as_json: AsJson = False,
) -> int:
    """Say which route, model and card, and whether to rent, own or host; prices are yours, none is built in."""
    from flows.advising import Asked, answer
    from flows.cli.progress import for_terminal
    from specs.loading import load_project
    from tasks.advising.costs import Use
    from tasks.advising.texts import text

    given = asked(lang)
    power = {} if kwh is None else {"--kwh": kwh}
    if recipes and (project is not None or sheet):
        raise InputError("--recipes are of cards, of no project", "leave PROJECT and --sheet out, or --recipes")
    if recipes:
        return _recipes(gpu or [], given or of_project(), as_json)
    if project is None:
        raise InputError("no project is named", "gatewright advise PROJECT, or gatewright advise --recipes")
    _refuse_odd(above={"--months": months, "--upload-mb-s": upload_mb_s}, finite={"--setup-hours": setup_hours} | power)
    for path in sheet or []:
        if path.suffix.lower() not in (".md", ".html"):
            raise InputError(f"--sheet {path} is neither a .md nor a .html", "end the file's name in one of them")
    loaded = load_project(project)
    use = Use(runs=runs, months=months, must_stay_local=local_data, setup_hours=setup_hours, upload_mb_s=upload_mb_s)
    wishes = Asked(
        model=model,
        cards=tuple(gpu or ()),
        most=most,
        samples=samples,
        length=length,
        epochs=epochs,
        effective_batch=effective_batch,
        prices=prices_of(rent or [], buy or [], host or [], kwh),
        use=use,
    )
    with for_terminal() as progress:
        found = answer(loaded, wishes, progress)
    language = given or loaded.spec.language
    written = _write_sheets(found, sheet or [], language)
    if as_json:
        emit({**found.document.model_dump(mode="json"), "written": written})
        return EXIT_DONE
    _say(found, project, language, everything)
    for file in written:
        say(text(language, "written", path=file))
    return EXIT_DONE


def _refuse_odd(above: dict[str, float], finite: dict[str, float]) -> None:
    """Numbers that nothing can be computed with."""
    for name, value in above.items():
        if not 0 < value < float("inf"):
            raise InputError(f"{name} is a number above 0, not {value:g}", "leave it out for the default")
    for name, value in finite.items():
        if not 0 <= value < float("inf"):
            raise InputError(f"{name} is a number, 0 or more, not {value:g}", "leave it out")


def prices_of(rent: list[str], buy: list[str], host: list[str], kwh: float | None) -> dict[str, Prices]:
    """Prices by the catalog's name of a card. Raises `InputError` for what is no card or no price."""
    from specs.hardware import find_gpu, gpus
    from tasks.advising.costs import Prices

    found: dict[str, dict[str, float]] = {}
    options = {
        "rent_per_card_hour": ("--rent", rent),
        "card_price": ("--buy", buy),
        "host_per_card_month": ("--host", host),
    }
    for field, (option, given) in options.items():
        for text in given:
            name, sign, price = text.rpartition("=")
            try:
                value = float(price)
            except ValueError:
                value = -1.0
            if not sign or not 0 <= value < 1e12:
                raise InputError(f"{option} {text}: not NAME=PRICE", f'write {option} "RTX 4090=0.45"')
            found.setdefault(find_gpu(name).name, {})[field] = value
    power = {} if kwh is None else {"kwh": kwh}
    return {g.name: Prices.model_validate(found.get(g.name, {}) | power) for g in gpus()}


def _recipes(cards: list[str], language: Language, as_json: bool) -> int:
    from flows.cli.progress import for_terminal
    from specs.hardware import find_gpu
    from tasks.advising.pages import recipe_cells
    from tasks.advising.recipes import CARDS, practised_on, recipes
    from tasks.advising.texts import text

    with for_terminal() as progress:
        names = [find_gpu(name).name for name in cards] or list(CARDS.values())
        found = [one for name in dict.fromkeys(names) for one in recipes(name, progress)]
    if as_json:
        emit([{**one.model_dump(mode="json"), "practitioners": practised_on(one, language)} for one in found])
        return EXIT_DONE
    from rich.table import Table

    head, rows = recipe_cells(found, language)
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    show(table)
    say(text(language, "recipe.read"))
    return EXIT_DONE


def _write_sheets(found: Answer, paths: list[Path], language: Language) -> list[str]:
    if not paths:
        return []
    from specs.files import write_bytes
    from tasks.advising.sheet import html, markdown, sections
    from tasks.memory.estimate import versions

    row, project = found.document.chosen, found.document.project
    if row is None:
        raise InputError("no card fits, so that there is nothing to buy", "see what the nearest lack, or give --model")
    facts = sections(project, found.document.advice.model, row, versions(), language)
    for path in paths:
        make = html if path.suffix.lower() == ".html" else markdown
        write_bytes(path, make(project, row, facts, language).encode())
    return [str(path) for path in paths]


def _say(found: Answer, project: Path, language: Language, everything: bool) -> None:
    from flows.advice_words import lines_after, lines_before, table_cells

    for line in lines_before(found.document, str(project), language):
        say(line)
    rows = [r for r in found.document.survey.rows if r.fits]
    shown = rows if everything else rows[:SHOWN]
    if shown:
        from rich.table import Table

        title, head, cells = table_cells(found.document, shown, language)
        table = Table(*head, title=title, title_justify="left")
        for row in cells:
            table.add_row(*row)
        show(table)
    for line in lines_after(found.document, shown, NEAREST, language):
        say(line)
    for run in found.unread:
        tell(f"run {run} could not be read as a whole: what could not is not counted")
