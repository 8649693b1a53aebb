"""Training workers with one part made faulty: to be killed inside it, or to show that a test notices its absence.

`FAULT` in the environment of the job's folder (`fault.json` beside `job.json`) names the fault and its step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from specs.canonical import sha256_file
from specs.files import sync_tree
from tasks.training import worker
from tasks.training.checkpoints import CheckpointStore
from tasks.training.session import Session
from tasks.training.state import restore_random
from tasks.training.trainer import PlannedTrainer


def fault() -> dict[str, Any]:
    """What is faulty: `kind` and `step`."""
    path = Path(sys.argv[1]).with_name("fault.json")
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"kind": "none", "step": 0}
    return found


def die() -> None:
    """As the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyStore(CheckpointStore):
    """`kill_in_save`: dies when everything is written and nothing is renamed. `no_rename`: the same, but the files
    were written under the final name from the start, as a store without the atomic rename would. `full`: no file may
    grow beyond `bytes` while the checkpoint of the step is written, as on a volume that fills up meanwhile."""

    def publish(self, step: int, write: Any, expected_bytes: int) -> Any:
        if fault()["kind"] == "full" and step == fault()["step"]:
            import resource

            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (fault()["bytes"], most))
        return super().publish(step, write, expected_bytes)

    def _make_visible(self, partial: Path, target: Path) -> None:
        kind, step = fault()["kind"], fault()["step"]
        if int(target.name) == step and kind == "kill_in_save":
            sync_tree(partial)
            die()
        if int(target.name) == step and kind == "no_rename":
            os.rename(partial, target)
            (target / "manifest.json").unlink()
            (target / "optimizer.pt").unlink()
            die()
        super()._make_visible(partial, target)

    def newest(self) -> Any:
        if fault()["kind"] != "trusting":
            return super().newest()
        from tasks.training.checkpoints import Checkpoint

        folders = sorted(p for p in self.folder.iterdir() if p.name.isdecimal())
        return (Checkpoint(int(folders[-1].name), folders[-1]) if folders else None), []


FACTORS = {"nan": float("nan"), "inf": float("inf"), "zero": 0.0, "spike": 20.0}


class FaultyTrainer(PlannedTrainer):
    """`nan`, `inf`, `zero`: the loss of a step is that. `spike`: it is twenty times what it was. `kill_in_step`: dies
    between two micro batches; `stop_in_step`: is asked to stop there. `no_random`: forgets to restore the random
    numbers. `shuffled`: feeds the steps in another order. `inf_gradient`: one gradient of a step is infinite.
    `scaler`, `scaler_inf`: trains with a loss scaler on the CPU, and one gradient of a step is infinite.
    Of several ranks the one that `rank` names is faulty: `hang_in_step` stands still, `drift` changes one weight after
    the step. `random_of_rank_0`: every rank restores the random numbers of rank 0."""

    def _here(self, *kinds: str) -> bool:
        now = fault()
        on_step = self.state.global_step + 1 == now["step"] and now.get("rank", 0) == self.ranks.rank
        return on_step and now["kind"] in kinds

    def _micro_step(self, model: Any, batch: Any, learnt: int) -> Any:
        now = fault()
        here = self._here(now["kind"])
        if here and now["kind"] == "hang_in_step" and batch.planned.number == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        if here and now["kind"] == "kill_in_step" and batch.planned.number == 1:
            die()
        if here and now["kind"] == "stop_in_step" and batch.planned.number == 1:
            self.stop.request("SIGTERM")
        if here and now["kind"] in FACTORS:
            self.store.folder.with_name("before.txt").write_text(self._weights())
            return super()._micro_step(model, batch, learnt) * FACTORS[now["kind"]]
        return super()._micro_step(model, batch, learnt)

    def create_optimizer(self, model: Any = None) -> Any:
        if fault()["kind"].startswith("scaler"):
            import torch

            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)  # type: ignore[attr-defined]
        return super().create_optimizer(model)

    def _clip_grad_norm(self, model: Any) -> Any:
        if fault()["kind"].startswith("scaler"):  # accelerate does it only for fp16, which it refuses on a CPU
            self.accelerator.scaler.unscale_(self.optimizer.optimizer)  # type: ignore[union-attr]
        return super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        total = super().training_step(model, inputs, num_items_in_batch)
        if self._here("inf_gradient", "scaler_inf"):
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[0] = float("inf")
        return total

    def check_finite(self) -> None:
        try:
            super().check_finite()
        finally:
            if self._here(*FACTORS):
                self.store.folder.with_name("after.txt").write_text(self._weights())

    def compare_with_before(self) -> None:
        super().compare_with_before()
        if self._here("drift"):
            next(p for p in self.model.parameters() if p.requires_grad).data.view(-1)[0] += 1e-6  # type: ignore[union-attr]

    def _weights(self) -> str:
        from tasks.training.models import save_weights

        folder = self.store.folder.with_name("weights")
        save_weights(self.model, folder)
        return sha256_file(folder / "adapter_model.safetensors")

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if fault()["kind"] == "random_of_rank_0" and checkpoint is not None:
            restore_random(Path(checkpoint), 0)
        elif fault()["kind"] != "no_random":
            super()._load_rng_state(checkpoint)

    def get_train_dataloader(self) -> Any:
        if fault()["kind"] == "shuffled":
            self.feed.steps = [*self.feed.steps[:2], *reversed(self.feed.steps[2:])]
        return super().get_train_dataloader()


class FaultySession(Session):
    """A session with the faulty trainer. `other_weights`: changes one weight after loading a checkpoint."""

    trainer_type = FaultyTrainer

    def _model(self, checkpoint: Any) -> Any:
        model = super()._model(checkpoint)
        if fault()["kind"] == "other_weights":
            next(p for n, p in model.named_parameters() if "lora_B" in n).data.view(-1)[0] += 0.5
        return model


def no_space(folder: Path) -> int:
    """A full disk."""
    return 4096


def main() -> int:
    """The worker program with faulty parts."""
    if fault()["kind"] == "disk_full":
        return worker.main(free=no_space)
    return worker.main(FaultyStore, FaultySession)


if __name__ == "__main__":
    sys.exit(main())
