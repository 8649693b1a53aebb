"""Everything that can be said of a project before it runs: sources and base model, all problems at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from specs.added import REWRITABLE, stands_in
from specs.base import Language
from specs.errors import GatewrightError, InputError, ModelError, Problem, SpecError
from specs.loading import LoadedProject
from specs.sources import FaultCodes, WorkOrders
from specs.words import listed
from specs.yaml_tree import dotted, read_yaml

if TYPE_CHECKING:
    from tasks.data.probe import SourceSummary


_SOURCES: TypeAdapter[WorkOrders | FaultCodes] = TypeAdapter(
    Annotated[WorkOrders | FaultCodes, Field(discriminator="kind")]
)


@dataclass(frozen=True)
class CheckReport:
    """What the check found: `problems` stop a run, `notes` are worth knowing, `sources` is what each file holds.

    `previews` are the first mapped rows of each table source, by its position in the spec.
    """

    problems: list[Problem] = field(default_factory=list)
    sources: list[SourceSummary] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    previews: dict[int, list[dict[str, str]]] = field(default_factory=dict)


def check_project(loaded: LoadedProject, with_model: bool) -> CheckReport:
    """Look at every source and, if asked, at the base model and the model of the dry run.

    Cheap: nothing is downloaded, converted or loaded. The spec itself was checked when it was read.
    """
    from tasks.data.probe import probe_sources

    notes: list[str] = []
    previews: dict[int, list[dict[str, str]]] = {}
    sources, problems = probe_sources(loaded.folder, loaded.spec, previews)
    problems = [*problems, *_hardware_problems(loaded), *_parent_problems(loaded), *_added_problems(loaded)]
    problems += _general_text_problems(loaded)
    if with_model:
        problems = [*problems, *_model_problems(loaded, notes)]
    notes += [*_too_few(loaded, sources, bool(problems)), *_without_fault_types(loaded)]
    notes += [*_missing_packages(loaded), *_rewritten(loaded)]
    return CheckReport(_with_lines(problems, loaded), sources, notes, previews)


def _too_few(loaded: LoadedProject, sources: list[SourceSummary], incomplete: bool) -> list[str]:
    """A warning where all rows together are fewer than the samples that the data stage asks for.

    Rows of tables and instruction data are an upper bound; how many samples texts and logs give is not known before.
    """
    if incomplete or not sources or any(s.kind not in ("work_orders", "fault_codes", "instructions") for s in sources):
        return []
    asked = {
        c.metric: c.bound
        for c in loaded.spec.criteria("data")
        if c.blocking and c.op in (">=", ">") and c.metric in ("samples_train", "samples_eval")
    }
    rows, needed = sum(s.rows for s in sources), sum(asked.values())
    if rows >= needed:
        return []
    listed = " and ".join(f"{metric} of at least {bound:g}" for metric, bound in sorted(asked.items(), reverse=True))
    return [
        f"the sources hold {rows} rows, and the data stage asks for {listed}: it cannot pass. "
        "Bring more rows, or loosen the criteria under acceptance: data:"
    ]


def _without_fault_types(loaded: LoadedProject) -> list[str]:
    """What becomes of a criterion of fault types where no source names any."""
    asked = [c for c in loaded.spec.criteria("evaluate") if c.metric == "fault_type_coverage"]
    if any(s.kind not in ("instructions", "manuals") for s in loaded.spec.sources):
        return []
    if all(s.kind == "manuals" for s in loaded.spec.sources):
        return []  # plain text alone has no answers: no metric of answers applies
    share = "the share of held-out answers that come near the one in the data"
    if all(c.where_applicable for c in asked):
        return [
            "no source names fault types: fault_type_coverage does not apply and judges nothing. To have "
            f"{share} judged, write under acceptance: evaluate: [{{metric: fault_type_coverage, op: '>=', bound: 0.5}}]"
        ]
    return [
        f"no source names fault types: the criterion on fault_type_coverage that project.yaml names judges {share}, "
        f"and {'blocks the release' if any(c.blocking for c in asked) else 'warns'} below {asked[0].bound:g}"
    ]


def _missing_packages(loaded: LoadedProject) -> list[str]:
    if loaded.spec.method == "qlora" and find_spec("bitsandbytes") is None:
        return ["method qlora needs bitsandbytes, which is not installed here: pip install 'gatewright[qlora]'"]
    return []


def _rewritten(loaded: LoadedProject) -> list[str]:
    """Which stages read what an added one wrote in place of what a built-in one did, and what may be rewritten."""
    read: dict[str, list[str]] = {}
    for reader, replaced in stands_in(loaded.spec.added_stages).items():
        for owner, writer in replaced.items():
            artifact = next(a for a in REWRITABLE if a.partition("/")[0] == owner)
            read.setdefault(f"{writer}/{artifact.partition('/')[2]} in place of {artifact}", []).append(reader)
    return [
        f"{listed(readers, 'and')} read {what}: leaks across the split are measured again when it is written. Only "
        f"{listed(REWRITABLE, 'and')} can be rewritten; all other artifacts are evidence"
        for what, readers in read.items()
    ]


def _hardware_problems(loaded: LoadedProject) -> list[Problem]:
    """A card that no catalog knows, and whose memory is not given: nothing can be planned for it. More processes than
    cards: each needs one of its own."""
    from specs.hardware import find_gpu

    hardware, processes = loaded.spec.hardware, loaded.spec.launcher.processes
    if hardware == "auto":
        return _too_few_cards(loaded, processes)
    found = []
    if processes > hardware.count:
        rule = f"{processes} training processes need {processes} GPUs, and hardware.count is {hardware.count}"
        way = "set launcher.processes to the number of GPUs, or hardware.count to what there is"
        found.append(Problem(loaded.file.name, None, "launcher.processes", str(processes), rule, way))
    if hardware.memory_gb is None:
        try:
            find_gpu(hardware.gpu)
        except InputError as error:
            found.append(Problem(loaded.file.name, None, "hardware.gpu", hardware.gpu, error.message, error.hint))
    return found


def _general_text_problems(loaded: LoadedProject) -> list[Problem]:
    """General text that cannot be read or is too little, said before anything is trained."""
    from tasks.evaluate.general_text import require_enough

    asked = loaded.spec.general_text
    if asked is None:
        return []
    from tasks.data.files import matching_files

    try:
        require_enough(loaded.folder, asked)
        learnt = {path for source in loaded.spec.sources for path in matching_files(loaded.folder, source.path)}
        both = sorted(path.name for path in learnt & set(matching_files(loaded.folder, asked.path)))
        if both:
            raise InputError(
                f"{both[0]} is a source of this project too: of what is trained on nothing can be forgotten",
                "put the general text into a folder of its own, with text that is not about this work",
            )
    except InputError as error:
        return [Problem(loaded.file.name, None, "general_text.path", asked.path, error.message, error.hint)]
    return []


def _too_few_cards(loaded: LoadedProject, processes: int) -> list[Problem]:
    """More processes than GPUs of this machine; on a CPU they share it."""
    from tasks.memory.devices import device_of_rank

    if processes == 1:
        return []
    try:
        device_of_rank(processes)
    except InputError as error:
        return [Problem(loaded.file.name, None, "launcher.processes", str(processes), error.message, error.hint)]
    return []


def with_proposals(error: SpecError, place: Path) -> SpecError:
    """The problems of a spec, with a column mapping proposed from the file itself where one is missing."""
    file = place / "project.yaml" if place.is_dir() else place
    try:
        tree = read_yaml(file.read_text(encoding="utf-8-sig"), file.name)
    except (OSError, UnicodeDecodeError, GatewrightError):
        return error
    found = [_proposed(problem, tree.data, file.parent) for problem in error.problems]
    return SpecError(found)


def _proposed(problem: Problem, data: Any, folder: Path) -> Problem:
    from tasks.data.files import source_files
    from tasks.data.mapping import propose_mapping

    match = re.fullmatch(r"sources\[(\d+)\]\.columns", problem.path)
    if not match or not isinstance(data, dict):
        return problem
    try:
        written = dict(data["sources"][int(match.group(1))])
        kind = written["kind"]
        columns = {"phenomenon": "?", "repair": "?"} if kind == "work_orders" else {"fault_type": "?", "meaning": "?"}
        language: Language = "zh" if data.get("language") == "zh" else "en"
        source = _SOURCES.validate_python({**written, "columns": columns})
        file = source_files(folder, source)[0][0]
        found = propose_mapping(file, source.kind, language, source.encoding, getattr(source, "sheet", None))
    except (GatewrightError, ValueError, KeyError, IndexError, TypeError):
        return problem
    if found is None or not found.columns:
        return problem
    return replace(problem, way_out=f"Add, for {file.name}:\n{found.text()}")


def _added_problems(loaded: LoadedProject) -> list[Problem]:
    """Files and modules that added stages name and that are not there. Nothing is imported."""
    from tasks.added.sources import problems_of

    return [
        Problem(loaded.file.name, None, f"added_stages.{name}", "", rule, way_out)
        for name, stage in loaded.spec.added_stages.items()
        for rule, way_out in problems_of(loaded.folder, stage, loaded.spec.task_packages)
    ]


def _parent_problems(loaded: LoadedProject) -> list[Problem]:
    """A parent of which there is no trace; what it is worth is found out when a run begins."""
    named = loaded.spec.parent
    if named is None:
        return []
    if (loaded.folder / "runs" / named).is_dir() or (loaded.folder / named / "manifest.json").is_file():
        return []
    rule = "there is neither a run of this name nor a folder with a release"
    way = "name a run of this project (`gatewright runs` lists them), or a folder of it with a release bundle"
    return [Problem(loaded.file.name, None, "parent", named, rule, way)]


def _model_problems(loaded: LoadedProject, notes: list[str]) -> list[Problem]:
    from tasks.models.resolve import check_model

    found = []
    for path, name in (("base_model", loaded.spec.base_model), ("dry_run.model", loaded.spec.dry_run.model)):
        if name is None:
            continue
        try:
            kind = check_model(name, loaded.folder)
        except ModelError as error:
            found.append(_problem(loaded, path, error, name))
        else:
            if kind == "hub":
                notes.append(f"{path}: {name} is fetched from the hub when the run starts, unless it is cached")
    return found


def _problem(loaded: LoadedProject, path: str, error: ModelError, value: str) -> Problem:
    return Problem(loaded.file.name, None, path, value, error.message, error.hint)


def _with_lines(problems: list[Problem], loaded: LoadedProject) -> list[Problem]:
    """The problems with the line of `project.yaml` that each is about, in the order of the file."""
    tree = read_yaml(loaded.text, loaded.file.name)
    lines = {dotted(path): line for path, line in tree.lines.items()}
    found = []
    for problem in problems:
        place = problem.path
        while place and place not in lines:
            place = place[: max(place.rfind("."), place.rfind("["))] if ("." in place or "[" in place) else ""
        found.append(replace(problem, line=problem.line or lines.get(place)))
    return sorted(found, key=lambda p: (p.line or 0, p.path, p.rule))
