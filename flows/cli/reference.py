"""`docs/commands.md`: every command with its arguments and options, made from the commands themselves.

python -m flows.cli.reference [ROOT]      writes the page
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from specs.docs import NOTE, table

PAGE = "docs/commands.md"
_COMMON = {"--json", "--help"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run: its words and its click command, in the order of the help."""
    from typer.main import get_command

    from flows.cli.app import GROUPS, app, load_groups

    load_groups()

    def place(leaf: tuple[str, Any]) -> tuple[bool, int]:
        """As the help has them, whatever was imported first in this process."""
        module = getattr(leaf[1].callback, "__module__", "").rpartition(".")[2]
        return len(leaf[0].split()) > 2, GROUPS.index(module) if module in GROUPS else len(GROUPS)

    yield from sorted(_leaves("gatewright", get_command(app)), key=place)


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _leaves(f"{path} {name}", child)


def page() -> str:
    """The whole page."""
    parts = [
        "# Commands\n",
        NOTE,
        "Every command takes `--json`: one JSON document on stdout, everything else on stderr. "
        "`RUN` is a run's id or its project's folder; left out, it is the open run of the project in or above the "
        "current folder, else its newest. What the exit codes mean: [errors.md](errors.md).\n",
    ]
    for path, command in commands():
        parts += [f"## {path}\n", f"```text\n{_usage(path, command)}\n```\n", _help(command)]
        rows = [_row(p) for p in command.params if not _COMMON & {*p.opts}]
        if rows:
            parts.append(table(("argument or option", "default", "what"), rows))
    return "\n".join(parts)


def _usage(path: str, command: Any) -> str:
    words = [path]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            words.append(name if parameter.required else f"[{name}]")
    return " ".join([*words, "[OPTIONS]"])


def _help(command: Any) -> str:
    return cleandoc(command.help or "") + "\n"


def _row(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        name = ", ".join(f"`{opt}`" for opt in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    if parameter.required:
        shown = "**required**"
    return [name, shown, " ".join((parameter.help or "").split())]


def main(root: Path) -> None:
    """Write the page below `root`."""
    (root / PAGE).write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
