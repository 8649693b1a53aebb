"""From a sample's turns to the text and tokens that are trained on. One code for every stage.

Turns and the words of the template around them are tokenised apart and joined, so that the boundary between what is
masked and what is learnt is exact, and text inside data that looks like a special token stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specs.errors import ModelError
from tasks.tokenizer import TextTokenizer, load_tokenizer
from tasks.turns import Role, Turn, Turns

Span = tuple[int, int]
"""First token, and the one after the last."""


@dataclass(frozen=True)
class Encoded:
    """Token ids of one sample. `input_ids[trainable_from:]` is the last answer with its end, which is learnt too.

    `earlier` are the answers of turns before it that are learnt, each with its end.
    """

    input_ids: list[int]
    trainable_from: int
    earlier: tuple[Span, ...] = ()

    @property
    def answers(self) -> tuple[Span, ...]:
        """Every answer that is learnt, in order."""
        return (*self.earlier, (self.trainable_from, len(self.input_ids)))

    @property
    def learnt(self) -> tuple[Span, ...]:
        """The tokens whose prediction counts in the loss. Nothing stands before the first one that predicts it."""
        return tuple((max(start, 1), end) for start, end in self.answers)

    @property
    def learnt_tokens(self) -> int:
        """How many they are."""
        return sum(max(0, end - start) for start, end in self.learnt)

    def parts(self) -> Iterator[tuple[list[int], bool]]:
        """(tokens, whether they are answers that are learnt), in order; together they are the sample."""
        at = 0
        for start, end in self.answers:
            if start > at:
                yield self.input_ids[at:start], False
            if end > start:
                yield self.input_ids[start:end], True
            at = end


@dataclass(frozen=True)
class _Piece:
    """Words of the template (`turn` is -1), or the place of a turn with what is joined to its end as text."""

    text: str
    turn: int = -1
    ids: tuple[int, ...] = ()
    closes: bool = False
    """Whether it is the end of the answer before it."""
    added: bool = False
    """Whether it stands there though the template does not write it."""


@dataclass(frozen=True)
class End:
    """The token with which a text or an answer ends, as text and as number."""

    text: str
    id: int


class PromptTemplate:
    """Renders and encodes samples with the chat template of a base model, or plainly where it has none.

    A text ends with the end token of the tokenizer, an answer with the token that the template writes behind one:
    Gemma ends a text with `<eos>` and an answer with `<end_of_turn>`. `own_ends`: False ends both alike, as runs of
    older code did.
    """

    def __init__(self, tokenizer: TextTokenizer, own_ends: bool = True) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token
        self.answer_end = self._answer_end() if own_ends else End(tokenizer.eos_token, tokenizer.eos_token_id)
        self._frames: dict[tuple[Role, ...], tuple[_Piece, ...]] = {}
        self._takes_system: bool | None = None
        self._frame(("user",))

    @classmethod
    def load(cls, base_model: Path, own_ends: bool = True) -> PromptTemplate:
        """The template of a local model folder; raises `ModelError` when it has no usable tokenizer."""
        return cls(load_tokenizer(base_model), own_ends)

    def _answer_end(self) -> End:
        """What the template writes first behind an answer, if it is a token that marks turns and does not open them."""
        usual = End(self.tokenizer.eos_token, self.tokenizer.eos_token_id)
        if self.tokenizer.chat_template is None:
            return usual
        marks = ("\u241fuser\u241f", "\u241fassistant\u241f")
        roles = ({"role": "user", "content": marks[0]}, {"role": "assistant", "content": marks[1]})
        try:
            found = self.tokenizer.render(roles, asks=False)
        except ModelError:  # one that takes questions only
            return usual
        before, _, behind = found.partition(marks[1])
        behind = behind.lstrip()
        ends = [End(text, number) for number, text in self.tokenizer.control().items() if behind.startswith(text)]
        if not ends:
            return usual
        end = max(ends, key=lambda one: len(one.text))
        opened = max(self.tokenizer.control().values(), key=before.rfind)
        return usual if end.text == opened else end

    def end_of(self, prompt: str) -> End:
        """The end of what is learnt of a sample: of an answer, or of plain text, which has no prompt."""
        return self.answer_end if prompt else End(self.end, self.tokenizer.eos_token_id)

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens at which a model that has learnt the samples stops."""
        return tuple(dict.fromkeys((self.answer_end.id, self.tokenizer.eos_token_id)))

    def text(self, prompt: str, answer: str, earlier: Turns = ()) -> str:
        """The whole text of a sample, end token included. Without a prompt it is plain text: nothing stands before."""
        parts: list[str] = []
        if prompt:
            turns = self._turns(prompt, earlier)
            for piece in self._frame(tuple(turn.role for turn in turns)):
                parts.append(turns[piece.turn].text + piece.text if piece.turn >= 0 else piece.text)
        return "".join([*parts, answer, self.end_of(prompt).text])

    def encode(self, prompt: str, answer: str, earlier: Turns = ()) -> Encoded:
        """Tokens of a sample. Only the template's own special tokens become special tokens."""
        return self.encode_many([prompt], [answer], [earlier])[0]

    def encode_many(
        self, prompts: Sequence[str], answers: Sequence[str], earlier: Sequence[Turns] | None = None
    ) -> list[Encoded]:
        """Tokens of samples: as `encode` gives them one by one, in one call of the tokenizer for all that is asked."""
        heads = self._heads(prompts, earlier or [()] * len(prompts))
        tails = self.tokenizer.as_text(answers)
        return [
            Encoded([*head, *tail, self.end_of(prompt).id], len(head), learnt)
            for prompt, (head, learnt), tail in zip(prompts, heads, tails, strict=True)
        ]

    def encode_prompt(self, prompt: str, earlier: Turns = ()) -> list[int]:
        """Tokens before the answer, for generation."""
        return self._heads([prompt], [earlier])[0][0]

    def system_stands_in_question(self) -> bool:
        """Whether the template has no place for a system text, so that it stands above the first question."""
        if self._takes_system is None:
            try:
                self._frame(("system", "user"))
                self._takes_system = True
            except ModelError:
                self._takes_system = False
        return not self._takes_system

    def closes_answers(self) -> bool:
        """Whether the template itself ends the answers of earlier turns as the last one; else an end is put there."""
        frame = self._frame(("user", "assistant", "user"))
        return self.tokenizer.chat_template is None or not any(piece.added for piece in frame)

    def _turns(self, prompt: str, earlier: Turns) -> Turns:
        """All turns up to the question; a system text that the template has no place for, above the first one."""
        turns = (*earlier, Turn("user", prompt))
        if turns[0].role == "system" and self.system_stands_in_question():
            first = replace(turns[1], text=f"{turns[0].text}\n{turns[1].text}")
            turns = (first, *turns[2:])
        return turns

    def _heads(self, prompts: Sequence[str], earlier: Sequence[Turns]) -> list[tuple[list[int], tuple[Span, ...]]]:
        """Of each sample the tokens before its last answer, and the answers among them that are learnt."""
        asked = [self._turns(prompt, before) if prompt else () for prompt, before in zip(prompts, earlier, strict=True)]
        frames = [self._frame(tuple(turn.role for turn in turns)) if turns else () for turns in asked]
        texts = [
            turns[piece.turn].text + piece.text
            for turns, frame in zip(asked, frames, strict=True)
            for piece in frame
            if piece.turn >= 0
        ]
        bodies = iter(self.tokenizer.as_text(texts))
        return [_joined(turns, frame, bodies) for turns, frame in zip(asked, frames, strict=True)]

    def _frame(self, roles: tuple[Role, ...]) -> tuple[_Piece, ...]:
        """The template around turns of these roles, up to where the last answer begins."""
        if roles not in self._frames:
            chat = self.tokenizer.chat_template is not None
            self._frames[roles] = tuple(self._chat(roles) if chat else self._plain(roles))
        return self._frames[roles]

    def _plain(self, roles: Sequence[Role]) -> Iterator[_Piece]:
        for number, role in enumerate(roles):
            yield _Piece("" if role == "assistant" else "\n", number)
            if role == "assistant":
                yield self._end()

    def _chat(self, roles: Sequence[Role]) -> Iterator[_Piece]:
        """The pieces of the chat template. Raises `ModelError` unless every turn stands in it once."""
        marks = [f"\u241f{role}{number}\u241f" for number, role in enumerate(roles)]
        found = self.tokenizer.render([{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)])
        for number, mark in enumerate(marks):
            if found.count(mark) != 1:
                raise ModelError(
                    f"the chat template of the base model puts turn {number + 1} of {len(marks)} ({roles[number]}) "
                    f"{found.count(mark)} times into its text",
                    "correct chat_template.jinja in the model's folder: every message of a conversation stands in it "
                    "once",
                )
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", found)
        answered = False
        for text in pieces:
            if text in marks:
                number = marks.index(text)
                answered = roles[number] == "assistant"
                yield _Piece("", number)
            else:
                yield from self._after_answer(text) if answered else self._words(text)

    def _after_answer(self, text: str) -> Iterator[_Piece]:
        """Words of the template behind an answer: up to its end they are part of it."""
        before, end, behind = text.partition(self.answer_end.text)
        if not end:
            yield self._end()
            yield from self._words(text)
            return
        ids = tuple(self.tokenizer.with_special(before + end))
        yield _Piece(before + end, -1, ids, closes=True)
        yield from self._words(behind)

    def _words(self, text: str) -> Iterator[_Piece]:
        if text:
            yield _Piece(text, -1, tuple(self.tokenizer.with_special(text)))

    def _end(self) -> _Piece:
        return _Piece(self.answer_end.text, -1, (self.answer_end.id,), closes=True, added=True)


def _joined(turns: Turns, frame: Sequence[_Piece], bodies: Iterator[list[int]]) -> tuple[list[int], tuple[Span, ...]]:
    """The tokens of a frame with its turns, whose own tokens come in the order of their places."""
    ids: list[int] = []
    learnt: list[Span] = []
    start = -1
    for piece in frame:
        if piece.turn >= 0:
            start = len(ids) if turns[piece.turn].learnt else -1
            ids += next(bodies)
            continue
        ids += piece.ids
        if piece.closes and start >= 0:
            learnt.append((start, len(ids)))
            start = -1
    return ids, tuple(learnt)
