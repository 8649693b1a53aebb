"""Options of the command `advise`, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Texts = Optional[list[str]]  # noqa: UP045  typer reads these at run time
Text = Optional[str]  # noqa: UP045
Count = Optional[int]  # noqa: UP045

Project = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Argument(metavar="PROJECT", help="Folder with project.yaml; not needed with --recipes."),
]
Model = Annotated[Text, typer.Option("--model", help="Another model than the advice would take.")]
Cards = Annotated[Texts, typer.Option("--gpu", help="Look at this card only; several times for several.")]
MostCards = Annotated[int, typer.Option("--max-cards", min=1, max=8, help="Cards of one machine at most.")]
Samples = Annotated[Count, typer.Option("--samples", min=1, help="Training samples, before any data.")]
Length = Annotated[
    Count, typer.Option("--length", min=8, help="Longest sample in tokens; default: of the data, else 2048.")
]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="Passes over the samples.")]
EffectiveBatch = Annotated[int, typer.Option("--effective-batch", min=1, help="Samples per optimizer step.")]
Rent = Annotated[Texts, typer.Option("--rent", metavar="NAME=PRICE", help="Of a rented card for an hour.")]
Buy = Annotated[
    Texts, typer.Option("--buy", metavar="NAME=PRICE", help="Of a card to buy, with its part of a machine.")
]
Host = Annotated[
    Texts, typer.Option("--host", metavar="NAME=PRICE", help="Of a hosted card for a month, power included.")
]
Kwh = Annotated[Optional[float], typer.Option("--kwh", min=0, help="Price of one kilowatt-hour.")]  # noqa: UP045
Runs = Annotated[int, typer.Option("--runs", min=1, help="Trainings that are planned, rework included.")]
Months = Annotated[float, typer.Option("--months", help="Over which they are spread.")]
LocalData = Annotated[
    bool, typer.Option("--local-data/--data-may-leave", help="Whether the data must stay in the house.")
]
SetupHours = Annotated[float, typer.Option("--setup-hours", min=0, help="To set up a rented machine.")]
UploadMbS = Annotated[float, typer.Option("--upload-mb-s", help="To a rented machine, in MB/s.")]
Sheets = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option("--sheet", metavar="FILE", help="Write the purchase sheet as .md or .html; may be repeated."),
]
Recipes = Annotated[bool, typer.Option("--recipes", help="Recipes for the cards of --gpu, else 6 to 32 GB.")]
Everything = Annotated[bool, typer.Option("--all", help="Show every card that fits.")]
Lang = Annotated[Text, typer.Option("--lang", help="en or zh; default: that of the project.")]
