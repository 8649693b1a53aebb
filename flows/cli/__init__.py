"""The command line: thin over the Python API. Only typer and rich are imported before a command runs."""

from flows.cli.app import main

__all__ = ["main"]
