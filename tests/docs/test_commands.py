"""The page of commands is what the commands say, and every one of them says what it does."""

from __future__ import annotations

from pathlib import Path

from flows.cli import reference

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_commands_say():
    assert (ROOT / reference.PAGE).read_text(encoding="utf-8") == reference.page(), "run `make docs`"


def test_every_command_and_every_option_is_described():
    silent = []
    for path, command in reference.commands():
        silent += [path] if not command.help else []
        silent += [f"{path} {p.opts[-1]}" for p in command.params if not p.help]
    assert not silent


def test_every_command_answers_in_json():
    without = [path for path, command in reference.commands() if not any("--json" in p.opts for p in command.params)]
    assert not without
