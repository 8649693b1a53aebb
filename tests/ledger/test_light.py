"""Looking, deciding and auditing start without torch, prefect or langchain; looking without a database library too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import light_run

pytestmark = pytest.mark.usefixtures("light_stages")

PROBE = (
    "import sys, importlib; importlib.import_module(sys.argv[1]);"
    "print([m for m in ('torch','prefect','langchain','transformers','alembic','pandas') if m in sys.modules])"
)


@pytest.mark.parametrize("module", ["flows.ledger", "flows.state", "flows.decide", "flows.gatefiles", "flows.audit"])
def test_it_imports_nothing_heavy(module: str):
    answer = subprocess.run([sys.executable, "-c", PROBE, module], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


COMMAND = """
import sys
from flows.cli.app import main
sys.argv = ["gatewright", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    code = end.code
heavy = ("torch", "prefect", "langchain", "transformers", "alembic", "pandas", "polars", "sqlalchemy", "numpy")
print(code, [m for m in heavy if m in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose run waits at its first gate."""
    workspace = light_run.begin(light_run.make_project(tmp_path_factory.mktemp("light") / "p"))
    assert light_run.passage(workspace).ending == "waiting"
    return workspace.project_dir


@pytest.mark.parametrize("words", [["gates"], ["gates", "--json"], ["runs"], ["status", "--json"]], ids=" ".join)
def test_commands_that_look_load_nothing_heavy(waiting: Path, words: list[str]):
    root = Path(__file__).resolve().parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{COMMAND}", *words],
        cwd=waiting,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stderr.strip() == "0 []"
    assert "r1" in answer.stdout


def test_looking_says_what_the_whole_ledger_says(waiting: Path):
    from flows.ledger import Ledger
    from flows.ledger.glance import glance
    from flows.workspace import ledger_url

    place = Path(str(ledger_url(waiting)))
    whole, quick = Ledger.open(place), glance(place)
    assert quick is not None
    for choice in ({}, {"project": "light"}, {"states": ("waiting",)}, {"states": ("failed",)}, {"limit": 1}):
        assert quick.runs(**choice) == whole.runs(**choice)
    assert quick.events("r1") == whole.events("r1")
    assert (quick.knows("r1"), quick.knows("r2")) == (whole.knows("r1"), whole.knows("r2")) == (True, False)
    assert quick.run("r1") == whole.run("r1")
    quick.close()
    with whole.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    assert glance(place) is None, "a ledger of another version is opened wholly"
    with whole.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{schema_version()}'")
    whole.close()


def schema_version() -> str:
    """The version of the tables."""
    from flows.ledger.rows import HEAD

    return HEAD
