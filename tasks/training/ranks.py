"""What the ranks of one training tell each other, and how their gradients become one.

Every rank is a worker process that holds the whole model. Each computes its own micro batches of a step, as the plan
deals them; then the gradients are summed. Each micro batch is divided by the learnt tokens of the whole step, so that
the sum is the gradient of one rank that had computed all of them. The sum is taken once per step, over buckets whose
layout never changes: torch's `DistributedDataParallel` lays its buckets out anew after the first step, by which three
ranks and more add in another order after a resume, and it needs a backward pass of every rank in every step, which
the last step of an epoch does not have.

Whatever decides what happens next (a stop, a save, a fault) is asked of all ranks at the same place. Rank 0 alone
writes. A rank that is alone has nobody to ask, and pays nothing.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.errors import InputError, PeerLost
from tasks.interrupts import StopRequest

if TYPE_CHECKING:
    import torch

BUCKET_BYTES = 32 * 2**20
"""Gradients that are summed at a time: what the sum needs beside them."""


@dataclass(frozen=True)
class Seat:
    """Which rank a worker is, and the file in which the ranks find each other."""

    rank: int = 0
    meeting: Path | None = None

    @classmethod
    def read(cls, arguments: Sequence[str]) -> Seat:
        """From a worker's arguments after the job: nothing, or rank and meeting file."""
        return cls(int(arguments[0]), Path(arguments[1])) if arguments else cls()


class Ranks:
    """This rank among all of them. Every method but `first` is called by all ranks at the same place, or by none.

    Raises `PeerLost` when another rank is gone, or is not there in time.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank = rank
        self.count = count

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether any rank says yes."""
        return bool(self._reduce(int(flag), "MAX"))

    def total(self, number: int) -> int:
        """The sum over all ranks."""
        return self._reduce(number, "SUM")

    def gather(self, value: Any) -> list[Any]:
        """What each rank has to say, by rank; JSON values, floats to the last bit."""
        if self.count == 1:
            return [value]
        import torch
        import torch.distributed as dist

        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        with self._peers():
            dist.all_gather(sizes, torch.tensor([len(data)]))
        longest = max(int(size) for size in sizes)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = data
        with self._peers():
            dist.all_gather(parts, padded)
        return [json.loads(bytes(part[: int(size)].tolist()).decode()) for part, size in zip(parts, sizes, strict=True)]

    def from_first(self, value: Any) -> Any:
        """What rank 0 says; the others' values are not looked at."""
        return self.gather(value if self.first else None)[0]

    def meet(self) -> None:
        """Wait for all."""
        self.any(False)

    def agree_to_stop(self, stop: StopRequest) -> bool:
        """Whether any rank was asked to stop; all of them are, from here on."""
        return self.heard(stop, self.any(stop.requested()))

    def heard(self, stop: StopRequest, asked: bool) -> bool:
        """The same when all know already whether any was `asked`."""
        if asked and self.count > 1:
            reason = next(f"{reason} at rank {rank}" for rank, reason in enumerate(self.gather(stop.reason)) if reason)
            if not stop.requested():
                stop.request(reason)
        return asked

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over all ranks. One that no rank has stays away."""
        if self.count == 1:
            return
        import torch
        import torch.distributed as dist

        trained = [p for p in parameters if p.requires_grad]
        there = torch.tensor([p.grad is not None for p in trained], dtype=torch.uint8)
        with self._peers():
            dist.all_reduce(there, op=dist.ReduceOp.MAX)
        gradients = [_gradient(p) for p, any_has in zip(trained, there.tolist(), strict=True) if any_has]
        for bucket in buckets(gradients, BUCKET_BYTES):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            with self._peers():
                dist.all_reduce(flat)
            start = 0
            for gradient in bucket:
                gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
                start += gradient.numel()

    def _reduce(self, number: int, how: str) -> int:
        if self.count == 1:
            return number
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([number], dtype=torch.int64)
        with self._peers():
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, how))
        return int(tensor)

    @contextmanager
    def _peers(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # gloo and NCCL know nothing finer for a peer that is gone or late
            raise PeerLost(
                f"rank {self.rank} of {self.count} lost the others: {str(error).strip().splitlines()[0][:200]}",
                "another rank ended or hangs; `gatewright resume` goes on from the newest checkpoint",
            ) from error


ALONE = Ranks()
"""A training of one rank."""


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    import torch

    if parameter.grad is None:  # a rank without a micro batch in this step adds nothing
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def buckets(tensors: Sequence[torch.Tensor], most_bytes: int) -> Iterator[list[torch.Tensor]]:
    """Consecutive tensors of one type and device, of at most `most_bytes` together; a larger one stands alone."""
    bucket: list[torch.Tensor] = []
    held = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        other = bucket and (bucket[0].dtype, bucket[0].device) != (tensor.dtype, tensor.device)
        if bucket and (other or held + size > most_bytes):
            yield bucket
            bucket, held = [], 0
        bucket.append(tensor)
        held += size
    if bucket:
        yield bucket


def join(seat: Seat, count: int, timeout_s: float) -> Ranks:
    """Meet the other ranks. Raises `PeerLost` when they do not come, and `InputError` for a worker that was started as
    no rank of this training, or for ranks on different kinds of device."""
    if count == 1 and seat.meeting is None:
        return ALONE
    if seat.meeting is None or not 0 <= seat.rank < count:
        raise InputError(
            f"a training of {count} ranks has no rank {seat.rank}" + ("" if seat.meeting else ", or no place to meet"),
            "start it by `gatewright`, which starts all of its ranks",
        )
    import torch
    import torch.distributed as dist

    c10d: Any = dist  # its stores are exported, but not declared so
    _stay_on_this_machine()
    ranks = Ranks(seat.rank, count)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with ranks._peers():
        dist.init_process_group(
            backend,
            store=c10d.FileStore(str(seat.meeting), count),
            rank=seat.rank,
            world_size=count,
            timeout=timedelta(seconds=timeout_s),
        )
    # transformers would advise to launch the processes for its own sum of gradients; they are summed here
    logging.getLogger("transformers.training_args").addFilter(lambda line: "parallel_mode" not in line.getMessage())
    kinds = ranks.gather("cuda" if torch.cuda.is_available() else "cpu")
    if len(set(kinds)) > 1:
        raise InputError(
            f"{count} ranks were asked for, but only {kinds.count('cuda')} GPUs are there",
            f"set launcher.processes to {kinds.count('cuda')}, or make more GPUs visible (CUDA_VISIBLE_DEVICES)",
        )
    return ranks


def _stay_on_this_machine() -> None:
    """Bind the control connections to loopback: no other machine reaches them, and no host name has to resolve."""
    import psutil

    names = (n for n, found in psutil.net_if_addrs().items() if any(a.address == "127.0.0.1" for a in found))
    name = next(names, None)
    if name is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = name
