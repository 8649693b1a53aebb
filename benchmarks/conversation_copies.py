"""Copies among conversations that are alike as a whole: how many of them are merged, and at what cost.

    python benchmarks/conversation_copies.py [--counts 1000 3000]

A tenth of the records are copies of another one with one or two edits in the last answer. A copy counts that the rule
lets go: of equal critical tokens, its answers near those of its original. It is found where one of the two goes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tasks.data.merging import fingerprints, hashes, in_memory, merge_duplicates
from tasks.data.shingles import I64
from tasks.data.similarity import critical_tokens, normalise
from tasks.data.teaching import teaches

THRESHOLD = 0.7
COPIES = 0.1
PARTS_LISTED = """
spindle belt coolant gearbox turret encoder chuck conveyor probe filter motor servo brake relay cable valve hose pump
fuse clutch bearing guide rail screw nut seal ring shaft
"""
PARTS = PARTS_LISTED.split()
VERBS = ["check", "replace", "clean", "tighten", "loosen", "measure", "grease", "swap", "test", "adjust", "inspect"]
SHAPES = ("one long question", "twenty questions", "a shared beginning", "unlike conversations")
Talk = tuple[str, ...]
"""Question, answer, question, answer."""


def said(rng: random.Random, clauses: int) -> str:
    """A text of so many clauses."""
    pick = rng.choice
    return " ".join(f"{pick(VERBS)} the {pick(PARTS)} near the {pick(PARTS)} then" for _ in range(clauses))


def edited(rng: random.Random, text: str) -> str:
    """The text with one or two words changed, dropped or added."""
    words = text.split()
    for _ in range(rng.randrange(1, 3)):
        at, kind = rng.randrange(len(words)), rng.randrange(3)
        words[at : at + 1] = [[f"{words[at]}s"], [], [words[at], "also"]][kind]
    return " ".join(words)


def conversations(shape: str, count: int, rng: random.Random) -> tuple[list[Talk], list[int]]:
    """(conversations, of each the number of the one that it is a copy of, -1 where it is none)."""
    long, questions = said(rng, 60), [said(rng, 30) for _ in range(20)]
    talks: list[Talk] = []
    copied: list[int] = []
    for number in range(count):
        if number > 10 and rng.random() < COPIES:
            of = rng.randrange(number)
            talks.append((*talks[of][:-1], edited(rng, talks[of][-1])))
            copied.append(of if copied[of] < 0 else copied[of])
            continue
        made: dict[str, Talk] = {
            "one long question": (long, said(rng, 4)),
            "twenty questions": (rng.choice(questions), said(rng, 4)),
            "a shared beginning": (long, "Understood, which part?", said(rng, 1), said(rng, 3)),
            "unlike conversations": tuple(said(rng, 2) for _ in range(2 * rng.randrange(1, 5))),
        }
        talks.append(made[shape])
        copied.append(-1)
    return talks, copied


class Lists:
    """What records teach, held in memory."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers, self.known = answers, dict[tuple[int, int], bool]()

    def may(self, stays: I64, goes: I64) -> npt.NDArray[np.bool_]:
        """Whether one teaches what the other does."""
        pairs = list(zip(stays.tolist(), goes.tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        kept, gone = ([self.answers[pair[side]] for pair in new] for side in (0, 1))
        self.known.update(zip(new, teaches(kept, gone, THRESHOLD), strict=True))
        return np.asarray([self.known[pair] for pair in pairs], np.bool_)

    def lacking(self, stays: I64, goes: I64) -> list[list[str]]:
        """What one teaches and the other does not."""
        pairs = zip(stays.tolist(), goes.tolist(), strict=True)
        return [sorted(set(self.answers[b]) - set(self.answers[a])) for a, b in pairs]


def measure(shape: str, count: int) -> str:
    """One line of figures."""
    talks, copied = conversations(shape, count, random.Random(1))
    content = [normalise("\n".join(talk)) for talk in talks]
    teaching = Lists([sorted({normalise(text) for text in talk[1::2]}) for talk in talks])
    guards = [critical_tokens(text) for text in content]
    prints = fingerprints(content, guards)
    everyone = np.ones(len(talks), np.bool_)
    began = time.process_time()
    fields = np.asarray([len(talk) for talk in talks])
    merged = merge_duplicates(prints, fields, everyone, everyone, THRESHOLD, in_memory(content), teaching)
    seconds = time.process_time() - began
    exact = hashes(content)
    pairs = [(of, i) for i, of in enumerate(copied) if of >= 0 and guards[of] == guards[i] and exact[of] != exact[i]]
    kept, gone = ([teaching.answers[pair[side]] for pair in pairs] for side in (0, 1))
    wanted = [pair for pair, allowed in zip(pairs, teaches(kept, gone, THRESHOLD), strict=True) if allowed]
    found = sum(bool(merged.into[of] >= 0 or merged.into[i] >= 0) for of, i in wanted)
    return (
        f"{shape:22}{count:7}{len(wanted):8}{found / max(1, len(wanted)):8.3f}{int((merged.into >= 0).sum()):8}"
        f"{len(teaching.known):10}{seconds:8.2f}"
    )


def main() -> None:
    """Every shape and size, a line each."""
    parser = argparse.ArgumentParser(description="Copies among conversations that are alike as a whole.")
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 3000])
    print(f"{'':22}{'records':>7}{'copies':>8}{'found':>8}{'merged':>8}{'compared':>10}{'CPU s':>8}")
    for count in parser.parse_args().counts:
        for shape in SHAPES:
            print(measure(shape, count), flush=True)


if __name__ == "__main__":
    main()
