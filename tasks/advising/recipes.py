"""Recipes for cards of 6 to 32 GB: what practitioners say beside the account, and what the plan search proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specs.base import Language, Strict
from specs.hardware import find_gpu, find_model
from specs.parameters import Method, Optimizer
from specs.stages import Progress
from tasks.advising.claims import Claim
from tasks.advising.texts import text
from tasks.planning.families import families_for
from tasks.planning.machine import Machine, machine_named
from tasks.planning.plans import Limits, Plan
from tasks.planning.search import search, wanted_families
from tasks.planning.weighing import BAND
from tasks.planning.workload import Workload

CARDS: dict[int, str] = {
    6: "RTX 3060 Laptop",
    8: "RTX 4060",
    12: "RTX 3060 12GB",
    16: "RTX 4060 Ti 16GB",
    24: "RTX 4090",
    32: "RTX 5090",
}
"""A card of every size, by GB."""
LADDER: tuple[str, ...] = (
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-14B",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-1.7B",
    "Qwen/Qwen3-0.6B",
)
"""Sizes of one generation, the largest first."""
LENGTHS = (2048, 1536, 1024)
EFFECTIVE_BATCH = 16
PAGED_BELOW_GB = 16
"""Practitioners page 8-bit states on cards smaller than this."""
SMALL_VOCABULARY, LARGE_VOCABULARY = "meta-llama/Llama-2-7b-hf", "Qwen/Qwen2.5-7B"


@dataclass(frozen=True)
class Practice:
    """What practitioners say of a card, and the claims it is checked by."""

    gb: int
    claims: tuple[Claim, ...]

    @property
    def says(self) -> str:
        """In English, as on the page."""
        return text("en", f"practice.{self.gb}")


def _claim(gb: int, model: str, method: Method, length: int, micro_batch: int = 1, accumulation: int = 16) -> Claim:
    return Claim(
        model=model,
        gpu=CARDS[gb],
        method=method,
        micro_batch=micro_batch,
        seq_len=length,
        accumulation=accumulation,
        optimizer="paged_adamw_8bit" if gb < PAGED_BELOW_GB else "adamw_fused",
    )


PRACTICE: tuple[Practice, ...] = (
    Practice(
        6,
        tuple(
            _claim(6, model, "qlora", length)
            for model in ("Qwen/Qwen2.5-3B", "Qwen/Qwen3-4B")
            for length in (512, 1024)
        ),
    ),
    Practice(
        8,
        tuple(
            _claim(8, model, "qlora", length)
            for model in (SMALL_VOCABULARY, LARGE_VOCABULARY)
            for length in (512, 1024)
        ),
    ),
    Practice(
        12,
        tuple(_claim(12, model, "qlora", 1024) for model in (SMALL_VOCABULARY, LARGE_VOCABULARY)),
    ),
    Practice(
        24,
        tuple(_claim(24, model, "lora", 1536) for model in (SMALL_VOCABULARY, LARGE_VOCABULARY)),
    ),
    Practice(
        32,
        tuple(_claim(32, model, "lora", 2048, 2, 8) for model in (SMALL_VOCABULARY, LARGE_VOCABULARY)),
    ),
)


class Recipe(Strict):
    """The largest model of the ladder that a card trains this way, with the plan to start from."""

    gpu: str
    method: Method
    model: str | None
    plan: Plan | None
    """None: none of the ladder fits."""


def practised_on(recipe: Recipe, language: Language) -> str:
    """What practitioners say of cards of this size and this method; empty where nothing is passed around."""
    size = find_gpu(recipe.gpu).vram_gb
    said = next((one for one in PRACTICE if one.gb == size and one.claims[0].method == recipe.method), None)
    return text(language, f"practice.{said.gb}") if said else ""


def recipes(gpu: str, progress: Progress | None = None, ladder: Sequence[str] = LADDER) -> list[Recipe]:
    """For QLoRA and LoRA the largest model of the ladder with at least 1,024 tokens within 90 % of a card.

    Activations are always recomputed, and below 16 GB the states of the optimizer are paged 8-bit ones.
    """
    return [_recipe(gpu, "qlora", progress, ladder), _recipe(gpu, "lora", progress, ladder)]


def _recipe(gpu: str, method: Method, progress: Progress | None, ladder: Sequence[str]) -> Recipe:
    card, machine = find_gpu(gpu), machine_named(gpu)
    paged = card.vram_gb < PAGED_BELOW_GB
    for model in ladder:
        if _hopeless(model, method, machine.device.usable_bytes):
            continue
        workload = Workload(limits=LENGTHS, effective_batch=EFFECTIVE_BATCH)
        optimizer: Optimizer = "paged_adamw_8bit" if paged else "adamw_fused"
        limits = Limits(methods=(method,), optimizers=(optimizer,), offload=False)
        for plan in _plans(model, machine, workload, limits, progress):
            if plan.utilisation <= BAND[1]:
                return Recipe(gpu=card.name, method=method, model=model, plan=plan)
    return Recipe(gpu=card.name, method=method, model=None, plan=None)


def _plans(model: str, machine: Machine, workload: Workload, limits: Limits, progress: Progress | None) -> list[Plan]:
    """Feasible plans that recompute activations, the preferred first: others are not even recorded."""
    architecture = find_model(model).architecture
    wanted = wanted_families(architecture, machine, workload, limits, explain=False)
    recomputed = [settings for settings in wanted if settings.activation_checkpointing]
    families = families_for(recomputed, Limits().optimizers, max(LENGTHS), progress)
    return search(model, architecture, machine, workload, limits, families, explain=False).plans


def _hopeless(model: str, method: Method, usable_bytes: int) -> bool:
    """Whether the weights alone are too large, so that nothing has to be recorded to know it."""
    return (find_model(model).params_total or 0) * (0.5 if method == "qlora" else 2.0) > usable_bytes * BAND[1]
