"""A pinned policy: whoever edits project.yaml cannot make himself approver, nor rename the project out of its pin."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.pinning import own_pins, pin_files, pin_policy, require_pinned, unpin
from specs.errors import EXIT_REFUSED, PolicyRefused
from specs.policy import Approver, Policy

TEAM = Policy(solo=False, approvers=[Approver(id="li"), Approver(id="wang")])
WIDENED = Policy(solo=False, approvers=[*TEAM.approvers, Approver(id="mallory")])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "pins.json"


def test_a_project_without_pins_runs_under_any_policy(tmp_path: Path, file: Path):
    assert require_pinned("p", tmp_path, WIDENED, [file]) is False


def test_another_policy_than_the_pinned_one_is_refused_by_name_and_by_folder(tmp_path: Path, file: Path):
    pin_policy("p", tmp_path, TEAM, file=file)
    assert require_pinned("p", tmp_path, TEAM, [file]) is True
    for project, folder in (("p", tmp_path), ("renamed", tmp_path), ("p", tmp_path / "moved")):
        with pytest.raises(PolicyRefused, match="is not the one that was pinned") as caught:
            require_pinned(project, folder, WIDENED, [file])
        assert caught.value.exit_code == EXIT_REFUSED
    assert require_pinned("other", tmp_path / "other", WIDENED, [file]) is False


def test_every_file_that_knows_the_project_must_agree(tmp_path: Path, file: Path):
    own = tmp_path / "own.json"
    pin_policy("p", tmp_path, TEAM, file=file)
    pin_policy("p", tmp_path, WIDENED, file=own)
    with pytest.raises(PolicyRefused, match=r"pins\.json"):
        require_pinned("p", tmp_path, WIDENED, [file, own])


def test_earlier_pins_hold_for_runs_that_began_under_them_until_replaced(tmp_path: Path, file: Path):
    pin_policy("p", tmp_path, TEAM, file=file)
    pin_policy("p", tmp_path, WIDENED, file=file)
    assert require_pinned("p", tmp_path, TEAM, [file]) is True
    assert require_pinned("p", tmp_path, WIDENED, [file]) is True
    pin_policy("p", tmp_path, WIDENED, replace=True, file=file)
    with pytest.raises(PolicyRefused):
        require_pinned("p", tmp_path, TEAM, [file])
    assert unpin("p", tmp_path, file) == 1
    assert require_pinned("p", tmp_path, TEAM, [file]) is False


def test_pins_that_cannot_be_read_refuse(tmp_path: Path, file: Path):
    file.parent.mkdir()
    file.write_text("{")
    with pytest.raises(PolicyRefused, match="cannot be read"):
        require_pinned("p", tmp_path, TEAM, [file])


def test_a_link_that_leads_nowhere_and_a_folder_hide_no_pins(tmp_path: Path, file: Path):
    file.parent.mkdir()
    file.symlink_to(tmp_path / "gone.json")
    with pytest.raises(PolicyRefused, match="leads nowhere"):
        require_pinned("p", tmp_path, TEAM, [file])
    file.unlink()
    file.mkdir()
    with pytest.raises(PolicyRefused, match="cannot be read"):
        require_pinned("p", tmp_path, TEAM, [file])


def test_the_systems_file_is_asked_first_and_no_variable_moves_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    system = pin_files()[0]
    monkeypatch.setenv("GATEWRIGHT_HOME", str(tmp_path))
    assert pin_files() == [system, tmp_path / "policy-pins.json"]
    assert own_pins() == tmp_path / "policy-pins.json"
