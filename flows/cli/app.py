"""The command `gatewright`: its commands by group. Each command imports what it needs when it runs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

from specs.errors import EXIT_DONE, EXIT_INTERNAL

app = typer.Typer(
    name="gatewright",
    help="Fine-tune a language model in stages that prove themselves. A person signs every transition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
audit = typer.Typer(help="The history of a run: list, show, diff, verify, export, anchor.", no_args_is_help=True)
app.add_typer(audit, name="audit")
policy = typer.Typer(help="Who may decide: explain, simulate, pin outside the project.", no_args_is_help=True)
app.add_typer(policy, name="policy")
token = typer.Typer(help="Personal tokens that prove who decides: new, list, revoke.", no_args_is_help=True)
app.add_typer(token, name="token")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"gatewright {version('gatewright')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


GROUPS = (
    "planning",
    "estimating",
    "plans",
    "advising",
    "trials",
    "running",
    "looking",
    "deciding",
    "policy",
    "auditing",
    "releases",
    "housekeeping",
)
"""Modules that register commands, in the order of the help."""


def load_groups() -> None:
    """Register every command."""
    for group in GROUPS:
        import_module(f"flows.cli.{group}")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show a character shows a mark instead of a traceback
            reconfigure(errors="replace")
    load_groups()
    if "--json" in sys.argv[1:]:
        sys.exit(_answer_in_json())
    app(prog_name="gatewright")


def _answer_in_json() -> int:
    """Run the command; a command line that cannot be understood is answered with a JSON document too."""
    from flows.cli.output import UsageError, report

    try:
        code = app(prog_name="gatewright", standalone_mode=False)
    except typer.Abort:
        return EXIT_INTERNAL
    except Exception as error:
        say = getattr(error, "format_message", None)  # click's own errors; typer carries a click of its own
        if say is None:
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "gatewright"
        return report(UsageError(say() or "no command is named", f"see `{command} --help`"), as_json=True)
    return code if isinstance(code, int) else EXIT_DONE
