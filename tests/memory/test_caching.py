"""The caching allocator on timelines: what it promises whatever is allocated and freed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.memory.caching import DEFAULT, PAGES, SMALL, of_streams, reserved
from tasks.memory.timeline import Timeline

MIB = 2**20
REQUESTS = st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans(), st.sampled_from(["", "reduced"])), max_size=60)


def played(requests: list[tuple[int, bool, str]]) -> Timeline:
    """Every request is born; where it says so, the oldest that lives dies before."""
    timeline, alive = Timeline(), []
    for size, frees, stream in requests:
        if frees and alive:
            timeline.died(alive.pop(0))
        number = timeline.born(size)
        if stream:
            timeline.streams[number] = stream
        alive.append(number)
    return timeline


@settings(max_examples=40)
@given(REQUESTS)
def test_what_is_reserved_holds_what_lives_in_every_stream_at_once(requests: list[tuple[int, bool, str]]):
    timeline = played(requests)
    peaks = {name: max(places.values()) for name, places in of_streams(timeline, 512).items()}
    found = reserved(timeline)
    assert peaks.keys() == found.keys()
    for name, size in found.items():
        assert size >= peaks[name]
        assert size % PAGES[True] == 0


@settings(max_examples=40)
@given(REQUESTS)
def test_no_more_is_reserved_than_was_ever_asked_for(requests: list[tuple[int, bool, str]]):
    asked = sum(-(-size // 512) * 512 for size, _, _ in requests)
    assert sum(reserved(played(requests)).values()) <= asked + 4 * PAGES[False]


def test_a_smaller_request_in_a_freed_block_drives_a_large_one_to_new_memory():
    timeline = Timeline()
    large, other = timeline.born(512 * MIB), timeline.born(512 * MIB)
    timeline.died(large)
    timeline.born(256 * MIB)
    timeline.born(512 * MIB)
    assert other >= 0
    assert reserved(timeline)[DEFAULT] >= (512 + 512 + 512) * MIB


def test_what_one_stream_freed_no_other_takes():
    timeline = Timeline()
    timeline.died(timeline.born(100 * MIB))
    number = timeline.born(100 * MIB)
    timeline.streams[number] = "gathered"
    assert reserved(timeline) == {DEFAULT: 100 * MIB, "gathered": 100 * MIB}


def test_small_requests_have_memory_of_their_own():
    timeline = Timeline()
    timeline.died(timeline.born(40 * MIB))
    timeline.born(SMALL)
    assert reserved(timeline)[DEFAULT] == 40 * MIB + PAGES[True]
