"""A call that may be made twice, made again while whoever should answer it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Answer = TypeVar("Answer")


def persistently(call: Callable[[], Answer], passes: Callable[[Exception], bool], waits_s: Sequence[float]) -> Answer:
    """What the call answers; after an error that `passes`, it is made again, each time so many seconds later.

    Any other error is raised at once, and so is what the last try raises.
    """
    for wait_s in waits_s:
        try:
            return call()
        except Exception as error:  # which errors pass is for the caller to say
            if not passes(error):
                raise
        time.sleep(wait_s)
    return call()
