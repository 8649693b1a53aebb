"""Options of the command `plan`, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Texts = Optional[list[str]]  # noqa: UP045  typer reads these at run time
Text = Optional[str]  # noqa: UP045
Number = Optional[float]  # noqa: UP045
Count = Optional[int]  # noqa: UP045

Model = Annotated[
    Text, typer.Option("--model", help="A name of the catalog, a folder, or a config.json; default: that of --data.")
]
Cards = Annotated[Text, typer.Option("--gpu", metavar="NAME[:N]", help="Cards of the catalog; left out: this machine.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Machines with so many cards each.")]
Data = Annotated[
    Text, typer.Option("--data", metavar="RUN", help="A run or a project's folder: its lengths and measured times.")
]
Methods = Annotated[
    Texts, typer.Option("--method", help="lora, qlora, dora or full; several in the order of preference.")
]
Optimizers = Annotated[
    Texts,
    typer.Option("--optimizer", help="Optimizers to try, in the order of preference; that of --data comes first."),
]
EffectiveBatch = Annotated[
    Count, typer.Option("--effective-batch", min=1, help="Samples per optimizer step, kept by every plan; 8.")
]
Lengths = Annotated[
    Optional[list[int]],  # noqa: UP045
    typer.Option("--length", min=8, help="Length limits to try; default: those of the data."),
]
Samples = Annotated[Count, typer.Option("--samples", min=1, help="Training samples, where no --data says it.")]
Epochs = Annotated[Count, typer.Option("--epochs", min=1, help="Passes over the samples; default: of --data, else 1.")]
Rank = Annotated[Count, typer.Option("--lora-rank", min=1, help="Rank of the adapters; default: of --data, else 16.")]
Targets = Annotated[
    Text, typer.Option("--lora-targets", help="all-linear, or names with commas; default: of --data, else all.")
]
Attention = Annotated[str, typer.Option("--attention", help="flash, sdpa or eager.")]
Offload = Annotated[bool, typer.Option("--offload/--no-offload", help="Try plans that use host memory.")]
Price = Annotated[Number, typer.Option("--price", min=0, help="Of one card for one hour, in your currency.")]
Hours = Annotated[Number, typer.Option("--hours", help="Refuse plans that take longer.")]
Money = Annotated[Number, typer.Option("--money", help="Refuse plans that cost more; with --price.")]
MemoryGb = Annotated[
    Number, typer.Option("--memory-gb", help="Usable memory of a card that the catalog lacks, in GiB.")
]
FreeGb = Annotated[Number, typer.Option("--free-gb", help="What other processes leave of a card, in GiB.")]
HostMemoryGb = Annotated[Number, typer.Option("--host-memory-gb", help="Host memory, in GiB.")]
DiskGb = Annotated[Number, typer.Option("--disk-gb", help="Free disk, in GiB.")]
LinkGbS = Annotated[Number, typer.Option("--link-gb-s", help="Between the cards of a machine, GB/s in one direction.")]
NodeLinkGbS = Annotated[Number, typer.Option("--node-link-gb-s", help="Between machines, GB/s in one direction.")]
Plot = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--plot", metavar="FILE", help="Draw the best plans into a .png or .svg."),
]
Lang = Annotated[Text, typer.Option("--lang", help="en or zh; default: that of the project.")]
