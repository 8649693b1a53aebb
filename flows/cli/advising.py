"""The command `advise`: route, peak, card and count, trial, delivery; and the recipes of single cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli import advice_options as given
from flows.cli.app import app
from flows.cli.language import asked, of_project
from flows.cli.options import AsJson
from flows.cli.output import emit, guarded, say, show, tell
from flows.cli.values import refuse_empty, refuse_endless, refuse_odd
from specs.base import Language
from specs.errors import EXIT_DONE, InputError

if TYPE_CHECKING:
    from flows.advising import Answer, Asked
    from tasks.advising.costs import Prices

SHOWN, NEAREST = 12, 3


@app.command()
@guarded
def advise(
    project: given.Project = None,
    model: given.Model = None,
    gpu: given.Cards = None,
    most: given.MostCards = 8,
    samples: given.Samples = None,
    length: given.Length = None,
    epochs: given.Epochs = 1,
    effective_batch: given.EffectiveBatch = 8,
    rent: given.Rent = None,
    buy: given.Buy = None,
    host: given.Host = None,
    kwh: given.Kwh = None,
    runs: given.Runs = 1,
    months: given.Months = 12.0,
    local_data: given.LocalData = False,
    setup_hours: given.SetupHours = 1.0,
    upload_mb_s: given.UploadMbS = 10.0,
    sheet: given.Sheets = None,
    recipes: given.Recipes = False,
    everything: given.Everything = False,
    lang: given.Lang = None,
    as_json: AsJson = False,
) -> int:
    """Say which route, model and card, and whether to rent, own or host; prices are yours, none is built in."""
    from flows.advising import Asked
    from tasks.advising.costs import Use

    language = asked(lang)
    refuse_empty({"--model": model, "--gpu": gpu})
    if recipes and (project is not None or sheet):
        raise InputError("--recipes are of cards, of no project", "leave PROJECT and --sheet out, or --recipes")
    if recipes:
        return _recipes(gpu or [], language or of_project(), as_json)
    if project is None:
        raise InputError("no project is named", "gatewright advise PROJECT, or gatewright advise --recipes")
    refuse_odd({"--months": months, "--upload-mb-s": upload_mb_s})
    refuse_endless({"--setup-hours": setup_hours, "--kwh": kwh})
    _refuse_sheets(sheet or [])
    wishes = Asked(
        model=model,
        cards=tuple(gpu or ()),
        most=most,
        samples=samples,
        length=length,
        epochs=epochs,
        effective_batch=effective_batch,
        prices=prices_of(rent or [], buy or [], host or [], kwh),
        use=Use(runs=runs, months=months, must_stay_local=local_data, setup_hours=setup_hours, upload_mb_s=upload_mb_s),
    )
    _answer(project, wishes, sheet or [], language, as_json, everything)
    return EXIT_DONE


def _answer(
    project: Path, wishes: Asked, sheets: list[Path], language: Language | None, as_json: bool, everything: bool
) -> None:
    """Ask, write the sheets, and say it all."""
    from flows.advising import answer
    from flows.cli.progress import for_terminal
    from specs.loading import load_project
    from tasks.advising.texts import text

    loaded = load_project(project)
    with for_terminal() as progress:
        found = answer(loaded, wishes, progress)
    spoken = language or loaded.spec.language
    written = _write_sheets(found, sheets, spoken)
    if as_json:
        emit({**found.document.model_dump(mode="json"), "written": written})
        return
    _say(found, project, spoken, everything)
    for file in written:
        say(text(spoken, "written", path=file))


def _refuse_sheets(paths: list[Path]) -> None:
    """Names of sheets that nothing can be written to; said before the search, which takes a while."""
    for path in paths:
        if path.suffix.lower() not in (".md", ".html"):
            raise InputError(f"--sheet {path} is neither a .md nor a .html", "end the file's name in one of them")
        if not path.absolute().parent.is_dir():
            raise InputError(f"--sheet {path}: there is no folder {path.absolute().parent}", "make it, or name another")


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
    for field, (option, texts) in options.items():
        for text in texts:
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
