"""The stage through its worker process: same bytes as in this process, both kinds of trained weights, plain errors."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specs.canonical import digest_folder
from specs.criteria import judge
from specs.errors import InputError, ModelError
from specs.sources import GeneralText
from specs.stages import Quiet
from tasks.evaluate.general_text import draw_passages, require_enough, squeezed
from tasks.evaluate.stage import make_job, run
from tasks.evaluate.worker import evaluate
from tasks.interrupts import StopRequest
from tasks.models.corpus import make_corpus
from tasks.prompts import PromptTemplate
from tasks.verify.evaluate import metrics
from tests.support.stages import stage_context


def again(lab, evaluated, tmp_path, **changes):
    """The same inputs, another place to write to."""
    parameters = {**evaluated.context.parameters, **changes.pop("parameters", {})}
    inputs = {**evaluated.inputs, **changes.pop("inputs", {})}
    return stage_context("evaluate", tmp_path, lab.model, parameters, inputs, **changes)


def test_the_worker_process_writes_what_this_process_writes(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    context = again(lab, evaluated, tmp_path)
    result = run(context, Quiet())
    for name in ("eval_losses.parquet", "generations.jsonl"):
        assert (context.artifacts / name).read_bytes() == (evaluated.context.artifacts / name).read_bytes(), name
    assert result.notes == ["1 held-out samples are plain text: they count for losses only"]


def test_the_evaluated_weights_are_named_by_digest(lab):
    evaluated = lab.evaluated("en", "true")
    found = json.loads((evaluated.context.artifacts / "evaluated.json").read_bytes())
    assert found["adapter_sha256"] == digest_folder(evaluated.inputs["train"] / "artifacts" / "adapter")
    assert found["base_model_sha256"] == evaluated.context.base_model_sha256


def test_full_weights_are_evaluated_in_place_of_an_adapter(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    train = tmp_path / "train"
    shutil.copytree(lab.model, train / "artifacts" / "model")
    shutil.copyfile(evaluated.inputs["train"] / "artifacts" / "settings.json", train / "artifacts" / "settings.json")
    context = again(lab, evaluated, tmp_path, inputs={"train": train}, parameters={"generations": 1})
    evaluate(make_job(context)[0], Quiet(), StopRequest())
    rows = pq.read_table(context.artifacts / "eval_losses.parquet").to_pylist()
    assert all(r["loss_base"] == r["loss_adapter"] for r in rows), "the weights are the base model's own"
    assert json.loads((context.artifacts / "evaluated.json").read_bytes())["kind"] == "model"


def test_a_base_model_that_changed_is_refused(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    job, _ = make_job(again(lab, evaluated, tmp_path))
    other = job.model_copy(update={"base_model_sha256": "0" * 64})
    with pytest.raises(ModelError, match="not the base model that this run is about"):
        evaluate(other, Quiet(), StopRequest())


def test_a_stop_leaves_no_half_result(lab, tmp_path):
    from specs.errors import Stopped

    evaluated = lab.evaluated("en", "true")
    context = again(lab, evaluated, tmp_path)
    stop = StopRequest()
    stop.request("test")
    with pytest.raises(Stopped):
        evaluate(make_job(context)[0], Quiet(), stop)
    assert list(context.artifacts.iterdir()) == []


def test_no_held_out_samples_is_said_plainly(lab, tmp_path):
    evaluated = lab.evaluated("en", "true")
    rows = pq.read_table(evaluated.inputs["data"] / "artifacts" / "samples.parquet").to_pylist()
    (tmp_path / "data" / "artifacts").mkdir(parents=True)
    rows = [r for r in rows if r["split"] == "train"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "artifacts" / "samples.parquet")
    with pytest.raises(InputError, match="no held-out samples"):
        make_job(again(lab, evaluated, tmp_path, inputs={"data": tmp_path / "data"}))


def test_notes_are_in_the_language_of_the_project(lab):
    _, notes = make_job(lab.evaluated("zh", "true").context)
    assert notes == ["1 个留出样本是纯文本，只计入损失"]


SPRING = "春天来了，河水解冻，山上的雪慢慢融化，鸟儿飞回林间。"


def general(project, passages=12):
    """Prose that the model was pre-trained on; one paragraph is long, one stands twice, a file is GB18030."""
    paragraphs = [text for text in make_corpus(1, 400) if isinstance(text, str) and text.isascii()][:30]
    assert len(paragraphs) == 30
    paragraphs[4] = " ".join(paragraphs[4] for _ in range(40))
    (project / "general").mkdir(parents=True)
    (project / "general" / "a.txt").write_text("\n\n".join([*paragraphs, paragraphs[7], "short"]), encoding="utf-8")
    (project / "general" / "b.md").write_bytes(f"{SPRING * 3}\n\n{SPRING * 4}".encode("gb18030"))
    return {"path": "general", "passages": passages, "tokens": 160, "at_most": 0.2}


def test_passages_are_drawn_whole_by_the_seed_once_each_and_none_that_was_trained_on(lab, tmp_path):
    asked = GeneralText(**general(tmp_path, passages=200))
    template = PromptTemplate.load(lab.model)
    text = (tmp_path / "general" / "a.txt").read_text(encoding="utf-8")
    trained = [{"prompt": "", "answer": text.split("\n\n")[11].upper()}]
    drawn = draw_passages(tmp_path, asked, template, trained, seed=3)
    assert draw_passages(tmp_path, asked, template, trained, seed=3).passages == drawn.passages
    raw = squeezed(text) + squeezed((tmp_path / "general" / "b.md").read_text(encoding="gb18030"))
    for passage in drawn.passages:
        assert squeezed(passage.text) in raw
        assert 16 <= len(template.encode("", passage.text).input_ids) <= 160
        assert squeezed(trained[0]["answer"]) not in squeezed(passage.text)
    assert len({p.text for p in drawn.passages}) == len(drawn.passages)
    assert {p.source for p in drawn.passages} == {"general/a.txt", "general/b.md"}
    assert drawn.counts["trained"] >= 1
    assert drawn.counts["cut"] >= 1
    assert any("left out: their words stand in training samples" in note for note in drawn.notes("en"))
    with pytest.raises(InputError, match="passages can be used, 8 are needed"):
        draw_passages(tmp_path, asked, template, [{"prompt": "", "answer": text}], seed=3)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no such file"),
        ({"general/a.pdf": b"x"}, "1 files there end otherwise"),
        ({"general/a.txt": b"one\n\ntwo"}, "2 paragraphs, and 8 passages are needed"),
        ({"general/a.txt": b"\xff\xfe\x00"}, "a.txt"),
    ],
)
def test_general_text_that_cannot_serve_is_said_before_the_run(files, said, tmp_path):
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=said):
        require_enough(tmp_path, GeneralText(path="general"))


def test_forgetting_is_measured_on_general_text_and_blocks_above_its_bound(lab, tmp_path):
    """An adapter trained on eight answers alone has forgotten how other text goes on."""
    evaluated = lab.evaluated("en", "true")
    asked = general(tmp_path)
    context = again(lab, evaluated, tmp_path, parameters={"generations": 1}, general_text=asked)
    job, notes = make_job(context)
    assert "forgetting is measured on 12 passages of general text" in notes
    evaluate(job, Quiet(), StopRequest())
    found = metrics(context.out_dir, context.inputs, context.model_dump(mode="json"))
    assert found["general_text_wrong"].value == 0
    assert found["general_text_loss_change"].value is not None
    assert found["general_text_loss_change"].value > 0.2
    [verdict] = [v for v in judge(context.spec.criteria("evaluate"), found) if v.metric == "general_text_loss_change"]
    assert (verdict.passed, verdict.blocking, verdict.bound) == (False, True, 0.2)
    without = metrics(evaluated.context.out_dir, evaluated.inputs, evaluated.plain_context)
    assert without["general_text_wrong"].value == 0
    assert without["general_text_loss_change"].value is None
    (tmp_path / "general" / "a.txt").write_text("other text altogether", encoding="utf-8")
    changed = metrics(context.out_dir, context.inputs, context.model_dump(mode="json"))["general_text_wrong"]
    assert changed.value
    assert "is not in its file" in changed.reason
    path = context.artifacts / "general_losses.parquet"
    pq.write_table(pq.read_table(path).slice(0, 3), path)
    assert metrics(context.out_dir, context.inputs, context.model_dump(mode="json"))["general_text_wrong"].value >= 5
