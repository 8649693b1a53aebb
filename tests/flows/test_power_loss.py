"""Whatever write a power loss hits, the run comes to the same end: nothing lost, nothing decided or published twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import light_run, postgresql
from tests.support.crashes import Crashes
from tests.support.faults import Place

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forks of itself"),
    pytest.mark.usefixtures("light_stages"),
]


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashes]:
    """Light runs with SQLite."""
    light_run.HOW["workers"] = False
    yield Crashes(tmp_path_factory.mktemp("crashes"))
    light_run.HOW["workers"] = True


@pytest.fixture(scope="module")
def places(crashes: Crashes) -> list[Place]:
    """Found, not listed: every distinct write site with its moments."""
    return crashes.find_places()


def test_the_sites_that_matter_are_among_those_found(places: list[Place]):
    sites = {p.site for p in places}
    assert len(sites) > 60
    for part in ("create_run", "take_lease", "propose", "open_gate", "deciding.record", "publish_folder", "release"):
        assert any(part in site for site in sites), part
    assert {p.moment for p in places} == {"before", "inside", "after"}


CHOSEN: dict[str, Callable[[Place], bool]] = {
    "decision recorded, not told": lambda p: (
        p.moment == "after" and p.site.startswith("commit") and "deciding.record" in p.site
    ),
    "stage renamed, not recorded": lambda p: (
        p.moment == "after" and p.site.startswith("rename") and "run_attempt" in p.site
    ),
    "gate half written": lambda p: p.moment == "inside" and "write_gate" in p.site and p.site.startswith("fsync"),
}


@pytest.mark.parametrize("which", CHOSEN)
def test_a_handful_of_kills_comes_to_the_same_end(crashes: Crashes, places: list[Place], which: str):
    place = next(p for p in places if CHOSEN[which](p))
    assert crashes.kill_at(place, crashes.passings[place]) == []


@pytest.mark.slow
def test_a_kill_at_every_place_comes_to_the_same_end(crashes: Crashes, places: list[Place]):
    faults = {str(place): found for place in places if (found := crashes.kill_at(place))}
    assert faults == {}


@pytest.mark.slow
def test_a_kill_at_every_place_comes_to_the_same_end_on_postgresql(places: list[Place], tmp_path: Path):
    pytest.importorskip("psycopg")
    try:
        with postgresql.server() as url:
            crashes = Crashes(tmp_path, lambda number: postgresql.fresh(url, f"p{number}"))
            found = [p for p in crashes.find_places() if "commit" in p.site or "transaction" in p.site]
            faults = {str(place): wrong for place in found if (wrong := crashes.kill_at(place))}
    except postgresql.NoPostgresql as error:
        pytest.skip(str(error))
    assert len(found) > 20
    assert faults == {}
