"""CUDA's caching allocator on a timeline: what it reserves, from what is allocated and freed. Pure.

Memory is reserved and never given back while there is room. Every stream has pools of its own, for small and for large
requests: what one stream freed, another cannot take. A request takes the smallest free block that holds it and leaves
the rest; neighbours that are free become one block. With expandable segments a pool is one range that grows at its end.
Sizes are those of c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from tasks.memory.timeline import Place, Timeline

SMALL = 2**20
"""Requests up to this many bytes come from small pools."""
PAGES = {True: 2 * 2**20, False: 20 * 2**20}
"""By which a pool grows: of small requests, of large ones."""
ROUNDED = 512


class Pool:
    """One range of addresses that grows at its end."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.reserved = 0
        self._free: list[tuple[int, int]] = []
        """(size, address) of every free block, in order."""
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, size: int) -> int:
        """The address of a block of `size` bytes."""
        index = bisect_left(self._free, (size, 0))
        if index == len(self._free):
            return self._grown(size)
        found, address = self._free[index]
        self._forget(found, address)
        if found > size:
            self._add(found - size, address + size)
        return address

    def give(self, size: int, address: int) -> None:
        """A block is free again."""
        before, after = self._ends.get(address), self._starts.get(address + size)
        if before is not None:
            self._forget(address - before, before)
            size, address = size + address - before, before
        if after is not None:
            end = address + size
            self._forget(after, end)
            size += after
        self._add(size, address)

    def _grown(self, size: int) -> int:
        last = self._ends.get(self.reserved)
        address = self.reserved if last is None else last
        if last is not None:
            self._forget(self.reserved - last, last)
        self.reserved += -(-(address + size - self.reserved) // self.page) * self.page
        if self.reserved > address + size:
            self._add(self.reserved - address - size, address + size)
        return address

    def _add(self, size: int, address: int) -> None:
        insort(self._free, (size, address))
        self._starts[address] = size
        self._ends[address + size] = address

    def _forget(self, size: int, address: int) -> None:
        del self._free[bisect_left(self._free, (size, address))]
        del self._starts[address]
        del self._ends[address + size]


def reserved(timeline: Timeline) -> dict[str, int]:
    """Bytes reserved at the end of a timeline, by stream."""
    pools: dict[tuple[str, bool], Pool] = {}
    where: dict[int, tuple[Pool, int, int]] = {}
    for event in timeline.events:
        if isinstance(event, Place):
            continue
        if event < 0:
            if ~event in where:
                pool, size, address = where.pop(~event)
                pool.give(size, address)
            continue
        size = max(ROUNDED, -(-timeline.sizes[event] // ROUNDED) * ROUNDED)
        small = size <= SMALL
        key = (timeline.streams.get(event, DEFAULT), small)
        pool = pools.setdefault(key, Pool(PAGES[small]))
        where[event] = (pool, size, pool.take(size))
    found: dict[str, int] = {}
    for (stream, _), pool in pools.items():
        found[stream] = found.get(stream, 0) + pool.reserved
    return found


DEFAULT = "default"
"""The stream that computes."""


def of_streams(timeline: Timeline, rounding: int) -> dict[str, dict[Place, int]]:
    """The peak of every place, by stream."""
    result: dict[str, dict[Place, int]] = {}
    now: dict[str, int] = {}
    place = Place("build", "model")
    for event in timeline.events:
        if isinstance(event, Place):
            place = event
            changed: Iterable[str] = list(now)
        else:
            number, sign = (event, 1) if event >= 0 else (~event, -1)
            stream = timeline.streams.get(number, DEFAULT)
            now[stream] = now.get(stream, 0) + -(-timeline.sizes[number] // rounding) * rounding * sign
            changed = (stream,)
        for stream in changed:
            places = result.setdefault(stream, {})
            places[place] = max(places.get(place, 0), now[stream])
    return result
