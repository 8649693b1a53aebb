"""YAML text to plain data that remembers its lines. The text is untrusted: size, depth and aliases are capped."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from specs.errors import Problem, SpecError

MAX_VALUES = 20_000
"""Values after aliases are expanded; a spec has some hundreds, an alias bomb billions."""
MAX_DEPTH = 40

Path = tuple[str | int, ...]
"""Where a value is: keys and 0-based list positions from the top."""

_CORE = "tag:yaml.org,2002:"
_OWN_WORDS = {
    "mapping values are not allowed here": (
        "a second `: ` on one line, or a line that is indented differently from its neighbours",
        "Put text that holds `: ` in quotes, and indent keys of one block equally",
    ),
    "cannot start any token": (
        "a character that YAML does not allow at the start of a value",
        "Put the value in quotes; indent with spaces, never with tabs",
    ),
    "found undefined alias": (
        "`*name` refers to an anchor `&name` that is not there",
        "Put text that begins with `*` in quotes",
    ),
    "expected a single document": (
        "a second YAML document begins here",
        "Keep one document: take out the line `---`",
    ),
    "while scanning a quoted scalar": ("a quotation mark is never closed", "Close the quotes on the same line"),
    "unexpected end of stream": ("a quotation mark is never closed", "Close the quotes on the same line"),
    "expected ',' or": ("a bracket or brace is never closed", "Close it, and put a comma between its items"),
    "expected <block end>": (
        "this line is indented differently from its neighbours",
        "Indent keys of one block equally, with spaces",
    ),
    "could not find expected ':'": ("a key without `:`", "Write `key: value`, with a space after the colon"),
}


@dataclass
class Tree:
    """Plain data, with the line of every key or item, and every scalar as it was written."""

    file: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """The line of the value at `path`, else of the nearest block around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def at(self, path: Path) -> Any:
        """The value at `path`; None where there is none."""
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def problem(self, path: Path, rule: str, way_out: str, value: str | None = None) -> Problem:
        """A problem with the value at `path`, which is shown as written unless `value` is given."""
        shown = self.texts.get(path, "") if value is None else value
        return Problem(self.file, self.line(path), dotted(path), shorten(shown), rule, way_out)


def dotted(path: Path) -> str:
    """`sources[2].columns.repair`; `(top)` for the whole file."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "(top)"


def shorten(text: str, limit: int = 60) -> str:
    """One line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read_yaml(text: str, file: str) -> Tree:
    """Parse one YAML 1.2 document. Raises `SpecError` for what is not YAML, with line and column.

    Repeated keys, tags, merge keys and too many values are problems of the tree, so that the rest is still read.
    """
    tree = Tree(file)
    if _brackets(text) > MAX_DEPTH and _nesting_exceeds(text, MAX_DEPTH):
        raise SpecError([_too_deep(file)])
    try:
        node = YAML(typ="rt", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise SpecError([_syntax_problem(error, file)]) from None
    except (YAMLError, ValueError) as error:
        raise SpecError([_character_problem(error, text, file)]) from None
    except RecursionError:
        raise SpecError([_too_deep(file)]) from None
    if node is not None:
        try:
            tree.data = _Builder(tree).build(node, ())
        except _TooBig as error:
            raise SpecError([error.problem]) from None
    return tree


def _brackets(text: str) -> int:
    """How deep brackets and braces nest at most, quotes and comments not considered."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    return deepest


def _nesting_exceeds(text: str, limit: int) -> bool:
    """Whether blocks nest deeper; stops reading there, because the reader's time grows with depth squared."""
    depth = 0
    try:
        for event in YAML(typ="rt", pure=True).parse(text):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > limit:
                return True
    except (YAMLError, ValueError, RecursionError):
        return False
    return False


def _too_deep(file: str) -> Problem:
    rule = f"blocks are nested deeper than {MAX_DEPTH} levels"
    return Problem(file, None, "(top)", "", rule, "A spec needs five levels; look for an unclosed bracket")


def _syntax_problem(error: MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = f"{error.context or ''} {error.problem or ''}"
    rule, way_out = next(
        (words for key, words in _OWN_WORDS.items() if key in said),
        (f"not valid YAML: {shorten(said)}", "Compare with the examples in docs/spec.md"),
    )
    if "'\\t'" in said:
        rule, way_out = "a tab is used for indentation", "Indent with spaces: YAML allows no tabs there"
    column = f" (column {mark.column + 1})" if mark else ""
    return Problem(file, mark.line + 1 if mark else None, "YAML", "", rule + column, way_out)


def _character_problem(error: Exception, text: str, file: str) -> Problem:
    found = re.search(r"position (\d+)", str(error))
    line = text.count("\n", 0, int(found.group(1))) + 1 if found else None
    code = re.search(r"#x([0-9a-fA-F]+)", str(error))
    what = f"the control character U+{code.group(1).upper()}" if code else f"unreadable YAML: {shorten(str(error))}"
    return Problem(file, line, "YAML", "", what, "Take the character out; this is often a sign of a binary file")


class _TooBig(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.rule)
        self.problem = problem


class _Builder:
    """Builds plain data from composed nodes and counts every value it makes."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.count = 0

    def build(self, node: Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            rule = f"more than {MAX_VALUES} values once aliases (`*name`) are expanded"
            raise _TooBig(Problem(self.tree.file, None, "(top)", "", rule, "Write values out instead of aliases"))
        if len(path) > MAX_DEPTH:
            raise _TooBig(_too_deep(self.tree.file))
        self.tree.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            self._check_tag(node, path, "seq")
            return [self.build(item, (*path, position)) for position, item in enumerate(node.value)]
        return self._scalar(node, path) if isinstance(node, ScalarNode) else None

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        self._check_tag(node, path, "map")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._report(path, line, "a list or block is used as a key", "Keys are plain words")
                continue
            key = key_node.value
            if key == "<<":
                self._report((*path, key), line, "merge keys (`<<`) are not read", "Write the keys out")
                continue
            if key in result:
                first = self.tree.lines[(*path, key)]
                self._report((*path, key), line, f"the key is here twice, first on line {first}", "Keep one of the two")
                continue
            self.tree.lines[(*path, key)] = line
            result[key] = self.build(value_node, (*path, key))
        return result

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text: str = node.value
        self.tree.texts[path] = text
        kind = str(node.tag).removeprefix(_CORE)
        try:
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return text
        if kind == "bool":
            return text.lower() in ("true", "yes", "on")
        if kind == "null":
            return None
        if kind not in ("str", "timestamp", "merge"):
            self._check_tag(node, path, "str")
        return text

    def _check_tag(self, node: Node, path: Path, expected: str) -> None:
        if str(node.tag) != _CORE + expected:
            line = node.start_mark.line + 1
            self._report(path, line, f"the tag {shorten(str(node.tag))} is not read", "Take the tag (`!...`) out")

    def _report(self, path: Path, line: int, rule: str, way_out: str) -> None:
        self.tree.problems.append(Problem(self.tree.file, line, dotted(path), "", rule, way_out))


def _integer(text: str) -> int:
    """YAML 1.2 integers; leading zeros are decimal, as in 1.2."""
    digits = text.replace("_", "").lower()
    if len(digits) > 40:
        raise ValueError("too long for a number")
    for prefix, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.lstrip("+-").startswith(prefix):
            return int(digits.replace(prefix, "", 1), base)
    return int(digits)
