"""The tracing process: `python -m tasks.memory.estimate_program job.json`. Torch is read only here."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.errors import GatewrightError, WorkerError
from tasks.worker_side import Channel, work

if TYPE_CHECKING:
    from tasks.interrupts import StopRequest
    from tasks.memory.settings import TraceSettings


def body(job_file: Path, channel: Channel, stop: StopRequest) -> None:
    """Answer one job: `{"settings": ..., "coefficients": bool}`; the result has `account` and `coefficients`."""
    job = json.loads(job_file.read_bytes())
    channel.result(**answer(job["settings"], bool(job["coefficients"])))


def answer(settings: dict[str, Any], want_coefficients: bool) -> dict[str, Any]:
    """The account, or the coefficients where they are asked for: of a step of one micro batch, and of several."""
    quiet_libraries()
    from tasks.memory.fit import account, coefficients_of_both
    from tasks.memory.settings import TraceSettings

    wanted = TraceSettings.model_validate(settings)
    with told(wanted, "traced"):
        if want_coefficients:
            both = [found.model_dump(mode="json") for found in coefficients_of_both(wanted)]
            return {"account": None, "coefficients": both}
        return {"account": account(wanted).model_dump(mode="json"), "coefficients": None}


def quiet_libraries() -> None:
    """Before torch and transformers are imported: what they warn of is not for the person who plans."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")


def without_bitsandbytes() -> None:
    """In a process that only traces: peft would import it, and half of torch's compiler with it. Packed layers and
    8-bit states are modelled here, and no trace runs its code."""
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]


@contextmanager
def told(wanted: TraceSettings, done: str) -> Iterator[None]:
    """What torch says of a model that it cannot run is an error for the person: it cannot be `done`."""
    try:
        yield
    except GatewrightError:
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        kind = wanted.architecture.get("model_type")
        raise WorkerError(
            f"the memory of a {kind} model cannot be {done}: {type(error).__name__}: {first[:300]}",
            "the stress test measures it; report this configuration",
        ) from error


def main() -> int:
    """The program."""
    return work(body)


if __name__ == "__main__":
    sys.exit(main())
