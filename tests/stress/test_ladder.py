"""Promises of the out-of-memory ladder, for machines of any size: what it takes runs, and is no more than needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from specs.parameters import TrainingConfiguration
from specs.project import Project
from tasks.stress.ladder import PROBE_TOKENS, TAKES, Rules, changes, climb, micro_batches

STATE = {"adamw": 8, "adamw_fused": 8, "adamw_8bit": 2, "paged_adamw_8bit": 0}


def need(training: TrainingConfiguration, longest: int) -> float:
    """Memory of a machine whose account grows with everything that it should grow with."""
    per_token = 1.0 if training.activation_checkpointing else 4.0
    waste = 1.0 if training.allocator != "default" else 1.05
    return (400 + 40 * STATE[training.optimizer] + training.micro_batch * longest * per_token) * waste


@dataclass
class Machine:
    """Has so much memory, and remembers what was tried."""

    memory: float
    longest: int
    limit: float = 0.9
    tried: list[tuple[str, TrainingConfiguration, int | None, str]] = field(default_factory=list)

    def attempt(self, rung: str, training: TrainingConfiguration, longest: int | None = None) -> str:
        needed = need(training, min(self.longest, longest or self.longest))
        outcome = "out_of_memory" if needed > self.memory else "runs"
        if outcome == "runs" and needed > self.limit * self.memory:
            outcome = "above_limit"
        self.tried.append((rung, training, longest, outcome))
        return outcome

    def note(self, rung: str, outcome: str, why: str, training: TrainingConfiguration) -> None:
        assert why
        self.tried.append((rung, training, None, outcome))

    def name_processes(self) -> None:
        self.tried.append(("processes", TrainingConfiguration(), None, "named"))


def spec_with(**stages) -> Project:
    settings = {"project": "p", "base_model": "tiny", "sources": [{"kind": "notes", "path": "n.md"}]}
    return Project.model_validate({**settings, "stages": {"stress_test": stages} if stages else {}})


def rules(machine: Machine, *, gpu: bool = True, **stages) -> Rules:
    return Rules(spec_with(**stages), gpu=gpu, expandable=True, longest=machine.longest)


STARTS = st.builds(
    TrainingConfiguration,
    micro_batch=st.sampled_from([1, 2, 3, 4, 6, 8]),
    gradient_accumulation=st.integers(1, 6),
    ranks=st.just(1),
    activation_checkpointing=st.booleans(),
    optimizer=st.sampled_from(["adamw", "adamw_fused", "adamw_8bit", "paged_adamw_8bit"]),
    max_length=st.just(4096),
)


@given(start=STARTS, memory=st.floats(200, 60_000), longest=st.integers(16, 4096), gpu=st.booleans())
def test_what_the_ladder_takes_runs_and_keeps_the_samples_of_a_step(start, memory, longest, gpu):
    machine = Machine(memory, longest)
    found = climb(start, rules(machine, gpu=gpu), machine)
    if found.training is None:
        return
    assert need(found.training, longest) <= memory
    assert found.training.effective_batch == start.effective_batch
    assert changes(start, found.training).keys() <= set(TAKES)
    assert (found.training == start) == (need(start, longest) <= memory)


@given(start=STARTS, memory=st.floats(200, 60_000), longest=st.integers(16, 4096))
def test_nothing_is_given_up_while_something_that_may_be_taken_runs(start, memory, longest):
    machine = Machine(memory, longest)
    found = climb(start, rules(machine), machine)
    least = start.model_copy(
        update={
            "micro_batch": 1,
            "gradient_accumulation": start.effective_batch,
            "activation_checkpointing": True,
            "optimizer": "paged_adamw_8bit",
            "allocator": "expandable_segments",
        }
    )
    assert (found.training is not None) == (need(least, longest) <= memory or need(start, longest) <= memory)
    if found.training is None:
        assert found.possible == (longest <= PROBE_TOKENS or need(least, PROBE_TOKENS) <= memory)


@given(start=STARTS, memory=st.floats(200, 60_000), longest=st.integers(16, 4096))
def test_of_the_micro_batches_at_a_level_it_takes_the_largest_within_the_limit(start, memory, longest):
    machine = Machine(memory, longest)
    found = climb(start, rules(machine), machine)
    taken = found.training
    if taken is None or taken == start or need(taken, longest) > 0.9 * memory:
        return
    for micro in micro_batches(start):
        other = taken.model_copy(update={"micro_batch": micro, "gradient_accumulation": start.effective_batch // micro})
        if micro > taken.micro_batch and other != start.model_copy(update={"allocator": taken.allocator}):
            assert need(other, longest) > 0.9 * memory


@given(start=STARTS, memory=st.floats(200, 60_000), longest=st.integers(16, 4096))
def test_no_configuration_is_run_twice_and_every_run_is_cheaper_than_the_approved_one(start, memory, longest):
    machine = Machine(memory, longest)
    climb(start, rules(machine), machine)
    ran = [(t, longest) for _, t, longest, outcome in machine.tried if outcome not in ("named", "skipped")]
    assert len({(t.model_dump_json(), length) for t, length in ran}) == len(ran)
    assert all(need(t, machine.longest) <= need(start, machine.longest) for t, _ in ran)


def test_the_free_checks_come_first_then_the_probe_then_up_from_one():
    machine = Machine(memory=2600, longest=1024)
    start = TrainingConfiguration(micro_batch=8, gradient_accumulation=1, optimizer="adamw", max_length=1024)
    found = climb(start, rules(machine), machine)
    names = [(rung, t.micro_batch, outcome) for rung, t, _, outcome in machine.tried]
    assert names == [
        ("approved", 8, "out_of_memory"),
        ("processes", 1, "named"),
        ("allocator", 8, "out_of_memory"),
        ("probe", 1, "out_of_memory"),
        ("probe", 1, "runs"),
        ("activation_checkpointing", 1, "runs"),
        ("micro_batch", 2, "out_of_memory"),
    ]
    assert found.training == machine.tried[5][1]


def test_a_spec_that_forbids_a_rung_is_obeyed_and_said():
    machine = Machine(memory=2600, longest=1024)
    start = TrainingConfiguration(micro_batch=8, gradient_accumulation=1, optimizer="adamw", max_length=1024)
    found = climb(start, rules(machine, activation_checkpointing=False, optimizer="adamw"), machine)
    assert found.training is None
    skipped = {rung for rung, _, _, outcome in machine.tried if outcome == "skipped"}
    assert {"activation_checkpointing", "optimizer"} <= skipped


def test_a_rung_that_fails_for_another_reason_than_memory_is_not_taken():
    class Broken(Machine):
        def attempt(self, rung: str, training: TrainingConfiguration, longest: int | None = None) -> str:
            outcome = super().attempt(rung, training, longest)
            return "failed" if training.optimizer != "adamw" else outcome

    machine = Broken(memory=1500, longest=1024)
    start = TrainingConfiguration(micro_batch=8, gradient_accumulation=1, optimizer="adamw", max_length=1024)
    assert climb(start, rules(machine), machine).training is None


def test_a_lower_bound_on_the_micro_batch_is_kept():
    machine = Machine(memory=9000, longest=1024)
    start = TrainingConfiguration(micro_batch=8, gradient_accumulation=1, optimizer="adamw", max_length=1024)
    assert climb(start, rules(machine, micro_batch={"min": 4}), machine).training.micro_batch >= 4
