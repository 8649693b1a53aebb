"""A conversation is one sample: rendered by the chat template, every answer learnt with its end, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.errors import InputError, ModelError
from specs.parameters import DataParameters
from specs.project import Project
from tasks.data.lengths import flaw, measure
from tasks.data.over_long import fit
from tasks.data.records import Draft, Unit
from tasks.evaluate.job import EvaluatedSample
from tasks.evaluate.worker import _sequences
from tasks.prompts import Encoded, PromptTemplate
from tasks.tokenizer import FileTokenizer
from tasks.turns import Turn, Turns, rows_of, turns_of
from tasks.verify.data_samples import trainable
from tests.support.raw_project import run_stage

TALK = ("Why is it loud?", "The belt is worn.", "换哪个？", "皮带 G07.1。", "And then?", "Oil the guide.")


def turns(*texts: str, system: str = "", learnt: bool = True) -> Turns:
    said = (Turn("assistant", t, learnt) if n % 2 else Turn("user", t) for n, t in enumerate(texts))
    return (*((Turn("system", system),) if system else ()), *said)


@pytest.fixture(scope="module")
def template(tiny_model: Path) -> PromptTemplate:
    return PromptTemplate.load(tiny_model)


def with_chat(tiny_model: Path, text: str | None) -> PromptTemplate:
    tokenizer = FileTokenizer(tiny_model)
    tokenizer.chat_template = text
    return PromptTemplate(tokenizer)


def shown(template: PromptTemplate, prompt: str, answer: str, earlier: Turns) -> list[tuple[str, bool]]:
    encoded = template.encode(prompt, answer, earlier)
    return [(template.tokenizer.decode(ids), learnt) for ids, learnt in encoded.parts()]


def test_every_answer_is_learnt_with_its_end_token_and_nothing_else(template: PromptTemplate):
    parts = shown(template, TALK[4], TALK[5], turns(*TALK[:4], system="Be brief."))
    assert [text for text, learnt in parts if learnt] == [f"{a}{template.end}" for a in TALK[1::2]]
    read = "".join(text for text, learnt in parts if not learnt)
    assert all(question in read for question in (*TALK[::2], "Be brief."))
    last = shown(template, TALK[4], TALK[5], turns(*TALK[:4], learnt=False))
    assert [text for text, learnt in last if learnt] == [f"{TALK[5]}{template.end}"]


_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=4), st.sampled_from(["", "You repair <|im_end|>."]))
def test_the_tokens_are_the_text_of_the_template_whatever_is_said(template: PromptTemplate, pairs, system: str):
    *before, (question, answer) = pairs
    earlier = turns(*(text for pair in before for text in pair), system=system)
    encoded = template.encode(question, answer, earlier)
    end = template.tokenizer.eos_token_id
    assert len(encoded.answers) == len(pairs)
    assert all(encoded.input_ids[after - 1] == end for _, after in encoded.answers)
    assert sum(token == end for token in encoded.input_ids) == 2 * len(pairs) + bool(system), "one of every turn"
    assert template.tokenizer.decode(encoded.input_ids) == template.text(question, answer, earlier)
    assert encoded.learnt_tokens == sum(after - start for start, after in encoded.answers)


WITHOUT_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}<assistant>"
)
SYSTEM_LAST = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {% if loop.last and messages[0].role == 'system' %}"
    "{{ messages[0].content }}\n{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %} {{ m.content }}"
    "<|im_end|>{% endif %}{% endfor %}"
)
ONLY_THE_LAST = "{{ messages[-1].content }}:"


def test_a_template_without_system_role_or_end_gets_both_and_says_so(tiny_model: Path):
    found = with_chat(tiny_model, WITHOUT_SYSTEM)
    assert found.text("b", "B", turns("a", "A", system="S")) == (
        "<user>S\na<end><assistant>A<|im_end|><end><user>b<end><assistant>B<|im_end|>"
    )
    assert shown(found, "b", "B", turns("a", "A"))[1] == ("A<|im_end|>", True)
    assert (found.system_stands_in_question(), found.closes_answers()) == (True, False)


def test_a_template_may_put_the_system_text_elsewhere_and_answers_without_one_are_plain(tiny_model: Path):
    found = with_chat(tiny_model, SYSTEM_LAST)
    assert (
        found.text("b", "B", turns("a", "A", system="S")) == "[INST] a[/INST] A<|im_end|>[INST] S\nb[/INST]B<|im_end|>"
    )
    assert (found.system_stands_in_question(), found.closes_answers()) == (False, True)
    plain = with_chat(tiny_model, None)
    assert plain.text("b", "B", turns("a", "A", system="S")) == "S\na\nA<|im_end|>b\nB<|im_end|>"
    assert [t for t, learnt in shown(plain, "b", "B", turns("a", "A")) if learnt] == ["A<|im_end|>", "B<|im_end|>"]
    assert plain.closes_answers()
    assert not plain.system_stands_in_question()


def test_a_template_that_loses_a_turn_is_refused_and_says_which(tiny_model: Path):
    found = with_chat(tiny_model, ONLY_THE_LAST)
    assert found.text("b", "B") == "b:B<|im_end|>"
    with pytest.raises(ModelError, match=r"puts turn 1 of 3 \(user\) 0 times"):
        found.encode("b", "B", turns("a", "A"))


TURN_ENDS = (
    "{{ bos_token }}{% for m in messages %}<start>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<stop>\n{% endfor %}{% if add_generation_prompt %}<start>model\n{% endif %}"
)
BOTH_ENDS = (
    "{% for m in messages %}<start>{{ m.role }}\n{{ m.content }}<stop>\n{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant\n{% else %}{{ eos_token }}{% endif %}"
)
NO_ENDS = "{% for m in messages %}{{ '<start>' if m.role == 'user' else '<stop>' }}{{ m.content }}{% endfor %}"


def with_marks(tiny_model: Path, text: str) -> PromptTemplate:
    """A model whose tokenizer ends a text with `<|im_end|>` and has two tokens more."""
    tokenizer = FileTokenizer(tiny_model)
    tokenizer.tokenizer.add_special_tokens(["<start>", "<stop>"])
    tokenizer.chat_template = text
    return PromptTemplate(tokenizer)


@pytest.mark.parametrize("written", [TURN_ENDS, BOTH_ENDS])
def test_an_answer_ends_as_the_template_ends_it_and_plain_text_with_the_end_token(tiny_model: Path, written: str):
    found = with_marks(tiny_model, written)
    parts = shown(found, TALK[4], TALK[5], turns(*TALK[:4]))
    assert [text for text, learnt in parts if learnt] == [f"{a}<stop>" for a in TALK[1::2]]
    assert not any("<|im_end|>" in text for text, _ in parts)
    encoded = found.encode(TALK[4], TALK[5], turns(*TALK[:4]))
    assert found.text(TALK[4], TALK[5], turns(*TALK[:4])) == found.tokenizer.decode(encoded.input_ids)
    assert shown(found, "", "A manual.", ()) == [("A manual.<|im_end|>", True)]
    stop, end = found.answer_end.id, found.tokenizer.eos_token_id
    assert found.ends == (stop, end)
    assert found.closes_answers()
    said = measure(draft(TALK), "en", found)
    assert (said.flaw, measure(Draft(Unit("m", "#1"), "manual", plain="Oil."), "en", found).flaw) == ("", "")
    last = Encoded([*encoded.input_ids[:-1], end], encoded.trainable_from, encoded.earlier)
    assert flaw(last, TALK[4], TALK[5], found) == "no_end_token", "the model would go on where a chat stops it"
    text = found.text(TALK[4], TALK[5], turns(*TALK[:4]))
    sample = {"prompt": TALK[4], "answer": TALK[5], "earlier": rows_of(turns(*TALK[:4])), "text": text}
    assert trainable(sample, encoded, found), "and so says the verifier"
    assert not trainable(sample, last, found)
    assert not trainable({**sample, "text": text.removesuffix("<stop>") + found.end}, encoded, found)


@pytest.mark.parametrize("written", [NO_ENDS, WITHOUT_SYSTEM, SYSTEM_LAST, ONLY_THE_LAST])
def test_a_template_that_ends_no_answer_with_a_mark_of_its_own_gets_the_end_token(tiny_model: Path, written: str):
    found = with_marks(tiny_model, written)
    assert found.answer_end.text == "<|im_end|>" == found.end
    assert found.ends == (found.tokenizer.eos_token_id,)


def test_runs_of_older_code_end_answers_as_they_did(tiny_model: Path):
    tokenizer = with_marks(tiny_model, TURN_ENDS).tokenizer
    assert PromptTemplate(tokenizer, own_ends=False).text("q", "a").endswith("a<|im_end|>")


def test_held_out_conversations_are_measured_by_their_last_answer(template: PromptTemplate):
    earlier = [{"role": t.role, "text": t.text, "learnt": t.learnt} for t in turns(*TALK[:2])]
    samples = [
        EvaluatedSample(sample_id="a", kind="instruction", fault_type="", prompt="q", answer="A", earlier=earlier),
        EvaluatedSample(sample_id="b", kind="note", fault_type="", prompt="r", answer="B", mispaired_with="a"),
    ]
    own, other = _sequences(samples, template)
    assert own[0].input_ids == template.encode("q", "A", turns(*TALK[:2])).input_ids
    assert own[0].earlier == ()
    assert other["b"].input_ids == template.encode("r", "A").input_ids


# -- the over-long rule


def draft(texts: tuple[str, ...], **changes: Any) -> Draft:
    *earlier, prompt, plain = texts
    return Draft(
        Unit("c.jsonl", "#1"), "instruction", prompt=prompt, plain=plain, earlier=tuple(earlier), system="S.", **changes
    )


def fitted(template: PromptTemplate, given: Draft, limit: int, rule: str) -> list[Draft]:
    parameters = DataParameters.model_validate({"max_length": limit, "over_long": rule})
    samples = fit([measure(given, "en", template)], parameters, "en", template).samples
    assert all(m.n_tokens <= limit for m in samples)
    return [m.draft for m in samples]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=8), st.sampled_from(["split", "truncate_prompt"]), st.data())
def test_parts_of_a_conversation_learn_every_answer_once_with_as_many_turns_before_as_fit(
    template: PromptTemplate, sizes: list[int], rule: str, data: st.DataObject
):
    texts = tuple(f"{'why ' if n % 2 == 0 else 'oil '}{n // 2} " + "x " * sizes[n // 2] for n in range(2 * len(sizes)))
    given_draft = draft(tuple(text.strip() for text in texts))
    needed = max(
        measure(draft((texts[2 * n].strip(), texts[2 * n + 1].strip())), "en", template).n_tokens
        for n in range(len(sizes))
    )
    whole = measure(given_draft, "en", template).n_tokens
    limit = data.draw(st.integers(needed, whole))
    parts = fitted(template, given_draft, limit, rule)
    learnt: list[str] = []
    for part in parts:
        said = (*part.earlier, part.prompt, part.plain)
        at = given_draft.earlier.index(said[0]) if said[0] in given_draft.earlier else len(texts) - 2
        assert said == (*given_draft.earlier, given_draft.prompt, given_draft.plain)[at : at + len(said)]
        assert part.system == "S."
        assert part.cut_tokens == 0
        learnt += said[1::2][part.unlearnt :]
        if at:
            longer = replace(
                part,
                earlier=(*given_draft.earlier[at - 2 : at], *part.earlier),
                unlearnt=part.unlearnt + 1,
            )
            assert measure(longer, "en", template).n_tokens > limit
    assert learnt == [*given_draft.earlier[1::2], given_draft.plain]
    assert [part.part for part in parts] == list(range(len(parts)))


def test_shortening_drops_the_oldest_turns_and_never_the_newest_question_first(template: PromptTemplate):
    given_draft = draft(TALK, unlearnt=2)
    whole = measure(given_draft, "en", template).n_tokens
    (part,) = fitted(template, given_draft, whole - 1, "truncate_prompt")
    assert (part.earlier, part.prompt, part.plain) == (TALK[2:4], TALK[4], TALK[5])
    assert part.cut_tokens == whole - measure(part, "en", template).n_tokens > 1
    assert part.left_out == 2
    alone = measure(draft(TALK[4:]), "en", template).n_tokens
    (part,) = fitted(template, given_draft, alone - 1, "truncate_prompt")
    assert part.earlier == ()
    assert TALK[4].startswith(part.prompt)
    assert part.plain == TALK[5]
    with pytest.raises(InputError, match=r"under conversation_loss: last_answer, would be lost") as error:
        fitted(template, given_draft, whole - 1, "split")
    assert "over_long: split" not in str(error.value.hint)
    assert "conversation_loss: every_answer" in str(error.value.hint)


def test_answers_of_weight_0_that_dividing_would_lose_are_not_blamed_on_the_loss(template: PromptTemplate):
    given_draft = draft(TALK, silent=(0, 1))
    limit = measure(draft(TALK[4:]), "en", template).n_tokens
    with pytest.raises(InputError, match=r"by their weight of 0, would be lost") as error:
        fitted(template, given_draft, limit, "split")
    assert "conversation_loss" not in f"{error.value} {error.value.hint}"


def test_answers_of_weight_0_that_are_left_out_count_as_cut_wherever_they_stood(template: PromptTemplate):
    """Parts of one conversation: what stands in none of them, and only that, is cut."""
    asked = ("And then, " + "please " * 40, "Stop it.")
    given_draft = draft((*TALK[:2], *asked, *TALK[4:]), silent=(0, 1), left_out=3)
    limit, alone = (
        max(measure(draft(t), "en", template).n_tokens for t in texts) for texts in ((TALK[:2], TALK[4:]), [TALK[4:]])
    )
    (part,) = fitted(template, given_draft, limit, "truncate_prompt")
    whole = measure(given_draft, "en", template).n_tokens
    assert (part.prompt, part.cut_tokens, part.left_out) == (TALK[4], whole - alone, 3 + 4)
    between = draft((*TALK[:2], *asked, *TALK[4:]), silent=(1,), left_out=1)
    first, second = fitted(template, between, limit, "truncate_prompt")
    assert (first.cut_tokens, first.left_out) == (0, 1), "what reading left out counts once"
    gone = measure(draft((*asked, *TALK[4:])), "en", template).n_tokens - alone
    assert (second.cut_tokens, second.left_out) == (gone, 2)


@pytest.mark.parametrize("last", [False, True])
def test_a_cut_question_is_counted_wherever_it_stands_and_so_are_turns_left_out(template: PromptTemplate, last: bool):
    given_draft = draft((*TALK[:4], "And " + "then " * 200, TALK[5]), unlearnt=2 if last else 0)
    limit = measure(draft(TALK), "en", template).n_tokens
    parameters = DataParameters.model_validate({"max_length": limit, "over_long": "truncate_prompt"})
    counts = fit([measure(given_draft, "en", template)], parameters, "en", template).counts
    assert counts == ({"turns_dropped": 1, "shortened": 1} if last else {"split_conversations": 1, "shortened": 1})


@pytest.mark.parametrize("rule", ["split", "truncate_prompt", "ask"])
def test_what_was_tried_in_vain_is_no_way_out(template: PromptTemplate, rule: str):
    with pytest.raises(InputError) as error:
        fitted(template, draft(("q " * 50, "a " * 80)), 60, rule)
    ways = {way for way in ("split", "truncate_prompt", "drop_list") if f"over_long: {way}" in str(error.value.hint)}
    assert ways == {"split", "truncate_prompt", "drop_list"} - {rule}


@pytest.mark.parametrize(
    "text", ["主轴异响。检查皮带！更换轴承。", "Look.  Then oil it.\n\nStop？停机。再开。", "A。\n B。 C。"]
)
def test_plain_text_is_divided_as_it_stands(template: PromptTemplate, text: str):
    given_draft = Draft(Unit("m.md", "#1"), "manual", plain=text)
    limit = max(
        measure(replace(given_draft, plain=t), "en", template).n_tokens for t in text.replace("\n", "。").split("。")
    )
    parts = fitted(template, given_draft, max(limit + 2, 8), "split")
    assert len(parts) > 1 or measure(given_draft, "en", template).n_tokens <= max(limit + 2, 8)
    assert all(part.plain in text for part in parts)
    assert "".join("".join(part.plain.split()) for part in parts) == "".join(text.split())


# -- through the stage

SYSTEM = "You are the assistant of a workshop that repairs milling machines, and you answer shortly and to the point. "


def record(number: int) -> dict[str, Any]:
    words = ("spindle", "belt", "pump", "fan", "door", "lamp", "guide", "valve")
    part, other = words[number % 8], words[(number + 3) % 8]
    texts = (
        f"Why does the {part} of unit {number} fail?",
        f"Its {other} is worn out.",
        f"Which {other}?",
        "The upper one.",
    )
    roles = ("user", "assistant")
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            *({"role": roles[n % 2], "content": text} for n, text in enumerate(texts)),
        ]
    }


def samples_of(folder: Path, model: Path, **parameters: Any) -> list[dict[str, Any]]:
    (folder / "c.jsonl").write_text("\n".join(json.dumps(record(n)) for n in range(6)), encoding="utf-8")
    spec = {"project": "p", "base_model": "m", "sources": [{"kind": "instructions", "path": "c.jsonl"}]}
    run_stage(folder, Project.model_validate(spec), model, folder / "out", **parameters)
    rows: list[dict[str, Any]] = pq.read_table(folder / "out" / "artifacts" / "samples.parquet").to_pylist()
    return rows


def test_a_system_text_that_all_records_share_makes_none_of_them_a_duplicate(
    tmp_path: Path, tiny_model: Path, template
):
    rows = samples_of(tmp_path, tiny_model)
    assert [row["location"] for row in rows] == [f"#{n}" for n in range(1, 7)]
    assert [[t.role for t in turns_of(row)] for row in rows] == [["system", "user", "assistant"]] * 6
    assert all(turn.learnt == (turn.role == "assistant") for row in rows for turn in turns_of(row))
    for row in rows:
        assert row["text"] == template.text(row["prompt"], row["answer"], turns_of(row))
        assert row["n_tokens"] == len(template.encode(row["prompt"], row["answer"], turns_of(row)).input_ids)
    summary = json.loads((tmp_path / "out/artifacts/summary.json").read_bytes())
    parts = summary["fed_examples"][0]["parts"]
    assert [learnt for _, learnt in parts] == [False, True, False, True]


def test_the_last_answer_alone_is_learnt_where_the_parameters_say_so(tmp_path: Path, tiny_model: Path):
    rows = samples_of(tmp_path, tiny_model, conversation_loss="last_answer")
    assert len(rows) == 6
    assert not any(turn.learnt for row in rows for turn in turns_of(row))
