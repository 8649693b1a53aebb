"""One of two processes that train a small model under tensor parallel: `python rank_process.py RANK PORT MODEL RESULT`.

Writes the peaks of allocated bytes of its second step, by the profiler's memory events.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main(rank: int, port: str, model_folder: str, result: Path) -> None:
    """Two steps, as `Trainer` takes them, of the model divided among two ranks."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor
    from transformers.distributed.configuration_utils import DistributedConfig

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    transformers: Any = __import__("transformers")
    config: Any = DistributedConfig(tp_size=2)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, distributed_config=config, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.train()
    held = [*model.parameters(), *model.buffers()]
    now = sum({id(t): (t._local_tensor if isinstance(t, DTensor) else t).nbytes for t in held}.values())
    # matrices before norms, as `Trainer` groups them: what a parameter leaves behind stands beside the next one's
    groups = [[p for p in model.parameters() if (p.dim() > 1) is matrix] for matrix in (True, False)]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=1e-4, foreach=False)
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        for step in range(2):
            with torch.autograd.profiler.record_function(f"passes {step}"):
                ids = torch.randint(1, 1000, (2, 256))
                loss = model(input_ids=ids, labels=ids.clone(), num_items_in_batch=torch.tensor(512)).loss
                del ids
                loss.backward()
                del loss
            with torch.autograd.profiler.record_function(f"optimizer {step}"):
                optimizer.step()
            optimizer.zero_grad()
    events = profiler.kineto_results.events()
    spans = {e.name(): (e.start_ns(), e.end_ns()) for e in events if e.name() in ("passes 1", "optimizer 1")}
    peaks = dict.fromkeys(spans, 0)
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        for name, (start, end) in spans.items():
            if start <= event.start_ns() <= end:
                peaks[name] = max(peaks[name], now)
    result.write_text(json.dumps(peaks), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
