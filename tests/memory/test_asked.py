"""Promises of the options of an estimate: contradictions are named with a way out, and host and disk refuse too."""

from __future__ import annotations

import re
from typing import Any

import pytest

from specs.errors import InputError
from tasks.memory.account import assemble
from tasks.memory.asked import settings_of
from tasks.memory.devices import named
from tasks.memory.host import frameworks, host
from tasks.memory.settings import TraceSettings
from tasks.memory.traced import Trace
from tasks.planning.candidates import settings_of as plan_settings
from tasks.planning.machine import machine_named
from tasks.planning.plans import Configuration, Limits

ARCHITECTURE = {"model_type": "llama"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpus": 2}, "need a scheme"),
        ({"gpus": 2, "nodes": 4, "sharding": "ddp"}, "evenly"),
        ({"sharding": "ddp", "gpus": 2, "offload": "optimizer"}, "known for zero2"),
        ({"sharding": "zero2", "gpus": 2, "offload": "all"}, "keeps all weights"),
        ({"method": "qlora", "weights": "bf16"}, "4-bit weights"),
        ({"method": "lora", "weights": "nf4"}, "beside 4-bit weights"),
        ({"method": "inference", "sharding": "ddp", "gpus": 2}, "one GPU"),
        ({"weights": "fp32", "compute": "bf16"}, "16-bit weights"),
        ({"weights": "fp32", "attention": "flash"}, "16 bits"),
        ({"rank": 0, "optimizer": "none"}, "--lora-rank.*--optimizer"),
    ],
)
def test_a_contradiction_is_named_with_a_way_out(options: dict[str, Any], words: str):
    with pytest.raises(InputError, match=words) as raised:
        settings_of(ARCHITECTURE, options)
    assert raised.value.hint


def test_what_is_left_out_follows_the_method():
    assert settings_of(ARCHITECTURE, {"method": "qlora"}).weights == "nf4-dq"
    assert settings_of(ARCHITECTURE, {"method": "full", "weights": "fp32"}).compute == "fp32"
    assert settings_of(ARCHITECTURE, {"method": "inference"}).weights == "bf16"


@pytest.mark.parametrize(
    ("memory_gb", "disk_gb", "refused"), [(64, 64, []), (4, 64, ["host"]), (64, 1, ["disk"]), (None, None, [])]
)
def test_host_memory_and_disk_refuse_like_the_card(memory_gb: Any, disk_gb: Any, refused: list[str]):
    account = assemble(
        {"forward": {"weights": 2**30}},
        framework_bytes=0,
        library_bytes=0,
        host_fixed_bytes=8 * 2**30,
        disk_bytes=2 * 2**30,
        trainable_parameters=1,
        total_parameters=1,
        method="traced",
        micro_batch=1,
        seq_len=8,
        notes=[],
    )
    found = account.on(named("RTX 4090").with_host(memory_gb, disk_gb)).fits
    assert found is not None
    assert found.fits == (not refused)
    assert [re.split("[ :]", reason)[0] for reason in found.reasons] == refused
    assert found.over_bytes == 0


def test_every_rank_that_reads_the_weights_is_counted_on_the_host():
    trace = Trace({}, 10, 1000, 2000, 20, 40, 0)
    replicas, sharded = (
        host(trace, TraceSettings(architecture=ARCHITECTURE, gpus=4, sharding=scheme)) for scheme in ("ddp", "fsdp")
    )
    assert replicas.peak_bytes - sharded.peak_bytes == 3 * 2000
    pinned = host(trace, TraceSettings(architecture=ARCHITECTURE, gpus=4, sharding="fsdp"), offloaded_bytes=500)
    assert pinned.peak_bytes - sharded.peak_bytes == 4 * 500
    assert pinned.disk_bytes == 3 * (20 + 40) + 20


@pytest.mark.parametrize("scheme", ["ddp", "zero3", "fsdp"])
def test_a_machine_holds_what_its_own_ranks_take(scheme):
    """Ranks of other machines take nothing of this one: two machines of four are as full as one of four."""
    trace = Trace({}, 10, 1000, 2000, 20, 40, 0)
    one, two = (
        host(trace, TraceSettings(architecture=ARCHITECTURE, gpus=4 * n, nodes=n, sharding=scheme), 500) for n in (1, 2)
    )
    assert two == one
    assert frameworks(4) < 4 * frameworks(1), "pages of library files are there once"
    alone = host(trace, TraceSettings(architecture=ARCHITECTURE, gpus=8, sharding=scheme), 500)
    assert alone.peak_bytes > two.peak_bytes


def test_a_plan_over_several_machines_counts_the_ranks_of_one_of_them():
    machine = machine_named("A100 SXM4 80GB", 8, nodes=2)
    planned = Configuration(
        method="full",
        weights="bf16",
        compute="bf16",
        optimizer="adamw_fused",
        micro_batch=1,
        gradient_accumulation=1,
        data_ranks=16,
        seq_len=1024,
        activation_checkpointing=True,
        attention="sdpa",
        sharding="zero3",
    )
    assert plan_settings({"model_type": "llama"}, planned, machine, Limits()).ranks_per_node == 8
    few = planned.model_copy(update={"data_ranks": 4})
    assert plan_settings({"model_type": "llama"}, few, machine, Limits()).ranks_per_node == 4


@pytest.mark.parametrize("options", [{"method": "inference"}, {"attention": "flash", "micro_batch": 2}])
def test_packing_that_cannot_be_is_refused_with_the_way_out(small, options):
    with pytest.raises(InputError) as caught:
        settings_of(small, {"packed": True, **options})
    assert "pack" in caught.value.message
    assert "--" in caught.value.hint
    assert settings_of(small, {"packed": True, "micro_batch": 2}).packed
