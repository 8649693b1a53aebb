"""What counts as a right answer: its reference does, generic, unrelated and list-everything answers do not."""

from __future__ import annotations

import pytest

from tasks.verify.evaluate_answers import MARGIN_NEEDED, RECALL_NEEDED, References, content_units, coverage
from tests.evaluate.repair_examples import faults, references

LANGUAGES = ("en", "zh")
GENERIC = {
    "en": (
        "Check the cables and connectors, then replace the defective part and test the machine.",
        "First check the sensor, measure the voltage, read the alarm. Then clean, tighten, grease, replace.",
        "I am sorry to hear that. Please contact the manufacturer of the machine.",
        "",
    ),
    "zh": (
        "检查电缆和接头，更换损坏的零件并试机。",
        "先检查传感器，测量电压，查看报警，再清洗、紧固、加油，更换滤网。",
        "很抱歉，请联系机床厂家。",
        "",
    ),
}


@pytest.fixture(params=LANGUAGES)
def language(request) -> str:
    """Each language."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def known(language) -> list[tuple[str, str]]:
    """References of the language."""
    return references(language)


def test_the_reference_itself_is_right(known):
    judge = References(known)
    assert all(judge.right(kind, text, text) for kind, text in known)


def test_a_reference_cut_by_the_token_limit_is_mostly_right(known):
    judge = References(known)
    right = [judge.right(kind, text, text[: int(len(text) * 0.65)]) for kind, text in known]
    assert sum(right) / len(right) >= 0.9


def test_another_wording_of_the_same_content_is_right():
    judge = References(references("en"))
    fault = faults("en")[0]
    reference = f"Checks: {'; '.join(fault.steps)}. Repair: {fault.repair}."
    said = "Chillers must be cleaned: their filters clog. REPLACE the grease of front bearings, the nozzle mists oil."
    assert judge.right(fault.code, reference, said)


def test_the_answer_of_another_fault_type_is_wrong(known):
    judge = References(known)
    others = [(kind, text, other) for kind, text in known for code, other in known if code != kind]
    assert not any(judge.right(*case) for case in others)
    recalls = [judge.recall(content_units(text), content_units(other)) for _, text, other in others]
    assert max(recalls) < RECALL_NEEDED


def test_generic_answers_are_wrong(language, known):
    judge = References(known)
    assert not any(judge.right(kind, text, answer) for kind, text in known for answer in GENERIC[language])


def test_listing_every_repair_there_is_is_wrong(known):
    judge = References(known)
    everything = " ".join(text for _, text in known)
    assert judge.recall(content_units(known[0][1]), content_units(everything)) == pytest.approx(1)
    assert judge.others(known[0][0], content_units(everything)) > 1 - MARGIN_NEEDED
    assert not any(judge.right(kind, text, everything) for kind, text in known)


def test_saying_the_question_back_is_wrong(language, known):
    judge = References(known)
    problems = {fault.code: " ".join(fault.problems) for fault in faults(language)}
    assert not any(judge.right(kind, text, problems[kind]) for kind, text in known)


def test_a_right_code_or_number_weighs_more_than_a_common_word():
    judge = References([("A", "replace relay K17"), ("B", "replace fuse F03"), ("C", "replace belt")])
    reference = content_units("replace relay K17")
    assert judge.recall(reference, {"k17"}) > judge.recall(reference, content_units("replace"))


def test_content_units_of_both_languages():
    assert content_units("Replaced the bearings; set SP9001 to 0.02 mm") == {
        "replac", "bear", "set", "sp9001", "0.02", "mm",
    }  # fmt: skip
    chinese = {"更换", "换轴", "轴承", "间隙", "隙调", "0.02", "毫米"}
    assert content_units("更换轴承，间隙调到０．０２毫米") == chinese
    assert content_units("的了在") == set()


def test_coverage_counts_a_type_once_and_over_those_that_could_be_asked():
    judge = References([("A", "replace relay"), ("B", "clean nozzle"), ("C", "tighten belt")])
    answers = [("A", "replace relay", "nothing"), ("A", "replace relay", "replace relay"), ("B", "clean nozzle", "?")]
    share, right = coverage(judge, answers, asked_types=3)
    assert share == pytest.approx(1 / 3)
    assert right == {"A": True, "B": False}
