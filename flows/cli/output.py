"""What a command says: one JSON document on stdout with `--json`, words for people otherwise, messages on stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import typer

from specs.errors import EXIT_INTERNAL, EXIT_STOPPED, GatewrightError, InputError, SpecError, StorageError
from specs.secrets import redacted
from specs.words import harmless

P = ParamSpec("P")
_NAMED_WRONG = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UsageError(InputError):
    """The command line itself: an option or argument that is missing or unknown."""


def emit(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n")
    sys.stdout.flush()


def say(text: str = "") -> None:
    """A line for a person on stdout, in which nothing steers the terminal."""
    sys.stdout.write(harmless(text) + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """A message on stderr."""
    sys.stderr.write(harmless(text) + "\n")
    sys.stderr.flush()


def show(renderable: Any) -> None:
    """A rich table or panel on stdout; as wide as the terminal. Without one as COLUMNS says, else 120 columns."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _columns()
    Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False).print(renderable)


def _columns() -> int:
    """The width that the environment asks for; one that no table fits into is none."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() and int(given[:6]) >= 20 else 120


def error_document(error: GatewrightError) -> dict[str, Any]:
    """An error as JSON: kind, message, hint, exit code, and the single problems of a spec. No secret is in it."""
    body: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": redacted(error.message),
        "hint": redacted(error.hint),
        "exit_code": error.exit_code,
    }
    if isinstance(error, SpecError):
        body["problems"] = [
            {name: redacted(value) if isinstance(value, str) else value for name, value in vars(problem).items()}
            for problem in error.problems
        ]
    return {"error": body}


def report(error: GatewrightError, as_json: bool) -> int:
    """Say an error and return its exit code."""
    if as_json:
        emit(error_document(error))
    tell(redacted(f"error: {error.message}"))
    if error.hint:
        tell(redacted(f"  way out: {error.hint}"))
    return error.exit_code


def system_error(error: OSError) -> GatewrightError:
    """What the system refused, with the path it refused; an internal error when it names none."""
    if error.filename is None and error.errno not in _NO_SPACE:
        return internal_error(error)
    named = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else "a file"
    message = f"cannot use {named if len(named) <= 200 else named[:200] + '...'}: {error.strerror}"
    if error.errno in _NAMED_WRONG:
        return InputError(message, "check that its folder exists and that its name is right")
    if error.errno in _NOT_ALLOWED:
        return StorageError(message, "check the owner and the permissions of the file and its folder")
    if error.errno in _NO_SPACE:
        return StorageError(message, "free some space on this volume, then try again; `gatewright resume` goes on")
    return internal_error(error)


def readable(text: str) -> str:
    """The text itself. Raises `InputError` when it holds bytes that are not UTF-8: the ledger keeps real text only."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{text!a} is not UTF-8 text", "type it in a terminal that uses UTF-8") from None
    return text


def _check_texts(values: Iterable[object]) -> None:
    for value in values:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                readable(text)


def internal_error(error: BaseException) -> GatewrightError:
    """Keep the traceback in a file and return an error that a person can read."""
    from specs.places import home

    text = redacted("".join(traceback.format_exception(error)))
    where = home() / "internal-errors.log"
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        hint = f"details are in {where}; please report them"
    except OSError:
        hint = f"its details could not be kept either: {type(error).__name__} in {_last_place(error)}"
    return GatewrightError(f"internal error: {type(error).__name__}: {error}", hint)


def _last_place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


def guarded(function: Callable[P, int | None]) -> Callable[P, None]:
    """Run a command: its result is the exit code, and every error is said without a traceback."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = bool(kwargs.get("as_json", False))
        try:
            _check_texts(kwargs.values())
            code = function(*args, **kwargs) or 0
        except GatewrightError as error:
            code = report(error, as_json)
        except KeyboardInterrupt:
            tell("stopped")
            code = EXIT_STOPPED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = EXIT_INTERNAL
        except typer.Exit as leave:
            code = leave.exit_code
        except Exception as error:
            if os.environ.get("GATEWRIGHT_DEBUG"):
                raise
            code = report(system_error(error) if isinstance(error, OSError) else internal_error(error), as_json)
        raise typer.Exit(code)

    return run
