"""From a sample's prompt and answer to the text and tokens that are trained on. One code for every stage.

Prompt and answer are tokenised apart and joined, so that the boundary between what is masked and what is learnt
is exact, and text inside data that looks like a special token stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specs.errors import ModelError
from tasks.tokenizer import TextTokenizer, load_tokenizer


@dataclass(frozen=True)
class Encoded:
    """Token ids of one sample; `input_ids[trainable_from:]` are learnt, the end token included."""

    input_ids: list[int]
    trainable_from: int


class PromptTemplate:
    """Renders and encodes samples with the chat template of a base model, or plainly where it has none."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token
        frame = tokenizer.render([{"role": "user", "content": _MARK}]) if tokenizer.chat_template else f"{_MARK}\n"
        if frame.count(_MARK) != 1:
            raise ModelError(
                f"the chat template of the base model puts the prompt {frame.count(_MARK)} times into its text",
                "correct chat_template.jinja in the model's folder: a user message stands in it once",
            )
        self.before, _, self.after = frame.partition(_MARK)
        special = tokenizer.chat_template is not None
        self._before = tokenizer.with_special(self.before) if special else []
        self._after = tokenizer.with_special(self.after) if special else []
        self._joined = "" if special else self.after

    @classmethod
    def load(cls, base_model: Path) -> PromptTemplate:
        """The template of a local model folder; raises `ModelError` when it has no usable tokenizer."""
        return cls(load_tokenizer(base_model))

    def prefix(self, prompt: str) -> str:
        """What stands before the answer. A sample without a prompt is plain text: nothing stands before it."""
        return f"{self.before}{prompt}{self.after}" if prompt else ""

    def text(self, prompt: str, answer: str) -> str:
        """The whole text of a sample, end token included."""
        return f"{self.prefix(prompt)}{answer}{self.end}"

    def encode(self, prompt: str, answer: str) -> Encoded:
        """Tokens of a sample. Only the template's own special tokens become special tokens."""
        return self.encode_many([prompt], [answer])[0]

    def encode_many(self, prompts: Sequence[str], answers: Sequence[str]) -> list[Encoded]:
        """Tokens of samples: as `encode` gives them one by one, in one call of the tokenizer."""
        heads = self._heads(prompts)
        tails = self.tokenizer.as_text(answers)
        return [
            Encoded([*head, *tail, self.tokenizer.eos_token_id], len(head))
            for head, tail in zip(heads, tails, strict=True)
        ]

    def encode_prompt(self, prompt: str) -> list[int]:
        """Tokens before the answer, for generation."""
        return self._heads([prompt])[0]

    def _heads(self, prompts: Sequence[str]) -> list[list[int]]:
        bodies = self.tokenizer.as_text([prompt + self._joined if prompt else "" for prompt in prompts])
        return [
            [*self._before, *body, *self._after] if prompt else [] for prompt, body in zip(prompts, bodies, strict=True)
        ]


_MARK = "\u241fPROMPT\u241f"
