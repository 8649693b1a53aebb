"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; everything else on stderr.")]
RunArgument = Annotated[
    Optional[str],  # noqa: UP045  typer reads this at run time
    typer.Argument(
        metavar="RUN", help="A run's id, or its project's folder. Default: the open run of the project here."
    ),
]
ProjectOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--project", "-p", help="The project's folder. Default: in or above the current folder."),
]
ProjectArgument = Annotated[Path, typer.Argument(metavar="PROJECT", help="Folder with project.yaml.")]
GateOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--gate", metavar="GATE", help="Which gate, where several are open."),
]
