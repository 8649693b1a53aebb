"""The worker of small trials, which is killed in the middle of the trials that `die.json` beside its jobs names."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tasks.training import session, trial_worker
from tasks.training.trainer import PlannedTrainer


class DyingTrainer(PlannedTrainer):
    """Dies in the second step, as the system kills."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        doomed = json.loads(Path(sys.argv[1]).with_name("die.json").read_bytes())
        if self.state.global_step == 1 and self.job.out.parent.name in doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(model, inputs, num_items_in_batch)


def main() -> int:
    """The worker program."""
    session.Session.trainer_type = DyingTrainer
    return trial_worker.main()


if __name__ == "__main__":
    sys.exit(main())
