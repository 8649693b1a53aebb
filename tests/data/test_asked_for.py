"""What one turn of a conversation asks for and the next one gives is masked, and the verifier would find it if not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.base import Language
from tasks.data.privacy import Masker
from tasks.data.records import Draft, Unit
from tasks.turns import rows_of
from tasks.verify.personal import in_samples, named_again


def masked(*turns: str, language: Language = "en", allowed: tuple[str, ...] = ()) -> list[str]:
    *earlier, prompt, plain = turns
    draft = Draft(Unit("c.jsonl", "#1"), "instruction", prompt=prompt, plain=plain, earlier=tuple(earlier))
    found = Masker(language, allowed).draft(draft)
    return [*found.earlier, found.prompt, found.plain]


def left(turns: list[str]) -> int:
    """What the verifier counts in a sample of these turns."""
    draft = Draft(Unit("c.jsonl", "#1"), "instruction", earlier=tuple(turns[:-2]))
    said = {"prompt": turns[-2], "answer": turns[-1], "earlier": rows_of(draft.turns()), "kind": "instruction"}
    columns = dict.fromkeys(("device_model", "phenomenon", "steps", "repair"), "")
    return in_samples([{**columns, **said, "text": "<end>\n<turn>".join(turns)}], ())


GIVEN = {
    ("What is the phone number of the service?", "8765 4321"): "[PHONE]",
    ("And again the phone:", "It is 87654321."): "It is [PHONE].",
    ("服务电话是多少？", "是 8765４321"): "是 [PHONE]",
    ("电话：", "87654321"): "[PHONE]",
    ("the WeChat account is:", "zhang_wei88"): "[ACCOUNT]",
    ("微信：", "zhang_wei88"): "[ACCOUNT]",
    ("reported by", "John Doe"): "[NAME]",
    ("Technician:", "Peter Miller, since May"): "[NAME], since May",
    ("Who repaired it?", "It was Jane Miller."): "It was [NAME].",
    ("维修员：", "李明 已更换"): "[NAME] 已更换",
    ("谁修的？", "王建国。"): "[NAME]。",
    **(
        LATER := {
            (
                "What is the phone number of the service?",
                "As far as I know you reach them at 87654321, or by mail.",
            ): "As far as I know you reach them at [PHONE], or by mail.",
            ("服务电话是多少？", "白天打 87654321，晚上打87654322。"): "白天打 [PHONE]，晚上打[PHONE]。",
            (
                "And the phone number?",
                "Part 7654321 is on order; for questions dial 8765 4321.",
            ): "Part 7654321 is on order; for questions dial [PHONE].",
            ("微信？", "你加我 zhang_wei88 就行"): "你加我 [ACCOUNT] 就行",
            ("QQ号是多少", "他的号是 12345678。"): "他的号是 [ACCOUNT]。",
            ("Who repaired it?", "I think John Doe did it on Monday."): "I think [NAME] did it on Monday.",
            (
                "Who fixed the pump?",
                "The pump was fixed on Friday, that was Jane Miller.",
            ): "The pump was fixed on Friday, that was [NAME].",
            ("谁修的？", "昨天是李明处理的"): "昨天是[NAME]处理的",
            ("谁修的？", "好像是王建国。"): "好像是[NAME]。",
        }
    ),
}
BEYOND_DOUBT = [
    ("What is the phone number of the service?", "8765 4321"),
    ("电话：", "87654321"),
    ("微信：", "zhang_wei88"),
    ("reported by", "John Doe"),
    ("维修员：", "李明"),
    *(turns for turns in LATER if "Part" not in turns[1] and "zhang" not in turns[1] and "QQ" not in turns[0]),
]
NEVER = [
    ("Which part number do I order by phone?", "7654321"),
    ("How many pulses?", "12345678"),
    ("Does the operator reset it?", "Press Reset twice"),
    ("What should the operator do?", "Tighten the belt."),
    ("Technician:", "Tighten it"),
    ("Who checks it?", "Nobody"),
    ("Who makes the valve?", "Allen Bradley"),
    ("这个零件叫什么", "张紧轮"),
    ("谁负责？", "白班"),
    ("维修员：", "更换轴承"),
    ("料号是多少？电话里说的", "87654321"),
    ("Is there a phone?", "Yes, beside order 7654321, and the counter stands at 12345678."),
    ("What does the phone show?", "It shows 12345678 pulses and model A06B-6114-H103."),
    ("电话里怎么说？", "计数器为12345678，参数 1234567 要改"),
    ("Who makes it?", "It is made by Paul Mueller Company in series 7654321."),
    ("Who checks it?", "Will Tighten the screw; Mark Position one."),
    ("谁负责？", "是高压油泵，由程序控制，问题是主轴"),
    ("微信？", "please contact the service-desk"),
]


@pytest.mark.parametrize("turns", GIVEN)
def test_what_a_turn_asks_for_is_masked_in_the_next(turns: tuple[str, str]):
    assert masked(*turns) == [turns[0], GIVEN[turns]]
    assert masked("Hello?", "Hello.", *turns) == ["Hello?", "Hello.", turns[0], GIVEN[turns]]


@pytest.mark.parametrize("turns", NEVER)
def test_codes_and_other_answers_stay_as_they_are(turns: tuple[str, str]):
    assert masked(*turns) == [*turns]
    assert left([*turns]) == 0


@pytest.mark.parametrize("turns", BEYOND_DOUBT)
def test_the_verifier_counts_what_was_not_masked_in_the_next_turn(turns: tuple[str, str]):
    assert left(["Hello?", "Hello.", *turns]) == max(1, GIVEN.get(turns, "").count("["))


@given(st.lists(st.sampled_from([*GIVEN, *NEVER, *BEYOND_DOUBT]), min_size=1, max_size=4))
def test_the_verifier_finds_nothing_in_what_was_masked(pairs: list[tuple[str, str]]):
    assert left(masked(*(text for pair in pairs for text in pair))) == 0


def test_a_name_is_masked_in_every_turn_once_a_turn_tells_that_it_is_one():
    told = ("Mr. Smith called.", "Hello.", "Did Smith call?", "Smith did. The smith's hammer did not.")
    found = masked(*told)
    assert found == [
        "Mr. [NAME] called.",
        "Hello.",
        "Did [NAME] call?",
        "[NAME] did. The smith's hammer did not.",
    ]
    assert named_again(told, [told[2]], ()) == ["Smith"]
    assert named_again(told, found, ()) == named_again(told, [told[2]], ["smith"]) == []
    assert masked("维修员：", "李明", "李明在吗", "在")[2] == "[NAME]在吗"


def test_what_the_project_allows_stays():
    allowed = ("8765 4321", "John Doe")
    turns = ("The phone number?", "8765 4321", "reported by", "John Doe")
    assert masked(*turns, allowed=allowed) == [*turns]
