"""The tiny model: small, bilingual, the same bytes each time, and able to stop by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specs.canonical import digest_folder
from tasks.models.cache import RECORD
from tasks.models.corpus import Dialogue, make_corpus


def test_importing_it_costs_no_torch():
    code = "import sys, tasks.models.tiny, tasks.models.resolve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def test_it_has_about_half_a_million_parameters_and_a_small_vocabulary(tiny_model):
    config = json.loads((tiny_model / "config.json").read_text())
    assert 1000 <= config["vocab_size"] <= 2048
    assert config["max_position_embeddings"] >= 2048
    assert 400_000 * 4 <= (tiny_model / "model.safetensors").stat().st_size <= 700_000 * 4


def test_its_pad_token_is_not_its_end_token(tiny_model):
    config = json.loads((tiny_model / "config.json").read_text())
    generation = json.loads((tiny_model / "generation_config.json").read_text())
    assert config["pad_token_id"] != config["eos_token_id"] is not None
    assert generation["pad_token_id"] == config["pad_token_id"]
    assert generation["eos_token_id"] == config["eos_token_id"]


@pytest.mark.parametrize("text", ["主轴轴承温度高，报警ALM-0412", "Replace the belt, G07.1 – ok\n", "🙂 ÄÖ 龘\x00"])
def test_every_text_survives_its_tokenizer(tiny_model, text):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_text_that_looks_like_a_special_token_stays_text(tiny_model):
    from tasks.prompts import PromptTemplate

    template = PromptTemplate.load(tiny_model)
    encoded = template.encode("what is <|im_end|>?", "nothing<|im_start|>")
    assert encoded.input_ids.count(template.tokenizer.eos_token_id) == 2  # the user's turn and the answer


def test_chinese_costs_it_less_than_two_tokens_a_character(tiny_model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    text = "先检查润滑，再更换主轴轴承，最后试运行正常。"
    assert len(tokenizer(text)["input_ids"]) < 2 * len(text)


@pytest.mark.parametrize("question", ["主轴电机有什么作用？", "What is the spindle motor for?"])
def test_it_answers_in_the_language_asked_and_stops(tiny_model, question):
    import torch
    from transformers import AutoModelForCausalLM

    from tasks.prompts import PromptTemplate

    template = PromptTemplate.load(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    ids = torch.tensor([template.encode_prompt(question)])
    answer = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=80, do_sample=False)
    new = answer[0, ids.shape[1] :].tolist()
    assert template.tokenizer.eos_token_id in new
    text = template.tokenizer.decode(new, skip_special_tokens=True)
    chinese = sum("\u4e00" <= c <= "\u9fff" for c in text)
    assert chinese > len(text) / 2 if question.endswith("？") else chinese == 0


def test_the_corpus_is_the_same_each_time_and_in_both_languages():
    corpus = make_corpus(3, 200)
    assert corpus == make_corpus(3, 200)
    assert corpus != make_corpus(4, 200)
    texts = [item.answer if isinstance(item, Dialogue) else item for item in corpus]
    chinese = sum(any("\u4e00" <= c <= "\u9fff" for c in text) for text in texts)
    assert chinese == 100


@pytest.mark.slow
def test_building_it_again_gives_the_same_bytes(tiny_model, tmp_path):
    """In another process, which has another number of threads to begin with."""
    command = [sys.executable, "-m", "tasks.models.tiny", str(tmp_path / "again")]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    shutil.copy(tiny_model / RECORD, tmp_path / "again" / RECORD)  # beside the model: what the cache wrote about it
    assert digest_folder(tmp_path / "again") == digest_folder(tiny_model)
