"""Fixtures of the whole suite: a home of its own, and the tiny bilingual model, built once however many workers run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from tests.support.raw_project import Finished

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

HOME = "gatewright-home"

GROUPS = {
    "before train": ("flows/test_decisions", "flows/test_nothing_slips_in", "flows/test_terminal_gate"),
    "training": ("training/",),
    "stress tests": ("stress/test_stage", "verify/test_stress_test"),
    "after train": ("flows/test_main_job", "flows/test_kill_and_resume"),
    "evaluate": ("evaluate/",),
    "memory": ("memory/",),
    "planning": ("planning/",),
    "resumed preparation": ("data/test_resume",),
    "task sheet": ("docs/test_task_sheet_page",),
    "claims": ("advising/test_claims",),
    "trial": ("advising/test_trial",),
}
"""Files that share what takes long to make, and single ones that take long: each group stays on one worker.

They are begun first, in this order, so that no worker is left with a long one when the others have none.
"""


def group_of(nodeid: str) -> str:
    """The group of a test, else its file."""
    file = nodeid.split("::", 1)[0]
    place = file.removeprefix("tests/")
    return next((name for name, places in GROUPS.items() if place.startswith(places)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups come first."""
    order = {name: number for number, name in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, a group stays on one, and so does a file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the Prefect server that all workers shared, when the last of them has ended."""
    factory = getattr(config, "_tmp_path_factory", None)
    if "PYTEST_XDIST_WORKER" in os.environ or factory is None:
        return
    home = factory.getbasetemp() / HOME
    if (home / "prefect").exists():
        from flows import server

        os.environ["GATEWRIGHT_HOME"] = str(home)
        server.down()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session", autouse=True)
def gatewright_home(shared_folder: Path) -> Path:
    """A home of its own, so that a test run neither sees nor leaves anything in the user's."""
    home = shared_folder / HOME
    home.mkdir(exist_ok=True)
    os.environ["GATEWRIGHT_HOME"] = str(home)
    return home


@pytest.fixture(scope="session")
def tiny_model(gatewright_home: Path) -> Path:
    """Local folder of the tiny bilingual model, as a project gets it. One worker makes it, the others wait for it."""
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model

    with FileLock(gatewright_home / "tiny-model.lock"):
        return resolve_base_model("package:gatewright-tiny", gatewright_home, Hub(), Quiet()).folder


@pytest.fixture(scope="session")
def data_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """A finished run of the data stage in a language, for reading only; made once by each worker."""
    from tests.support.raw_project import finish

    return cache(lambda language: finish(tmp_path_factory.mktemp(f"data-{language}"), language, tiny_model))


@pytest.fixture(scope="module")
def light_stages() -> Iterator[None]:
    """Light stages in this process for the tests of one file, and real ones for the tests of others."""
    from tests.support import light_run

    with light_run.installed():
        yield
