"""The split: whole components, every fault type trained, the newest where time decides."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.split import choose_held_out, choose_newest, held_out_target

ITEMS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "A", "B", "C"])), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(ITEMS, st.floats(0.05, 0.4), st.integers(0, 9))
def test_a_fault_type_is_never_only_held_out_and_the_share_is_kept(items, share, seed):
    component, types = np.asarray([c for c, _ in items]), [t for _, t in items]
    target = held_out_target(len(items), share, None)
    chosen = choose_held_out(component, types, [""] * len(items), target, seed)
    assert chosen == choose_held_out(component, types, [""] * len(items), target, seed)
    assert set(types) - {""} <= {t for c, t in items if c not in chosen}
    assert sum(c in chosen for c in component.tolist()) <= target


def test_fault_types_and_machines_are_held_out_in_proportion():
    count = 4000
    types = [("A", "B", "C", "D")[i % 4] for i in range(count)]
    machines = [("M1", "M2")[i // 4 % 2] for i in range(count)]
    chosen = choose_held_out(np.arange(count), types, machines, 400, 3)
    assert len(chosen) == 400
    held = [(types[i], machines[i]) for i in chosen]
    assert {held.count(stratum) for stratum in set(held)} <= {49, 50, 51}
    assert len(set(held)) == 8


@settings(max_examples=60, deadline=None)
@given(ITEMS, st.data())
def test_by_time_nothing_held_out_is_older_than_what_is_trained(items, data):
    component, types = np.asarray([c for c, _ in items]), [""] * len(items)
    times = data.draw(st.lists(st.sampled_from([np.nan, 1.0, 2.0, 3.0, 4.0]), min_size=len(items), max_size=len(items)))
    time = np.asarray(times)
    chosen = choose_newest(component, types, time, round(0.4 * len(items)))
    held = np.isin(component, list(chosen))
    assert not np.isnan(time[held]).any()
    if held.any():
        oldest = {c: np.where(np.isnan(time), -np.inf, time)[component == c].min() for c in set(component.tolist())}
        border = min(oldest[c] for c in chosen)
        too_large = max(1, round(0.4 * len(items)) // 4)
        for c in set(component.tolist()) - chosen:
            fits = (component == c).sum() <= min(too_large, round(0.4 * len(items)) - held.sum())
            assert not (oldest[c] > border and fits)


def test_the_cap_on_held_out_samples_holds():
    assert held_out_target(1_000_000, 0.1, 5_000) == 5_000
    assert held_out_target(1_000_000, 0.1, None) == 100_000
    assert held_out_target(50, 0.1, 5_000) == 5
