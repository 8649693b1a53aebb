"""The tables of the account in hand-written pages: `python -m tasks.advising.pages [ROOT]` writes them anew.

Between `<!-- NAME:begin -->` and `<!-- NAME:end -->` stands what the code says; the rest of a page is written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from specs.base import Language
from specs.docs import table
from specs.hardware import find_gpu
from specs.stages import Progress
from tasks.advising.claims import answered, needed_bytes
from tasks.advising.recipes import CARDS, PRACTICE, Practice, Recipe, practised_on, recipes
from tasks.advising.rules import Judged, judged
from tasks.advising.texts import text
from tasks.planning.plans import Plan
from tasks.planning.weighing import BAND
from tasks.plot_text import phase

BLOCK = re.compile(r"(<!-- (?P<name>[a-z]+):begin -->\n).*?(<!-- (?P=name):end -->)", re.DOTALL)


def rules_table(found: Sequence[Judged]) -> str:
    """Every rule of thumb with the account's figures, the verdict and its reason."""
    head = ("rule", "the account says", "verdict", "why")
    return table(head, ((j.rule.rule, j.says, "right" if j.holds else "**wrong**", j.rule.why) for j in found))


def practice_table(practice: Sequence[Practice], plans: Sequence[Plan]) -> str:
    """What practitioners say of a card beside the account, one row a claim."""
    rows, at = [], iter(plans)
    for one in practice:
        for claim in one.claims:
            plan, shape = next(at), f"{claim.micro_batch}x{claim.seq_len}"
            account = plan.account
            assert account is not None
            assert account.fits is not None
            tight = "fits, over 90 %" if plan.feasible else "**does not fit**"
            verdict = "fits" if plan.utilisation <= BAND[1] else tight
            rows.append(
                (
                    f"{one.gb} GB ({claim.gpu})",
                    one.says,
                    f"{_short(claim.model)} {claim.method} {shape}",
                    f"{needed_bytes(plan) / 1e9:.1f}",
                    f"{account.fits.usable_bytes / 1e9:.1f}",
                    f"{plan.utilisation:.0%}",
                    verdict,
                )
            )
    return table(("card", "practitioners say", "checked as", "needs, GB", "usable, GB", "share", "account"), rows)


RECIPE = ("card", "method", "model", "batch", "optimizer", "needed", "peak", "practitioners")


def recipe_cells(found: Sequence[Recipe], language: Language = "en") -> tuple[list[str], list[list[str]]]:
    """Head and rows of the plan search's own recipe for every card and method, beside what practitioners say."""
    rows = []
    for recipe in found:
        gb, said = f"{find_gpu(recipe.gpu).vram_gb:g} GB ({recipe.gpu})", practised_on(recipe, language)
        if recipe.plan is None or recipe.model is None:
            rows.append([gb, recipe.method, text(language, "recipe.none"), "", "", "", "", said])
            continue
        c, account = recipe.plan.configuration, recipe.plan.account
        assert account is not None
        shape = f"{c.micro_batch}x{c.seq_len}x{c.gradient_accumulation}"
        needed = f"{needed_bytes(recipe.plan) / 1e9:.1f} ({recipe.plan.utilisation:.0%})"
        peak = phase(language, account.peak_phase)
        rows.append([gb, recipe.method, _short(recipe.model), shape, c.optimizer, needed, peak, said])
    return [text(language, f"recipe.{name}") for name in RECIPE], rows


def recipes_table(found: Sequence[Recipe]) -> str:
    """The same as a Markdown table."""
    return table(*recipe_cells(found))


def _short(model: str) -> str:
    return model.rpartition("/")[2]


def practised(progress: Progress | None = None, practice: Sequence[Practice] = PRACTICE) -> str:
    """The table of practitioners' figures, answered now."""
    return practice_table(practice, answered([claim for one in practice for claim in one.claims], progress))


def proposed(progress: Progress | None = None) -> str:
    """The table of recipes, searched now."""
    return recipes_table([recipe for gpu in CARDS.values() for recipe in recipes(gpu, progress)])


Maker = Callable[[], str]
PAGES: dict[str, dict[str, Maker]] = {
    "docs/rules-of-thumb.md": {"rules": lambda: rules_table(judged())},
    "docs/choosing-hardware.md": {"practice": practised, "recipes": proposed},
}


def blocks(page: str) -> dict[str, str]:
    """The generated blocks of a page by name."""
    return {m["name"]: m[0].partition("\n")[2].rpartition("<!--")[0] for m in BLOCK.finditer(page)}


def with_blocks(page: str, made: dict[str, str]) -> str:
    """A page with its blocks made anew."""
    return BLOCK.sub(lambda m: m[1] + made.get(m["name"], blocks(m[0])[m["name"]]) + m[3], page)


def main(root: Path) -> None:
    """Write all pages."""
    for name, makers in PAGES.items():
        page = root / name
        before = page.read_text(encoding="utf-8")
        made = {block: make() for block, make in makers.items() if block in blocks(before)}
        page.write_text(with_blocks(before, made), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
