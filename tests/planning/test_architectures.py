"""A configuration that no model can have is refused with every number that is wrong; all real ones pass."""

from __future__ import annotations

from typing import Any

import pytest

from specs.errors import ModelError
from specs.hardware import models
from tasks.planning.architectures import sound
from tests.planning.conftest import SMALL


def test_every_model_of_the_catalog_is_sound():
    assert all(sound(model.architecture, model.id) == model.architecture for model in models())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"vocab_size": 1}, "from 2 to"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"num_key_value_heads": 3}, "3 key heads do not divide 8 heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "no head_dim"),
        ({"max_position_embeddings": -5}, "max_position_embeddings is -5"),
    ],
)
def test_a_number_that_no_model_has_is_named(changed: dict[str, Any], said: str):
    with pytest.raises(ModelError, match=r"odd\.json is the configuration of no model") as raised:
        sound(SMALL | changed, "odd.json")
    assert said in raised.value.message


def test_all_wrong_numbers_are_said_at_once():
    with pytest.raises(ModelError) as raised:
        sound(SMALL | {"hidden_size": 0, "vocab_size": 0, "num_key_value_heads": 0}, "odd.json")
    assert raised.value.message.count(";") == 2


def test_numbers_that_differ_from_layer_to_layer_and_missing_ones_are_left_to_the_model_code():
    assert sound(SMALL | {"intermediate_size": [320, 640], "num_key_value_heads": None, "head_dim": 24}, "m")
    assert sound({"model_type": "llama"}, "m")
