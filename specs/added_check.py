"""What is wrong with the stages that a project adds: names, order, code that is not allowed. Pure.

Each fault has its place below `added_stages`, the rule, and a way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specs.added import OWN_PACKAGE, AddedStage, graph_of, in_package, rewriters_apart, rewritten_input, stands_in
from specs.metrics import STAGES
from specs.stage_graph import CycleError
from specs.words import listed, nearest

_PROJECT = "project:"


@dataclass(frozen=True)
class AddedFault:
    """Something wrong with an added stage. `path` leads to it from `added_stages`."""

    path: tuple[str | int, ...]
    rule: str
    way_out: str


def added_faults(added: Mapping[str, AddedStage], packages: list[str]) -> list[AddedFault]:
    """Everything that the stages say against each other. An empty list is a pass."""
    found = [
        fault for name, stage in added.items() for fault in (*_names(name, stage, added), *_code(name, stage, packages))
    ]
    found += _rewriting(added)
    return found or list(_order(added))  # an order means nothing while names are wrong


def _names(name: str, stage: AddedStage, added: Mapping[str, AddedStage]) -> Iterator[AddedFault]:
    known = [s for s in (*STAGES, *added) if s != name]
    for key, source in stage.inputs.items():
        owner, _, artifact = source.partition("/")
        if source.startswith(_PROJECT):
            continue
        if owner not in known:
            rule = "reads its own artifact" if owner == name else f"reads an artifact of {owner!r}, which is no stage"
            yield AddedFault((name, "inputs", key), rule, _did_you_mean(owner, known))
        elif owner in added and not any(artifact == o or artifact.startswith(o + "/") for o in added[owner].outputs):
            outputs = added[owner].outputs
            way_out = f"Its outputs are {listed(outputs, 'and')}" if outputs else f"Name it in outputs of {owner}"
            yield AddedFault((name, "inputs", key), f"{owner} declares no output {artifact!r}", way_out)
    for key, names in (("after", stage.after), ("before", stage.before)):
        for position, other in enumerate(names):
            if other not in known:
                rule = "names the stage itself" if other == name else "is not a stage"
                yield AddedFault((name, key, position), rule, _did_you_mean(other, known))
    if "data" in stage.before:
        rule = "comes before data, with which every run begins"
        yield AddedFault((name, "before", stage.before.index("data")), rule, "Prepare raw files outside the run")


def _code(name: str, stage: AddedStage, packages: list[str]) -> Iterator[AddedFault]:
    for key in ("hand_out", "task", "verify"):
        task = getattr(stage, key)
        if task is not None and in_package(task, packages) is None:
            package = task.partition(":")[0].partition(".")[0]
            rule = f"lies in no package of task_packages: {listed(packages or ['(none)'], 'and')}"
            own = OWN_PACKAGE not in packages and task.startswith(OWN_PACKAGE)
            more = f"Add {OWN_PACKAGE if own else package} to task_packages, where the first gate shows it"
            yield AddedFault((name, key), rule, more)
    if stage.hand_out is not None and stage.task is None:
        rule = "has no task that goes on with what the person hands in"
        yield AddedFault((name, "hand_out"), rule, "Write task: package.module:function, or take hand_out out")


def _rewriting(added: Mapping[str, AddedStage]) -> Iterator[AddedFault]:
    for name, stage in added.items():
        if not stage.rewrites:
            continue
        if rewritten_input(stage, added) is None:
            yield AddedFault(
                (name, "rewrites"), "rewrites what it does not read", f"Add inputs: {{samples: {stage.rewrites}}}"
            )
    apart = rewriters_apart(added)
    for name in apart[1:]:
        rule = f"rewrites the same artifact as {apart[0]}, and neither reads the other's"
        yield AddedFault((name, "rewrites"), rule, f"Let one read the other's: {apart[0]}/samples.parquet")


def _order(added: Mapping[str, AddedStage]) -> Iterator[AddedFault]:
    try:
        graph_of(added)
    except CycleError as error:
        name = next(s for s in error.ring if s in added)
        later = error.ring[error.ring.index(name) + 1]
        replaced = [s for s, given in stands_in(added).items() if name in given.values()]
        why = f"; {', '.join(replaced)} read what it rewrites" if later in replaced or added[name].rewrites else ""
        yield AddedFault(
            _place(name, added[name], later), f"waits for itself: {error}{why}", "Take one of the two ends out"
        )


def _place(name: str, stage: AddedStage, later: str) -> tuple[str | int, ...]:
    """The line by which a stage waits for another one of a ring, else the stage itself."""
    for key, source in stage.inputs.items():
        if source.partition("/")[0] == later:
            return (name, "inputs", key)
    if later in stage.after:
        return (name, "after", stage.after.index(later))
    return (name, "before", 0) if stage.before else (name,)


def _did_you_mean(word: str, known: list[str]) -> str:
    near = nearest(word, known)
    return f"Did you mean {near[0]}?" if near else f"Stages are {', '.join(known)}"
