"""A training worker whose feed gives out before the plan does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from tasks.data.batch_plan import PlanRow
from tasks.prompts import PromptTemplate
from tasks.training import worker
from tasks.training.feed import Feed, Step
from tasks.training.session import Session


class ShortFeed(Feed):
    """Ends two steps early."""

    def __iter__(self) -> Iterator[Step]:
        yield from list(super().__iter__())[:-2]


class ShortSession(Session):
    """A session with this feed in place of the real one."""

    def _feed(self, rows: Sequence[PlanRow], template: PromptTemplate) -> Feed:
        real = super()._feed(rows, template)
        return ShortFeed(real.steps, real.samples, real.pad_id, real.start, real.rank)


def main() -> int:
    """The program."""
    return worker.main(session_type=ShortSession)


if __name__ == "__main__":
    sys.exit(main())
