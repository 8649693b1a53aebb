"""What makes a refused plan fit, lever by lever, the cheapest for the result first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specs.hardware import gpus
from tasks.memory.settings import Sharding
from tasks.planning.candidates import SHARDS_WEIGHTS, attention_on, placements, types_of
from tasks.planning.plans import Configuration, Lack, Lever, Plan, Refusal, Step
from tasks.planning.weighing import Search, positions_of, resized

SHORTEST = 128
"""Tokens below which no length is proposed."""
MEMORY_RULES = ("memory", "host", "disk")
COUNTS = (2, 4, 8)
"""Cards of one machine that are proposed where fewer are too few."""


def explained(plan: Plan, state: Search) -> Plan:
    """The plan with its way out: single levers that suffice, else the levers that together do."""
    refused = plan.refused
    if refused is None or not any(lack.rule in MEMORY_RULES for lack in refused.lacks):
        return plan
    steps = _alone(plan.configuration, state) or _together(plan.configuration, state)
    return plan.model_copy(update={"refused": refused.model_copy(update={"way_out": steps})})


def spilled(state: Search, feasible: Sequence[Plan]) -> list[Plan]:
    """The plan that people try when a 4-bit model does not fit: `device_map="auto"`, which puts layers on the CPU.

    It is refused by name: bitsandbytes does not train layers that lie elsewhere, and its loader refuses to split them.
    """
    if "qlora" not in state.limits.methods or state.machine.device.kind != "cuda":
        return []
    if any(p.configuration.method == "qlora" and p.configuration.cards == 1 for p in feasible):
        return []
    weights, compute = types_of(state.machine, "qlora", "none")[0]
    lightest = Configuration(
        method="qlora",
        weights=weights,
        compute=compute,
        optimizer=state.limits.optimizers[0],
        micro_batch=1,
        gradient_accumulation=state.workload.effective_batch,
        data_ranks=1,
        seq_len=state.workload.length_limits(positions_of(state.architecture))[-1],
        activation_checkpointing=True,
        attention=attention_on(state.machine, state.workload),
    )
    if state.unrecorded(lightest):
        return []
    account = state.account(lightest)
    assert account.fits is not None
    lack = Lack(rule="offloaded-quantized", needed=account.fits.needed_bytes, there=state.usable_bytes)
    refused = Refusal(lacks=[lack], over_bytes=account.fits.over_bytes, way_out=_alone(lightest, state))
    plan = Plan(
        configuration=lightest,
        account=account,
        utilisation=state.share(account),
        seconds=None,
        duration=None,
        refused=refused,
    )
    return [plan]


Change = dict[str, str | int | bool]
Variants = Callable[[Configuration, Search], Iterator[Configuration]]


def _smaller(c: Configuration, state: Search) -> Iterator[Configuration]:
    share = c.micro_batch * c.gradient_accumulation
    return (resized(c, n) for n in range(c.micro_batch - 1, 0, -1) if share % n == 0)


def _checkpointed(c: Configuration, state: Search) -> Iterator[Configuration]:
    if not c.activation_checkpointing:
        yield c.model_copy(update={"activation_checkpointing": True})


def _packed_states(c: Configuration, state: Search) -> Iterator[Configuration]:
    if c.offload == "none" and state.machine.device.kind == "cuda" and c.optimizer in state.limits.optimizers:
        after = state.limits.optimizers[state.limits.optimizers.index(c.optimizer) + 1 :]
        yield from (c.model_copy(update={"optimizer": o}) for o in after)


def _shorter(c: Configuration, state: Search) -> Iterator[Configuration]:
    known = state.workload.length_limits(positions_of(state.architecture))
    lengths = {n for n in known if n < c.seq_len} | {2**k for k in range(7, 17) if SHORTEST <= 2**k < c.seq_len}
    yield from (c.model_copy(update={"seq_len": n}) for n in sorted(lengths, reverse=True))


def _with_method(method: str) -> Variants:
    """Adapters in place of all weights, 4-bit weights in place of 16-bit ones."""
    before = {"lora": ("full",), "qlora": ("full", "lora", "dora")}[method]

    def variants(c: Configuration, state: Search) -> Iterator[Configuration]:
        if (
            c.divides_layers
            or c.method not in before
            or c.offload != "none"
            or (method == "qlora" and c.sharding == "zero3")
        ):
            return
        sharding = "ddp" if c.sharding in ("zero1", "zero2") else c.sharding
        weights, compute = types_of(state.machine, method, sharding)[0]  # type: ignore[arg-type]
        yield c.model_copy(update={"method": method, "weights": weights, "compute": compute, "sharding": sharding})

    return variants


def _sharded(c: Configuration, state: Search) -> Iterator[Configuration]:
    if c.offload == "none" and c.sharding not in SHARDS_WEIGHTS and not c.divides_layers:
        yield from _placed(
            c, state, lambda sharding, offload: offload == "none" and sharding.startswith(("zero", "fsdp"))
        )


def _offloaded(c: Configuration, state: Search) -> Iterator[Configuration]:
    if c.offload == "none" and not c.divides_layers:
        yield from _placed(c, state, lambda sharding, offload: offload != "none")


def _placed(c: Configuration, state: Search, wanted: Callable[[str, str], bool]) -> Iterator[Configuration]:
    share = c.effective_batch
    for p in placements(state.machine, c.method, state.limits):
        if not wanted(p.sharding, p.offload) or share % p.data_ranks or p.data_ranks < c.data_ranks:
            continue
        weights, compute = types_of(state.machine, c.method, p.sharding)[0]
        optimizer = state.limits.optimizers[0] if p.offload != "none" else c.optimizer
        there = {"sharding": p.sharding, "offload": p.offload, "data_ranks": p.data_ranks}
        types = {"weights": weights, "compute": compute, "optimizer": optimizer}
        yield _dividing(c.model_copy(update={**there, **types}), share // p.data_ranks)


LEVERS: tuple[tuple[Lever, Variants], ...] = (
    ("micro_batch", _smaller),
    ("activation_checkpointing", _checkpointed),
    ("optimizer", _packed_states),
    ("length", _shorter),
    ("lora", _with_method("lora")),
    ("qlora", _with_method("qlora")),
    ("zero", _sharded),
    ("offload", _offloaded),
)


def _alone(c: Configuration, state: Search) -> list[Step]:
    """Every lever that is enough by itself."""
    found = _without_change(c, state)
    for lever, variants in LEVERS:
        for changed in _recorded(variants, c, state):
            if _fits(changed, state):
                found.append(_step(lever, c, changed, state, fits=True))
                break
    return [*found, *_cards(c, state)] if found else []


def _together(c: Configuration, state: Search) -> list[Step]:
    """Levers one after the other, each as far as it goes, until it fits; a bigger card where even all are too few."""
    found: list[Step] = []
    now = c
    for lever, variants in LEVERS:
        tried = [(changed, _needed(changed, state)) for changed in _recorded(variants, now, state)]
        better = [(changed, needed) for changed, needed in tried if needed < _needed(now, state)]
        if not better:
            continue
        changed = next((one for one, _ in better if _fits(one, state)), min(better, key=lambda pair: pair[1])[0])
        fits = _fits(changed, state)
        found.append(_step(lever, now, changed, state, fits=fits))
        now = changed
        if fits:
            return _needed_ones(c, found, state)
    return _cards(c, state) or [*found, *_cards(now, state)]


def _needed_ones(c: Configuration, steps: list[Step], state: Search) -> list[Step]:
    """The steps without those that the others make needless: a later one may be worth more than all before it."""
    kept = steps
    for step in steps:
        fewer = [one for one in kept if one is not step]
        if fewer and _fits_after(c, fewer, state):
            kept = fewer
    if len(kept) == len(steps):
        return steps
    found, now = list[Step](), c
    for step in kept:
        after = _after(now, [step])
        found.append(_step(step.lever, now, after, state, fits=step is kept[-1]))
        now = after
    return found


def _after(c: Configuration, steps: Sequence[Step]) -> Configuration:
    return Configuration.model_validate({**c.model_dump(), **{k: v for step in steps for k, v in step.change.items()}})


def _fits_after(c: Configuration, steps: Sequence[Step], state: Search) -> bool:
    """Whether these steps alone make it fit; a step that is not itself without the others does not."""
    changed = _after(c, steps)
    return changed.effective_batch == c.effective_batch and not state.unrecorded(changed) and _fits(changed, state)


def _recorded(variants: Variants, c: Configuration, state: Search) -> Iterator[Configuration]:
    """Those that have an account."""
    return (changed for changed in variants(c, state) if not state.unrecorded(changed))


def _without_change(c: Configuration, state: Search) -> list[Step]:
    """Memory that others hold, and memory that the allocator could use better: no setting of the training changes."""
    account, found = state.account(c), list[Step]()
    if any(lack.rule != "memory" for lack in state.lacks(account)):  # the host and the disk gain nothing by it
        return found
    needed, usable, there = _needed(c, state), state.machine.device.usable_bytes, state.usable_bytes
    if there < needed <= usable:
        held: Change = {"free_bytes": usable - there}
        found.append(Step(lever="other_processes", change=held, needed_bytes=needed, fits=True))
    allocated = account.peak_allocated_bytes + account.framework_bytes
    if allocated <= there < needed:
        setting: Change = {"allocator": "expandable_segments" if state.machine.expandable else "max_split_size"}
        found.append(Step(lever="allocator", change=setting, needed_bytes=allocated, fits=True))
    return found


def _cards(c: Configuration, state: Search) -> list[Step]:
    """More cards of the kind, else a bigger one: what is left when no setting helps, and what it costs otherwise."""
    return [step for step in (_more_cards(c, state), _bigger_card(c, state)) if step]


def _more_cards(c: Configuration, state: Search) -> Step | None:
    """The fewest cards of one machine on which shards of the weights make it fit; null where up to 8 do not."""
    card = next((g for g in gpus() if g.name == state.machine.device.name), None)
    if state.machine.device.kind != "cuda" or state.machine.nodes > 1 or c.offload != "none" or c.divides_layers:
        return None
    if card is None or card.laptop:
        return None
    scheme: Sharding = "fsdp" if c.method == "qlora" else "zero3"
    weights, compute = types_of(state.machine, c.method, scheme)[0]
    for count in COUNTS:
        if count <= state.machine.cards or c.effective_batch % count:
            continue
        changed = c.model_copy(update={"sharding": scheme, "data_ranks": count, "weights": weights, "compute": compute})
        changed = _dividing(changed, c.effective_batch // count)
        if not state.unrecorded(changed) and _fits(changed, state):
            step = _step("cards", c, changed, state, fits=True)
            return step.model_copy(update={"change": {"cards": count, **step.change}})
    return None


def _dividing(c: Configuration, share: int) -> Configuration:
    """The largest micro batch up to that of `c` that divides a rank's samples of a step."""
    size = max(n for n in range(1, c.micro_batch + 1) if share % n == 0)
    return c.model_copy(update={"micro_batch": size, "gradient_accumulation": share // size})


def _bigger_card(c: Configuration, state: Search) -> Step | None:
    """The smallest card of the catalog that has room and computes in these types; null where none has, and where the
    host or its disk is what is too small."""
    if state.machine.device.kind != "cuda" or any(lack.rule != "memory" for lack in state.lacks(state.account(c))):
        return None
    needed, bf16 = _needed(c, state), "bf16" in (c.weights, c.compute.removeprefix("amp-"))
    fitting = [g for g in gpus() if g.usable_bytes >= needed and g.vendor == "NVIDIA" and not g.laptop]
    fitting = [g for g in fitting if g.bf16_hardware or not bf16]
    if not fitting:
        return None
    card = min(fitting, key=lambda g: (g.usable_bytes, g.name))
    return Step(lever="cards", change={"gpu": card.name}, needed_bytes=needed, fits=True)


def _needed(c: Configuration, state: Search) -> int:
    fits = state.account(c).fits
    return fits.needed_bytes if fits else 0


def _fits(c: Configuration, state: Search) -> bool:
    return not state.lacks(state.account(c))


def _step(lever: Lever, before: Configuration, after: Configuration, state: Search, *, fits: bool) -> Step:
    old, new = before.model_dump(), after.model_dump()
    change = {name: new[name] for name in new if new[name] != old[name]}
    was, now = state.seconds(before), state.seconds(after)
    slower = round(now.expected / was.expected, 3) if was and now else None
    return Step(lever=lever, change=change, needed_bytes=_needed(after, state), fits=fits, slower=slower)
