"""`gatewright check` can print every value of a spec, and whether a person or a default set it."""

from __future__ import annotations

from specs.credentials import without_secrets
from specs.defaults import effective_spec
from specs.loading import parse_project

TEXT = """\
project: a
base_model: b
sources:
  - {kind: sensor_logs, path: s.csv, channels: [x, y]}
policy: {approvers: [{id: me}]}
stages: {train: {lr: {max: 1e-3}}}
ledger: postgresql+psycopg://user:geheim@db.example/gatewright
"""


def test_every_leaf_is_there_and_marked():
    found = {path: (value, default) for path, value, default in effective_spec(parse_project(TEXT))}
    assert found["project"] == ("a", False)
    assert found["language"] == ("en", True)
    assert found["sources[0].channels"] == (["x", "y"], False)
    assert found["sources[0].timestamp"] == ("timestamp", True)
    assert found["policy.approvers[0].id"] == ("me", False)
    assert found["policy.solo"] == (True, True)
    assert found["policy.approvers[0].may_override"] == (False, True)
    assert found["agent.proposer"] == ("rules", True)
    assert found["stages.train.lr.max"] == (1e-3, False)
    assert found["stages.train.lr.min"] == (None, True)
    assert found["hardware"] == ("auto", True)


def test_a_password_is_not_printed():
    text = str(effective_spec(parse_project(TEXT)))
    assert "geheim" not in text
    assert "user:***@db.example" in text


def test_leaving_passwords_out_marks_nothing_as_written():
    without_ledger = TEXT[: TEXT.index("ledger:")]
    defaults = {p: default for p, _, default in effective_spec(without_secrets(parse_project(without_ledger)))}
    assert defaults["ledger"]
    assert defaults["hub.mirror"]
    assert defaults["agent.base_url"]
    written = {p: default for p, _, default in effective_spec(without_secrets(parse_project(TEXT)))}
    assert not written["ledger"]
