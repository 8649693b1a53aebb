"""Samples longer than the model was made for end a run before anything is spent on it."""

from __future__ import annotations

import json
import shutil

import pytest

from specs.errors import InputError
from tasks.models.folder import digest_model
from tasks.positions import positions_of, require_within
from tests.support.forked import train


@pytest.mark.parametrize(
    ("settings", "positions"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"n_positions": 32}, 32),
        ({"max_position_embeddings": 8, "text_config": {"max_position_embeddings": 64}}, 64),
        ({"max_position_embeddings": None, "seq_length": 16}, 16),
        ({"max_position_embeddings": True}, None),
        ({"alibi": True}, None),
        ([], None),
    ],
)
def test_how_long_a_text_may_be_is_what_the_configuration_says(settings, positions, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert positions_of(tmp_path) == positions


def test_longer_samples_are_named_with_the_longest_first_and_the_ways_out(tmp_path):
    (tmp_path / "config.json").write_text('{"n_positions": 32}')
    require_within({"a": 32, "b": 1}, tmp_path, "org/m")
    with pytest.raises(
        InputError, match=r"2 samples are longer than the 32 tokens that org/m .*: c \(50 tokens\), b"
    ) as e:
        require_within({"a": 32, "b": 33, "c": 50}, tmp_path, "org/m")
    assert "--want max_length=32" in e.value.hint


def test_a_worker_trains_no_sample_that_is_longer_than_its_model(job_in, tiny_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    settings = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps({**settings, "max_position_embeddings": 8}))
    ended = train(job_in(tmp_path / "run", base_model=model, base_model_sha256=digest_model(model)))
    assert (ended.code, ended.error()["class"]) == (2, "InputError")
    assert "longer than the 8 tokens" in ended.error()["message"]
