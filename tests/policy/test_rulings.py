"""What the policy says to a decision: every rule that speaks, the first refusal, and what the decision leads to."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from specs.decisions import RANKS, Decision
from specs.errors import PolicyRefused
from specs.policy import Approver, GateSettings, Policy, duration_s, read_frozen
from specs.rulings import Standing, check, effect, rulings, waits_for

PEOPLE = ("li", "wang", "zhao")


def team(**more: Any) -> Policy:
    people = [Approver(id="li"), Approver(id="wang", may_override=True), Approver(id="zhao", may_override=True)]
    return Policy(**{"solo": False, "approvers": people, **more})


def says(choice: str = "approve", actor: str = "li", **more: Any) -> Decision:
    fields = {"authentication": "terminal", "comment": "seen", **more}
    return Decision(run="r", gate="train", round=1, digest="a" * 64, choice=choice, actor=actor, **fields)  # type: ignore[arg-type]


def refused(policy: Policy, decision: Decision, standing: Standing) -> list[str]:
    return [ruling.rule for ruling in rulings(policy, decision, standing) if not ruling.ok]


TRAIN = Standing("train")


@pytest.mark.parametrize(
    ("policy", "decision", "standing", "rules"),
    [
        (team(), says(), TRAIN, []),
        (team(), says(actor="agent"), TRAIN, ["person"]),
        (team(), says(actor="nobody"), TRAIN, ["person"]),
        (team(reviewers=["wang"]), says(), TRAIN, ["reviewer"]),
        (team(gates={"train": GateSettings(reviewers=["wang"])}), says(), Standing("data"), []),
        (team(), says(authentication="unauthenticated"), TRAIN, ["authentication"]),
        (team(authentication="token"), says(), TRAIN, ["authentication"]),
        (team(authentication="token"), says(authentication="ssh_signature"), TRAIN, []),
        (
            Policy(authentication="terminal"),
            says(actor="me", authentication="unauthenticated"),
            TRAIN,
            ["authentication"],
        ),
        (team(), says("reject", comment=" "), TRAIN, ["comment"]),
        (team(comment_required=["approve"]), says(comment=""), TRAIN, ["comment"]),
        (team(), says(), Standing("train", expired_at="2026"), ["expiry"]),
        (team(), says(override=True), TRAIN, ["override"]),
        (team(), says(), Standing("train", blocked=True), ["override", "override"]),
        (team(), says(actor="wang", override=True), Standing("train", blocked=True), []),
        (team(), says(actor="wang", override=True, comment=""), Standing("train", blocked=True), ["override"]),
        (team(quorum=3), says(actor="wang", override=True), Standing("train", blocked=True), ["override"]),
        (team(quorum=2), says(), Standing("train", approved_by=("li",)), ["once"]),
        (team(), says(), Standing("train", editors=("li",)), ["self_approval"]),
        (team(editors_may_approve_themselves=True), says(), Standing("train", editors=("li",)), []),
        (team(quorum=2), says(edits={"lr": 1}), TRAIN, []),
        (team(quorum=3), says(edits={"lr": 1}), TRAIN, ["self_approval"]),
        (team(quorum=2), says(edits={"lr": 1}), Standing("train", editors=("wang",)), ["self_approval"]),
        (team(max_rework_rounds=2), says("rework"), Standing("train", reworks=1), []),
        (team(max_rework_rounds=2), says("rework"), Standing("train", reworks=2), ["rounds"]),
        (
            team(),
            says("reject", actor="nobody", authentication="unauthenticated", comment=""),
            TRAIN,
            ["person", "authentication", "comment"],
        ),
    ],
)
def test_every_rule_that_forbids_speaks(policy: Policy, decision: Decision, standing: Standing, rules: list[str]):
    assert refused(policy, decision, standing) == rules
    if rules:
        with pytest.raises(PolicyRefused) as caught:
            check(policy, decision, standing)
        assert caught.value.hint
    else:
        check(policy, decision, standing)


@pytest.mark.parametrize(
    ("who", "words"),
    [("l\u0456", "it only looks like one: '\u0456' is U+0456"), ("LI", "'li' is, and is written differently")],
)
def test_a_name_that_only_looks_like_an_approvers_is_told_apart(who: str, words: str):
    with pytest.raises(PolicyRefused, match="is not an approver") as caught:
        check(team(), says(actor=who), TRAIN)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("policy", "decision", "standing", "kind", "approved", "missing"),
    [
        (team(), says(), TRAIN, "decides", ("li",), ()),
        (team(quorum=2), says(), TRAIN, "counts", ("li",), ("wang", "zhao")),
        (team(quorum=2), says(), Standing("train", approved_by=("zhao",)), "decides", ("zhao", "li"), ()),
        (team(quorum=2), says("reject"), TRAIN, "decides", (), ()),
        (team(), says(edits={"lr": 1}), TRAIN, "amends", (), ("wang", "zhao")),
        (
            team(quorum=2),
            says(edits={"lr": 1}),
            Standing("train", approved_by=("wang",)),
            "amends",
            (),
            ("wang", "zhao"),
        ),
        (team(editors_may_approve_themselves=True), says(edits={"lr": 1}), TRAIN, "decides", ("li",), ()),
        (
            team(editors_may_approve_themselves=True, quorum=2),
            says(edits={"lr": 1}),
            TRAIN,
            "amends",
            ("li",),
            ("wang", "zhao"),
        ),
        (Policy(), says(actor="me", edits={"lr": 1}), TRAIN, "decides", ("me",), ()),
    ],
)
def test_what_a_decision_leads_to(policy, decision, standing, kind, approved, missing):
    result = effect(policy, decision, standing)
    assert (result.kind, result.approved_by, result.waits_for) == (kind, approved, missing)


@given(data=st.data(), quorum=st.integers(1, 3), alone=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_gate_opens_only_by_as_many_different_people_as_the_quorum_none_of_whom_edited(
    data, quorum: int, alone: bool
):
    policy = team(quorum=quorum, editors_may_approve_themselves=alone)
    approved: tuple[str, ...] = ()
    editors: list[str] = []
    for _ in range(12):
        who = data.draw(st.sampled_from(PEOPLE))
        edits = {"lr": 1} if data.draw(st.integers(0, 3)) == 0 else {}
        decision, standing = says(actor=who, edits=edits), Standing("train", False, approved, tuple(editors))
        if refused(policy, decision, standing):
            continue
        result = effect(policy, decision, standing)
        assert len(set(result.approved_by)) == len(result.approved_by)
        editors += [who] if edits else []
        if not alone:
            assert not set(editors) & set(result.approved_by)
        if result.kind != "decides":
            assert result.waits_for == waits_for(policy, "train", result.approved_by, tuple(editors))
        assert (result.kind == "decides") == (len(result.approved_by) >= quorum)
        if result.kind == "decides":
            return
        assert len(result.approved_by) + len(result.waits_for) >= quorum  # nobody is led into a gate that cannot open
        approved = result.approved_by


def test_ways_of_proof_are_ranked():
    assert RANKS == ("unauthenticated", "terminal", "token", "ssh_signature")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("72h", 259200), ("14d", 1209600)])
def test_durations(text: str, seconds: int):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "72", "-1h", "1.5h", "1w", "٣h", "0h", "9999999d"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(ValueError, match=r"duration|at once"):
        Policy(expires_after=text)


def test_a_policy_frozen_before_quorums_lets_editors_approve_and_keeps_its_meaning():
    old = b'{"approvers":[{"id":"me","may_override":true}],"comment_required":["reject"],"solo":false}'
    assert read_frozen(old).editors_may_approve_themselves is True
    assert read_frozen(team().model_dump_json().encode()) == team()


def test_the_digest_of_a_policy_is_over_what_was_set():
    assert team().sha256 == team(quorum=1).sha256
    assert team().sha256 != team(quorum=2).sha256
    assert read_frozen(team(quorum=2).model_dump_json().encode()).sha256 == team(quorum=2).sha256
