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

REAL_RUN = {"before_train", "finished", "prefect_server"}
REAL_RUN_FILES = {
    f"tests/flows/test_{name}.py"
    for name in (
        "main_job",
        "kill_and_resume",
        "decisions",
        "terminal_gate",
        "deployed",
        "real_model",
        "nothing_slips_in",
    )
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that share the real run come first: they take longest."""
    items.sort(key=lambda item: 0 if REAL_RUN & set(getattr(item, "fixturenames", ())) else 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, a file stays on one; all tests that share the real run stay on one, to run it once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "real run" if file in REAL_RUN_FILES else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session", autouse=True)
def gatewright_home(shared_folder: Path) -> Path:
    """A home of its own, so that a test run neither sees nor leaves anything in the user's."""
    home = shared_folder / "gatewright-home"
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
