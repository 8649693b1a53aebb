"""The pages of `docs/` that are made from the models, so that they cannot say something else than the code.

python -m specs.docs [ROOT]      writes them, and the stage tables of both READMEs
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from specs import errors
from specs.base import Language
from specs.criteria import Op
from specs.events import PAYLOADS
from specs.fates import FATES, REASONS
from specs.metrics import OF_REWRITTEN, STAGES, MetricDefinition, definitions
from specs.model_walk import is_model
from specs.parameters import PARAMETERS, LoraParameters, TrainingConfiguration
from specs.project import Project
from specs.sources import FaultCodes, Instructions, Manuals, Notes, SensorLogs, WorkOrders
from specs.trials import TrialParameters

NOTE = "<!-- made by `make docs` from the code; edit the models, not this page -->\n"
TABLE = re.compile(r"(<!-- stages:begin -->\n).*?(<!-- stages:end -->)", re.DOTALL)
_OPS: dict[Op, str] = {"==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥"}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def rule(metric: MetricDefinition) -> str:
    """`≤ 0.15`, or nothing for a metric that is reported only."""
    return f"{_OPS[metric.op]} {metric.bound:g}" if metric.op and metric.bound is not None else ""


def kind(metric: MetricDefinition) -> str:
    """How a criterion acts: blocking, warning, or reported only."""
    return "reported" if not metric.op else "blocking" if metric.blocking else "warning"


def metrics_page() -> str:
    """Every default metric of every stage."""
    parts = [
        "# Metrics and default criteria\n",
        NOTE,
        "Metrics are recomputed from the artifacts alone, by code that shares only file formats with the stage "
        "(`tasks/verify/`). A blocking criterion that fails closes the gate after its stage; a warning is shown. "
        "A metric that is missing or could not be measured never passes. `acceptance` in `project.yaml` adds "
        "criteria; one on the same metric and side replaces the default.\n",
        "Some metrics measure what not every project has, as *applies to* says. Where it is not there, the default "
        "criterion blocks nothing: reports say *not applicable*, and why. A criterion on it that `acceptance` or "
        "`objective` names always counts. A count of faults always applies: where nothing could be wrong it is 0.\n",
    ]
    for stage in STAGES:
        parts += [f"## {stage}\n", _metrics_table(definitions(stage))]
    parts += [
        "## Stages of your own that rewrite samples\n",
        "Measured by Gatewright of every added stage with `rewrites`, beside what the stage declares. Its `criteria` "
        "add to these; one on the same metric and side replaces the default.\n",
        _metrics_table(OF_REWRITTEN),
    ]
    return "\n".join(parts)


def _metrics_table(known: Iterable[MetricDefinition]) -> str:
    known = list(known)
    columns: tuple[str, ...] = ("metric", "what", "unit", "bound", "acts as", "recomputed from")
    rows = [[f"`{m.name}`", m.title["en"], m.unit, rule(m), kind(m), m.recomputed] for m in known]
    if any(m.needs for m in known):
        columns, rows = (*columns, "applies to"), [[*row, m.needs] for row, m in zip(rows, known, strict=True)]
    return table(columns, rows)


def type_text(annotation: Any) -> str:
    """A type in the words of a person who writes YAML."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if m is type(None) else type_text(m) for m in members)
    if origin is Literal:
        return " | ".join(f"`{value}`" for value in members)
    if origin is list:
        return f"list of {type_text(members[0])}"
    if origin is dict:
        return f"block: {type_text(members[0])} to {type_text(members[1])}"
    if hasattr(annotation, "__metadata__"):
        return "digest" if "0-9a-f" in str(annotation.__metadata__) else type_text(get_args(annotation)[0])
    words = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`", Any: "value"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def limits(field: FieldInfo) -> str:
    """`≥ 1, < 2147483648`."""
    signs = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
    found = [f"{sign} {getattr(m, name):g}" for m in field.metadata for name, sign in signs if hasattr(m, name)]
    return ", ".join(text.replace("2.14748e+09", "2³¹") for text in found)


def default(field: FieldInfo) -> str:
    """The default as YAML; **required** without one."""
    if field.is_required():
        return "**required**"
    value = field.default_factory() if field.default_factory else field.default  # type: ignore[call-arg]
    if isinstance(value, BaseModel) or value in ({}, PydanticUndefined):
        return ""
    if isinstance(value, list):
        return f"`{[item.model_dump() if isinstance(item, BaseModel) else item for item in value]}`".replace("'", "")
    words = {None: "null", True: "true", False: "false"}
    return f"`{words.get(value, value) if isinstance(value, bool | None) else value}`"


def fields_table(model: type[BaseModel]) -> str:
    """Every key of a model."""
    rows = [
        [f"`{name}`", type_text(f.annotation), limits(f), default(f), f.description or ""]
        for name, f in model.model_fields.items()
    ]
    return table(("key", "type", "limits", "default", "what"), rows) if rows else "Nothing to set.\n"


def parameters_page() -> str:
    """Every parameter that an agent may propose and a person may edit."""
    parts = [
        "# Parameters of the stages\n",
        NOTE,
        "What the agent proposes for each stage and a person may change at its gate (`--set key=value`, where `key` "
        "is the last part of the name as long as it is the only one). `stages` in `project.yaml` fixes or bounds "
        "them, `caps` limits them for everybody.\n",
    ]
    for name, model in PARAMETERS.items():
        parts += [f"## {name}\n", f"{inspect.getdoc(model)}\n", fields_table(model)]
    for model in (TrainingConfiguration, LoraParameters, TrialParameters):
        parts += [f"## {model.__name__}\n", f"{inspect.getdoc(model)}\n", fields_table(model)]
    return "\n".join(parts)


def events_page() -> str:
    """Every kind of event in the ledger."""
    parts = [
        "# Events of the ledger\n",
        NOTE,
        "One record is (run, sequence, kind, actor, time, payload, previous hash, hash). `sequence` counts from 1 "
        "without gaps, `hash` is over the canonical bytes (RFC 8785) of all other fields. Raw data never sits in an "
        "event. A kind that a version does not know is kept and shown, never interpreted.\n",
    ]
    for name, model in PAYLOADS.items():
        rows = [[f"`{key}`", event_type(f), f.description or ""] for key, f in model.model_fields.items()]
        parts += [f"## {name}\n", f"{inspect.getdoc(model)}\n", table(("field", "type", "what"), rows)]
    return "\n".join(parts)


def event_type(field: FieldInfo) -> str:
    """The type of a payload's field; digests are named so."""
    return "digest" if "0-9a-f" in str(field.metadata) else type_text(field.annotation)


def spec_models() -> list[tuple[str, type[BaseModel]]]:
    """(place in `project.yaml`, model) of every block a person may write."""
    found: list[tuple[str, type[BaseModel]]] = [("project.yaml", Project)]
    sources = (WorkOrders, FaultCodes, SensorLogs, Manuals, Notes, Instructions)
    found += [(f"sources[], kind {get_args(m.model_fields['kind'].annotation)[0]}", m) for m in sources]
    for name, field in Project.model_fields.items():
        if name != "sources":
            found += _models(name, field.annotation)
    return found


def _models(place: str, annotation: Any) -> Iterable[tuple[str, type[BaseModel]]]:
    """The models inside an annotation, each with its place: `policy`, `policy.approvers[]`, `stages.*.*`."""
    inner = {list: "[]", dict: ".*"}.get(get_origin(annotation), "")
    if is_model(annotation):
        yield place, annotation
        for name, field in annotation.model_fields.items():
            yield from _models(f"{place}.{name}", field.annotation)
    for member in get_args(annotation):
        yield from _models(place + inner, member)


def spec_page() -> str:
    """Reference of `project.yaml`."""
    parts = [
        "# project.yaml\n",
        NOTE,
        "YAML 1.2 in UTF-8. Only `project`, `base_model` and `sources` are required; `gatewright check PROJECT` "
        "prints every value that has a default, and every problem of the file at once. `gatewright schema` prints "
        "the JSON Schema for editors. Unknown keys are errors.\n",
    ]
    for place, model in spec_models():
        parts += [f"## {place}\n", f"{inspect.getdoc(model)}\n", fields_table(model)]
    return "\n".join(parts)


EXIT_CODES: dict[int, str] = {
    errors.EXIT_DONE: "done; a deciding command that recorded its decision, whatever was decided",
    errors.EXIT_INTERNAL: "an internal error, a full disk, or a worker that died",
    errors.EXIT_INPUT: "bad input or usage: the message names file, line and way out",
    errors.EXIT_WAITING: "waiting at a gate for a person",
    errors.EXIT_WAITING_FAILED_CRITERION: "waiting at a gate, and a blocking criterion failed",
    errors.EXIT_REJECTED: "the run was rejected",
    errors.EXIT_REFUSED: "refused: policy, lease, digest, a decision that cannot apply, or an open run",
    errors.EXIT_VERIFICATION: "verification failed: recomputed is not what was recorded",
    errors.EXIT_STOPPED: "stopped on request, with everything saved",
}


def errors_page() -> str:
    """Exit codes, and the tree of errors behind them."""
    tree = inspect.getdoc(errors) or ""
    codes = table(("exit code", "means"), [[f"`{code}`", text] for code, text in sorted(EXIT_CODES.items())])
    kinds = table(
        ("error", "exit code", "means"),
        [[f"`{e.__name__}`", f"`{e.exit_code}`", inspect.getdoc(e) or ""] for e in error_tree(errors.GatewrightError)],
    )
    return "\n".join(
        [
            "# Exit codes and errors\n",
            NOTE,
            codes,
            '`--json` prints `{"error": {"kind", "message", "hint", "exit_code"}}` on stdout; problems of a '
            "spec come with `problems`, one object each with file, line, path, value, rule and way out.\n",
            "## The tree\n",
            f"```text\n{tree.partition(chr(10) * 2)[2]}\n```\n",
            kinds,
        ]
    )


def fates_page() -> str:
    """The fates of rows, and every reason for which a row is not kept."""
    fates = table(("fate", "means", "说明"), [[f"`{fate}`", text["en"], text["zh"]] for fate, text in FATES.items()])
    reasons = table(("reason", "means", "说明"), [[f"`{r}`", text["en"], text["zh"]] for r, text in REASONS.items()])
    told = "Every row, paragraph and window of every source ends in exactly one of these. The sums hold per source.\n"
    return "\n".join(["# Fates of rows\n", NOTE, told, fates, "\n## Reasons\n", reasons])


def error_tree(kind: type[errors.GatewrightError]) -> list[type[errors.GatewrightError]]:
    """An error class and all below it, parents first."""
    below = [c for c in kind.__subclasses__() if c.__module__ == errors.__name__]
    return [kind, *(c for child in below for c in error_tree(child))]


def stage_table(language: Language) -> str:
    """What every stage proves: its blocking criteria, and what it only warns of."""
    heads = {
        "en": ("stage", "proves, or the gate stays closed", "warns of"),
        "zh": ("阶段", "必须证明（否则不放行）", "仅警告"),
    }
    comma = "; " if language == "en" else "；"

    def say(stage: str, action: str) -> str:
        return comma.join(f"{m.title[language]} {rule(m)}" for m in definitions(stage) if kind(m) == action)

    return table(heads[language], [[f"`{s}`", say(s, "blocking"), say(s, "warning")] for s in STAGES])


PAGES: dict[str, Callable[[], str]] = {
    "docs/metrics.md": metrics_page,
    "docs/parameters.md": parameters_page,
    "docs/events.md": events_page,
    "docs/spec.md": spec_page,
    "docs/errors.md": errors_page,
    "docs/fates.md": fates_page,
}
READMES: dict[str, Language] = {"README.md": "en", "README.zh.md": "zh"}


def with_stage_table(text: str, language: Language) -> str:
    """A README with its stage table made anew."""
    return TABLE.sub(lambda found: found.group(1) + stage_table(language) + found.group(2), text)


def write(root: Path) -> None:
    """Write every page below `root`."""
    for name, page in PAGES.items():
        (root / name).write_text(page(), encoding="utf-8", newline="\n")
    for name, language in READMES.items():
        text = (root / name).read_text(encoding="utf-8")
        (root / name).write_text(with_stage_table(text, language), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
