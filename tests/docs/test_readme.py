"""What the READMEs and pages say is so: commands exist, links resolve, specs load, targets are there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from flows.cli import main
from specs.docs import EXIT_CODES
from specs.loading import parse_project

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh.md")
PAGES = sorted([*READMES, *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))])


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(name)):
        if not target.startswith(("http://", "https://")):
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", PAGES)
def test_every_spec_that_is_shown_loads(name: str):
    for block in code(text_of(name), "yaml"):
        if "project:" in block:
            parse_project(block)


@pytest.mark.parametrize("name", READMES)
def test_there_is_a_spec_to_copy(name: str):
    assert any("sources:" in block for block in code(text_of(name), "yaml"))


def mentioned() -> list[tuple[str, ...]]:
    """Commands as the pages write them: `gatewright audit show`."""
    found = set()
    for name in PAGES:
        for words in re.findall(r"gatewright ((?:[a-z]+(?:-[a-z]+)* ?)+)", text_of(name)):
            first, *rest = words.split()
            found.add((first, rest[0]) if first == "audit" and rest else (first,))
    return sorted(found)


def help_of(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["gatewright", *words, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert not end.value.code, printed.err
    return printed.out


@pytest.mark.parametrize("words", mentioned(), ids=" ".join)
def test_every_command_that_is_mentioned_exists(words: tuple[str, ...], monkeypatch, capsys):
    assert "Usage" in help_of(words, monkeypatch, capsys)


@pytest.mark.parametrize("name", READMES)
def test_options_of_the_deciding_commands_are_as_written(name: str, monkeypatch, capsys):
    checked = 0
    for line in "\n".join(code(text_of(name), "sh")).splitlines():
        command = re.match(r"gatewright (\w+) (.*?)(?:#|$)", line)
        if command:
            text = help_of((command.group(1),), monkeypatch, capsys)
            for option in re.findall(r"(?:^|\s)(--?[a-z]+)", command.group(2)):
                assert option in text, f"{command.group(1)} has no {option}"
                checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name", READMES)
def test_every_make_target_that_is_mentioned_exists(name: str):
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    wanted = set(re.findall(r"make ([a-z-]+)(?![a-z=])", " ".join(re.findall(r"`[^`]*`", text_of(name)))))
    wanted |= {m for block in code(text_of(name), "sh") for m in re.findall(r"^make ([a-z-]+)", block, re.MULTILINE)}
    assert wanted
    assert wanted <= targets


@pytest.mark.parametrize("name", READMES)
def test_every_exit_code_is_listed(name: str):
    assert all(f"`{code}`" in text_of(name) for code in EXIT_CODES)


def test_the_ground_floor_of_both_readmes_is_the_same():
    english, chinese = (re.findall(r"^(#+) ", text_of(name), flags=re.MULTILINE) for name in READMES)
    assert english == chinese


@pytest.mark.parametrize("name", PAGES)
def test_every_module_that_is_named_exists(name: str):
    for path in re.findall(r"`((?:specs|tasks|agents|flows|tests)/[\w/.]+)`", text_of(name)):
        assert (ROOT / path).exists(), f"{name} names {path}"
