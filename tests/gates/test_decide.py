"""A decision is refused early, late, double, stale or ambiguous, each in its own words; an accepted one is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.gatefiles import gate_folder, load_proposal, proposal_path
from flows.state import Propose, RunStage, Wait
from specs.canonical import canonical_bytes, sha256_bytes
from specs.errors import EXIT_REFUSED, DecisionRefused, GuardRefused, InputError, PolicyRefused, Refused
from specs.parameters import TrainingConfiguration
from specs.policy import Approver, Policy
from specs.proposals import MemoryCheck, Proposal
from tests.support.run_maker import RunMaker


@pytest.fixture
def maker(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path).start()


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunMaker]:
    """A run at each of three gates, to be copied."""
    base = RunMaker(tmp_path_factory.mktemp("waiting") / "data").start().until_gate("data")
    dry_run = base.copy(base.project_dir.with_name("dry_run")).until_gate("dry_run")
    train = dry_run.copy(base.project_dir.with_name("train")).until_gate("train")
    return {"data": base, "dry_run": dry_run, "train": train}


@pytest.fixture
def at_data(waiting: dict[str, RunMaker], tmp_path: Path) -> RunMaker:
    return waiting["data"].copy(tmp_path / "copy")


@pytest.fixture
def at_dry_run(waiting: dict[str, RunMaker], tmp_path: Path) -> RunMaker:
    return waiting["dry_run"].copy(tmp_path / "copy")


@pytest.fixture
def at_train(waiting: dict[str, RunMaker], tmp_path: Path) -> RunMaker:
    return waiting["train"].copy(tmp_path / "copy")


def refused(kind: type[Refused], maker: RunMaker, *choice: str, **more: Any) -> str:
    """The message of a refusal; it exits 6 and records nothing."""
    before = len(maker.ledger.events("r1"))
    with pytest.raises(kind) as caught:
        maker.decide(*choice, **more)
    assert caught.value.exit_code == EXIT_REFUSED
    assert caught.value.hint
    assert len(maker.ledger.events("r1")) == before
    return caught.value.message


def test_an_approval_names_the_digest_of_the_stored_bytes_and_executes_nothing(at_data: RunMaker):
    event = at_data.decide("approve", comment="good", authentication="unauthenticated")
    decision = event.payload["decision"]
    stored = (gate_folder(at_data.run_dir, "data", 1) / "gate.json").read_bytes()
    assert decision["digest"] == sha256_bytes(stored)
    assert (decision["choice"], decision["actor"], decision["comment"]) == ("approve", "me", "good")
    assert (decision["self_approved"], decision["authentication"]) == (True, "unauthenticated")
    assert at_data.ledger.events("r1")[-1] == event
    assert isinstance(at_data.next, RunStage)


def test_early(maker: RunMaker):
    assert refused(DecisionRefused, maker) == "no gate of run r1 is open: it is running at data"
    maker.work()
    assert "no gate of run r1 is open" in refused(DecisionRefused, maker)


def test_double(maker: RunMaker):
    maker.until_gate("data").decide("approve")
    message = refused(DecisionRefused, maker, "reject")
    assert message.startswith("gate data round 1 was decided already: approve by me at 2026-01-02T")


def test_between_gates(maker: RunMaker):
    maker.until_gate("data").decide("approve")
    maker.work()
    assert refused(DecisionRefused, maker) == "no gate of run r1 is open: it is running at data"


def test_late(maker: RunMaker):
    maker.until_gate("data").decide("reject", comment="not worth it")
    assert "has ended (rejected); the last decision was reject by me" in refused(DecisionRefused, maker)
    maker.work()
    assert "has ended (rejected); the last decision was reject by me" in refused(DecisionRefused, maker)


def test_late_after_the_end(tmp_path: Path):
    maker = RunMaker(tmp_path).start().to_the_end()
    assert "has ended (finished)" in refused(DecisionRefused, maker)


def test_a_rejected_run_no_longer_holds_its_project(maker: RunMaker):
    maker.until_gate("data").decide("reject", comment="no")
    again = RunMaker(maker.project_dir, "r2")
    again.start()
    assert again.ledger.run("r2").state == "running"


def test_stale_digest(at_data: RunMaker):
    assert "you decided on bbbbbbbbbbbb" in refused(DecisionRefused, at_data, expected_digest="b" * 64)


@pytest.mark.parametrize(
    "name",
    [
        "gates/02-dry_run/001/gate.json",
        "gates/02-dry_run/001/proposal.json",
        "01-data/001/evidence.json",
        "01-data/001/report.md",
        "01-data/001/plots/loss.svg",
        "spec.json",
        "policy.json",
    ],
)
@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_shown_file_that_is_no_longer_what_was_shown_is_named(at_dry_run: RunMaker, name: str, how: str):
    path = at_dry_run.run_dir / name
    data = path.read_bytes()
    path.unlink()
    if how == "changed":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    message = refused(DecisionRefused, at_dry_run)
    assert "was changed since it opened" in message
    assert name in message
    path.write_bytes(data)
    at_dry_run.decide("approve")


def test_a_changed_proposal_is_named(at_data: RunMaker):
    path = proposal_path(at_data.run_dir, at_data.state.proposals["data", 1])
    path.write_bytes(path.read_bytes() + b" ")
    assert f"proposals/{path.name}" in refused(DecisionRefused, at_data)


@pytest.mark.parametrize(
    ("choice", "more", "text"),
    [
        ("maybe", {}, "'maybe' is no decision"),
        ("", {}, "'' is no decision"),
        ("rework", {"edits": {"seed": "1"}}, "a rework with edits is ambiguous"),
        ("reject", {"edits": {"seed": "1"}}, "a reject with edits is ambiguous"),
        ("rework", {"override": True}, "a rework overrides nothing"),
        ("approve", {"rework_stage": "data"}, "--stage data says rework, the command says approve"),
        ("rework", {"rework_stage": "evaluate"}, "cannot lead to 'evaluate'"),
        ("rework", {"rework_stage": "invented"}, "cannot lead to 'invented'"),
    ],
)
def test_ambiguous(at_data: RunMaker, choice: str, more: dict[str, Any], text: str):
    assert text in refused(DecisionRefused, at_data, choice, **more)


@pytest.mark.parametrize(
    ("policy", "choice", "more", "text"),
    [
        (Policy(), "approve", {"actor": "agent"}, "the agent cannot decide"),
        (Policy(), "approve", {"actor": "gatewright"}, "the agent cannot decide"),
        (Policy(), "approve", {"actor": "m\u0435"}, "is not an approver"),
        (Policy(), "approve", {"actor": "somebody"}, "'somebody' is not an approver of this project"),
        (Policy(), "reject", {"comment": "  "}, "a reject needs a comment"),
        (Policy(), "rework", {"comment": ""}, "a rework needs a comment"),
        (Policy(), "approve", {"override": True}, "nothing to override here"),
        (
            Policy(solo=False, approvers=[Approver(id="me")]),
            "approve",
            {"authentication": "unauthenticated"},
            "alone is a claim",
        ),
    ],
)
def test_what_the_policy_forbids(tmp_path: Path, policy: Policy, choice: str, more: dict[str, Any], text: str):
    maker = RunMaker(tmp_path, policy=policy).start().until_gate("data")
    assert text in refused(PolicyRefused, maker, choice, **more)


def test_a_failed_blocking_criterion_needs_an_override_with_a_reason(maker: RunMaker):
    maker.until_gate("dry_run", loss=3)
    assert isinstance(maker.next, Wait)
    assert maker.next.blocked
    assert "cannot be approved" in refused(PolicyRefused, maker)
    assert "needs a reason" in refused(PolicyRefused, maker, override=True, comment="")
    event = maker.decide("approve", override=True, comment="the bound was wrong")
    assert event.payload["decision"]["override"] is True


def test_without_solo_an_override_needs_the_right(tmp_path: Path):
    policy = Policy(solo=False, approvers=[Approver(id="me"), Approver(id="boss", may_override=True)])
    maker = RunMaker(tmp_path, policy=policy).start().until_gate("dry_run", loss=3)
    assert "may not override" in refused(PolicyRefused, maker, override=True, comment="please")
    event = maker.decide("approve", actor="boss", override=True, comment="accepted")
    assert event.payload["decision"]["self_approved"] is False


def test_the_policy_is_the_frozen_one(at_data: RunMaker):
    widened = Policy(approvers=[Approver(id="me"), Approver(id="intruder")])
    (at_data.run_dir / "policy.json").write_bytes(canonical_bytes(widened))
    assert "policy.json" in refused(DecisionRefused, at_data, actor="intruder")


def test_edits_are_validated_attributed_and_get_a_digest_of_their_own(at_train: RunMaker):
    seen: list[Proposal] = []
    memory = MemoryCheck(peak_bytes=1, usable_bytes=2, device="cpu", method="traced", fits=True)

    def guard(proposal: Proposal) -> Proposal:
        assert proposal.memory is None
        seen.append(proposal)
        return proposal.model_copy(update={"memory": memory})

    edits = {"lr": "1e-4", "training.lora.targets": "[q_proj, v_proj]", "max_steps": "null", "epochs": 2}
    decision = at_train.decide("approve", edits=edits, comment="slower", guard=guard).payload["decision"]
    assert decision["edits"] == {
        "training.lr": 1e-4,
        "training.lora.targets": ["q_proj", "v_proj"],
        "training.max_steps": None,
        "training.epochs": 2,
    }
    original = at_train.state.proposals["train", 1]
    assert decision["edited_proposal"] not in (None, original)
    edited = load_proposal(at_train.run_dir, decision["edited_proposal"])
    training = TrainingConfiguration.model_validate(edited.parameters["training"])
    assert (training.lr, training.lora.targets, training.epochs) == (1e-4, ["q_proj", "v_proj"], 2)
    assert (edited.edited_by, edited.memory) == ("me", memory)
    assert {r.parameter: r.source for r in edited.reasons}["training.lr"] == "person:me"
    assert len(seen) == 1
    step = at_train.next
    assert isinstance(step, RunStage)
    assert step.proposal == decision["edited_proposal"]
    assert load_proposal(at_train.run_dir, original).edited_by == ""


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ({"learning_rate": "1"}, "train has no parameter 'learning_rate'"),
        ({"lr": "fast"}, "training.lr"),
        ({"lr": "-1"}, "training.lr"),
        ({"lr": ".nan"}, "training.lr"),
        ({"optimizer": "magic"}, "training.optimizer"),
        ({"training": "{}"}, "train has no parameter 'training'"),
        ({"lr": "1e-4", "training.lr": "1e-5"}, "training.lr is set twice"),
        ({"rank": "0"}, "training.lora.rank"),
    ],
)
def test_an_edit_outside_the_schema_is_refused(at_train: RunMaker, edits: dict[str, str], text: str):
    stored = sorted((at_train.run_dir / "proposals").iterdir())
    assert text in refused(GuardRefused, at_train, edits=edits)
    assert sorted((at_train.run_dir / "proposals").iterdir()) == stored


def test_an_edit_that_cannot_be_read_is_bad_input(at_train: RunMaker):
    with pytest.raises(InputError, match="cannot be read as a value"):
        at_train.decide(edits={"targets": "[q_proj"})


def test_the_guard_has_the_last_word_on_an_edit(at_train: RunMaker):

    def guard(proposal: Proposal) -> None:
        raise GuardRefused("lr 0.9 is above the cap", "stay below it")

    assert refused(GuardRefused, at_train, edits={"lr": "0.9"}, guard=guard) == "lr 0.9 is above the cap"


def test_what_ran_was_what_was_approved_after_a_rework(at_train: RunMaker):
    at_train.decide("rework", comment="lower lr")
    step = at_train.work()
    assert isinstance(step, Propose)
    assert step.feedback is not None
    assert step.feedback.comment == "lower lr"
    at_train.until_gate("train")
    at_train.decide("approve")
    step = at_train.next
    assert isinstance(step, RunStage)
    assert load_proposal(at_train.run_dir, step.proposal).answers_feedback == "lower lr"


def test_a_gate_opened_twice_with_the_same_bytes_is_one_gate(at_data: RunMaker):
    from specs.events import GateOpened

    gate = at_data.state.gate
    assert gate is not None
    again = at_data.ledger.open_gate("r1", GateOpened(gate="data", round=1, digest=gate.digest, blocked=False))
    assert again.sequence == len(at_data.ledger.events("r1"))
    with pytest.raises(Refused, match="another content"):
        at_data.ledger.open_gate("r1", GateOpened(gate="data", round=1, digest="b" * 64, blocked=False))
    with pytest.raises(Refused, match="gate data round 1 still waits"):
        at_data.ledger.open_gate("r1", GateOpened(gate="train", round=1, digest="b" * 64, blocked=False))


def test_what_a_rework_wants_is_validated_kept_and_put_to_the_proposer(at_data: RunMaker):
    decision = at_data.decide("rework", requests={"eval_share": "less", "seed": "7"}).payload["decision"]
    assert decision["requests"] == {"eval_share": "less", "seed": 7}
    step = at_data.next
    assert isinstance(step, Propose)
    assert step.feedback is not None
    assert step.feedback.words == "seen\neval_share=less\nseed=7"


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ({"sed": "7"}, "data has no parameter 'sed'"),
        ({"seed": "fast"}, "seed"),
        ({"over_long": "less"}, "over_long"),
    ],
)
def test_a_rework_cannot_want_what_does_not_exist(at_data: RunMaker, requests: dict[str, str], text: str):
    assert text in refused(GuardRefused, at_data, "rework", requests=requests)


def test_a_rework_of_train_names_the_stage_where_its_parameters_can_change(at_train: RunMaker):
    with pytest.raises(GuardRefused, match="repeats exactly what the stress test measured") as caught:
        at_train.decide("rework", requests={"lr": "1e-4"})
    assert "--stage stress_test" in caught.value.hint
    decision = at_train.decide("rework", rework_stage="stress_test", requests={"lr": "1e-4"}).payload["decision"]
    assert decision["requests"] == {"training.lr": 1e-4}


def test_wanting_is_for_reworks_only(at_data: RunMaker):
    assert "--want asks for another proposal" in refused(DecisionRefused, at_data, requests={"seed": "7"})


def test_while_a_process_works_the_way_out_is_to_wait(maker: RunMaker):
    with pytest.raises(DecisionRefused) as caught:
        maker.decide()
    assert "works on it; a gate opens when the stage is done" in caught.value.hint
    assert maker.lease is not None
    maker.lease.release()
    with pytest.raises(DecisionRefused) as caught:
        maker.decide()
    assert "`gatewright resume r1` goes on" in caught.value.hint
