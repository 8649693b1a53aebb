"""A stage in a process of its own, whose workers start in a tenth of a second: forked, with all imported."""

from __future__ import annotations

import json
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from specs.errors import GatewrightError
from specs.stages import Quiet, StageContext
from tasks.interrupts import STOP
from tests.support.forked import _CONTEXT, TIMEOUT_S


class RunningStage:
    """A stage at work. `said` is its log of what it says; `outcome` the document it leaves when it ends.

    With `stop_after` it is asked to stop when its workers have trained so many steps.
    """

    def __init__(self, context: StageContext, stop_after: int = 0) -> None:
        self.said = context.project_dir / "said.txt"
        self._outcome = context.project_dir / "outcome.json"
        self._outcome.unlink(missing_ok=True)
        arguments = (context.model_dump_json(), str(self.said), str(self._outcome), stop_after)
        self.process: ForkServerProcess = _CONTEXT.Process(target=_run, args=arguments)
        self.process.start()

    def kill(self) -> None:
        """As the system does; its workers see that their parent is gone, and end."""
        self.process.kill()
        self.process.join(TIMEOUT_S)

    def wait(self) -> dict[str, Any]:
        """`notes`, or `class`, `message` and `hint` of the error."""
        self.process.join(TIMEOUT_S)
        assert self._outcome.is_file(), f"the stage left nothing, exit code {self.process.exitcode}"
        found: dict[str, Any] = json.loads(self._outcome.read_text("utf-8"))
        return found


def run_stage(context: StageContext, stop_after: int = 0) -> dict[str, Any]:
    """Run a stage to its end."""
    return RunningStage(context, stop_after).wait()


class _Said(Quiet):
    def __init__(self, path: str, stop_after: int) -> None:
        self.path, self.steps_left = path, stop_after

    def say(self, text: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def advance(self, units: int = 1, note: str = "") -> None:
        if "loss" in note:
            self.steps_left -= 1
            if self.steps_left == 0:
                STOP.request("SIGTERM")


def _run(context_json: str, said: str, outcome: str, stop_after: int) -> None:
    import tasks.workers
    from tasks.dry_run_trials import WORKER as TRIAL_WORKER
    from tasks.memory.estimate import PROGRAM
    from tasks.registry import run_function
    from tasks.training.launch import WORKER
    from tests.support.family import fork

    program = tasks.workers.start_program

    def start(module: str, *given: Any) -> Any:
        return (fork if module in (WORKER, TRIAL_WORKER, PROGRAM) else program)(module, *given)

    tasks.workers.start_program = start
    context = StageContext.model_validate_json(context_json)
    run = run_function(context.spec, context.stage)
    try:
        found: dict[str, Any] = {"notes": run(context, _Said(said, stop_after)).notes}
    except GatewrightError as error:
        found = {"class": type(error).__name__, "message": error.message, "hint": error.hint}
    partial = Path(outcome).with_suffix(".partial")
    partial.write_text(json.dumps(found, ensure_ascii=False), "utf-8")
    partial.rename(outcome)
    sys.stdout.flush()
