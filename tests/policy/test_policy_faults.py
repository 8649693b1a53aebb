"""A policy that contradicts itself, or sets something without effect, is refused with the line and a way out."""

from __future__ import annotations

import pytest

from specs.errors import SpecError
from specs.loading import parse_project
from specs.policy import Policy
from specs.policy_check import policy_faults

HEAD = """\
project: p
base_model: package:gatewright-tiny
sources:
  - {kind: notes, path: notes.md}
policy:
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJgpz1SFnqcVCyViVfLdULO9WNZRGNrkCfhAqbhC2Bgs"
TWO = "  solo: false\n  approvers: [{id: li}, {id: wang}]\n"

GOOD = {
    "solo": "  solo: true\n",
    "two people": TWO + "  quorum: 2\n",
    "a role": "  solo: false\n  approvers: [{id: li, roles: [lead]}, {id: wang}]\n"
    "  gates: {release: {reviewers: [lead]}}\n",
    "a group": TWO + "  groups: {safety: [li]}\n  gates: {train: {reviewers: [safety]}}\n",
    "keys without a signature asked for": f"  solo: false\n  approvers: [{{id: li, keys: ['{KEY} li@host']}}]\n",
    "a signature": f"  solo: false\n  approvers: [{{id: li, keys: ['{KEY}']}}]\n  authentication: ssh_signature\n",
    "everything": TWO
    + "  expires_after: 72h\n  max_rework_rounds: 3\n  gates: {train: {quorum: 2, expires_after: 14d}}\n",
}
BAD = {
    "quorum: needs 3, and only li, wang could approve": TWO + "  quorum: 3\n",
    "gates.train.quorum: needs 2, and only wang could": TWO + "  gates: {train: {quorum: 2, reviewers: [wang]}}\n",
    "quorum: asks for several people": "  quorum: 2\n  approvers: [{id: li}, {id: wang}]\n",
    "is a group that nobody is in": TWO + "  groups: {safety: []}\n  gates: {train: {reviewers: [safety, li]}}\n",
    "a group that no reviewers name": TWO + "  groups: {safety: [li]}\n",
    "a role that no reviewers name": "  approvers: [{id: li, roles: [lead]}]\n",
    "Did you mean li?": TWO + "  groups: {safety: [lii]}\n  reviewers: [safety]\n",
    "neither an approver nor a role nor a group": TWO + "  reviewers: [nobody]\n",
    "names nobody": TWO + "  reviewers: []\n",
    "is not a gate": TWO + "  gates: {trian: {quorum: 2}}\n",
    "sets nothing": TWO + "  gates: {train: {}}\n",
    "lets anybody decide in anybody's name": TWO + "  authentication: unauthenticated\n",
    "has no effect under solo": "  editors_may_approve_themselves: true\n",
    "approvers[0].may_override: has no effect": TWO.replace("{id: li}", "{id: li, may_override: true}")
    + "  quorum: 2\n",
    "may decide at no gate": TWO + "  reviewers: [li]\n",
    "cannot sign, having no keys": TWO + "  authentication: ssh_signature\n",
    "is also listed for li": "  solo: false\n  approvers:\n"
    + "".join(f"    - {{id: {who}, keys: ['{KEY} {who}']}}\n" for who in ("li", "wang")),
    "is no SSH public key": "  approvers: [{id: li, keys: [abc]}]\n",
    "is a private key": "  approvers: [{id: li, keys: ['-----BEGIN OPENSSH PRIVATE KEY-----']}]\n",
    "one could be taken for the other": "  solo: false\n  approvers: [{id: li}, {id: Li}]\n",
    "is a name of the machine": "  approvers: [{id: Agent}]\n",
    "is not a choice at a gate": "  gates: {train: {comment_required: [aprove]}}\n",
    "is no duration": "  expires_after: soon\n",
    "is also the name of an approver": TWO + "  groups: {li: [wang]}\n  reviewers: [li, wang]\n",
    "is in this group twice": TWO + "  groups: {all: [li, li]}\n  reviewers: [all, wang]\n",
    "quorums": TWO + "  quorums: 2\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_policy_that_makes_sense_loads(name: str):
    assert policy_faults(parse_project(HEAD + GOOD[name]).policy) == []


@pytest.mark.parametrize("words", BAD)
def test_a_policy_that_makes_no_sense_is_refused_with_its_line(words: str):
    with pytest.raises(SpecError) as caught:
        parse_project(HEAD + BAD[words])
    text = str(caught.value)
    path, _, rule = words.rpartition(": ")
    assert rule in text
    assert f"policy.{path}" in text if path else "policy" in text
    assert all(problem.line and problem.line >= 5 for problem in caught.value.problems)
    assert all(problem.way_out for problem in caught.value.problems)


def test_the_default_policy_has_no_fault():
    assert policy_faults(Policy()) == []
