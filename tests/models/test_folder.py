"""A model folder is used only when it is whole; what is missing is said with a way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specs.errors import ModelError
from specs.project import Hub
from specs.stages import Quiet
from tasks.models.folder import digest_model, licence_of
from tasks.models.resolve import resolve_base_model


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model inside a project, at `base`."""
    shutil.copytree(tiny_model, tmp_path / "base")
    return tmp_path / "base"


def refusal(folder: Path) -> ModelError:
    """What the resolver says about the folder."""
    with pytest.raises(ModelError) as caught:
        resolve_base_model("base", folder.parent, Hub(), Quiet())
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value


def test_a_whole_folder_is_resolved_relative_to_the_project(folder):
    model = resolve_base_model("base", folder.parent, Hub(), Quiet())
    assert model.folder == folder
    assert (model.source, model.revision) == ("base", "local")
    assert model.sha256 == digest_model(folder)


def test_an_absolute_folder_is_resolved_from_anywhere(folder, tmp_path):
    assert resolve_base_model(str(folder), tmp_path / "elsewhere", Hub(), Quiet()).folder == folder


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refusal(folder).message


def test_pickle_weights_are_refused_with_the_way_to_convert_them(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    error = refusal(folder)
    assert "pickle" in error.message
    assert "save_pretrained" in error.hint


def test_gguf_weights_are_refused_with_the_way_to_convert_them(folder):
    (folder / "model.safetensors").rename(folder / "model.gguf")
    error = refusal(folder)
    assert "GGUF" in error.message
    assert "dequantize=True" in error.hint


def test_cut_weights_are_refused_before_anything_loads_them(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "header says" in refusal(folder).message


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 200, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_what_is_no_safetensors_file_is_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert "is not a safetensors file" in refusal(folder).message


def test_a_git_lfs_pointer_is_named_as_such(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    error = refusal(folder)
    assert "Git LFS pointer" in error.message
    assert "git lfs pull" in error.hint


def test_a_missing_shard_is_named(folder):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "1 of 2 weight files are missing, first model-00002-of-00002.safetensors" in refusal(folder).message


def test_a_folder_without_a_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer" in refusal(folder).message


def test_a_folder_without_a_configuration_is_refused(folder):
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(folder).message


def test_an_adapter_is_not_taken_for_a_base_model(folder):
    (folder / "config.json").rename(folder / "adapter_config.json")
    assert "is an adapter" in refusal(folder).message


@pytest.mark.parametrize(("content", "said"), [("{", "cannot be read"), ("[]", "JSON object"), ("{}", "model_type")])
def test_a_broken_configuration_is_refused(folder, content, said):
    (folder / "config.json").write_text(content)
    assert said in refusal(folder).message


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match="there is no folder"):
        resolve_base_model("./nothing", tmp_path, Hub(), Quiet())


def test_the_digest_is_of_what_the_model_says_and_of_nothing_else(folder):
    before = digest_model(folder)
    (folder / "README.md").write_text("hello")
    assert digest_model(folder) == before
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    assert digest_model(folder) != before


def test_the_licence_is_what_the_model_card_names(folder):
    assert licence_of(folder) == "unknown"
    (folder / "LICENSE").write_text("words")
    assert licence_of(folder) == "see LICENSE"
    (folder / "README.md").write_text("---\ntags: [a]\nlicense: apache-2.0\n---\n# Model\nlicense: other\n")
    assert licence_of(folder) == "apache-2.0"
