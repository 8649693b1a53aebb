"""From a sample's prompt and answer to the text and tokens that are trained on. One code for every stage.

Prompt and answer are tokenised apart and joined, so that the boundary between what is masked and what is learnt
is exact, and text inside data that looks like a special token stays text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specs.errors import ModelError


@dataclass(frozen=True)
class Encoded:
    """Token ids of one sample; `input_ids[trainable_from:]` are learnt, the end token included."""

    input_ids: list[int]
    trainable_from: int


class PromptTemplate:
    """Renders and encodes samples with the chat template of a base model, or plainly where it has none."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token

    @classmethod
    def load(cls, base_model: Path) -> PromptTemplate:
        """The template of a local model folder; raises `ModelError` when it has no usable tokenizer."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(base_model, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{base_model} has no tokenizer that can be loaded: {str(error).splitlines()[0]}",
                "the folder needs tokenizer.json and tokenizer_config.json",
            ) from error
        if tokenizer.eos_token is None:
            raise ModelError(
                f"the tokenizer of {base_model} has no end token", "set eos_token in tokenizer_config.json"
            )
        return cls(tokenizer)

    def prefix(self, prompt: str) -> str:
        """What stands before the answer. A sample without a prompt is plain text: nothing stands before it."""
        if not prompt:
            return ""
        if not self.tokenizer.chat_template:
            return prompt + "\n"
        rendered: str = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK}], tokenize=False, add_generation_prompt=True
        )
        return rendered.replace(_MARK, prompt)

    def text(self, prompt: str, answer: str) -> str:
        """The whole text of a sample, end token included."""
        return f"{self.prefix(prompt)}{answer}{self.end}"

    def encode(self, prompt: str, answer: str) -> Encoded:
        """Tokens of a sample. Only the template's own special tokens become special tokens."""
        before = self.encode_prompt(prompt)
        after = [*self._plain(answer), self.tokenizer.eos_token_id]
        return Encoded(before + after, len(before))

    def encode_prompt(self, prompt: str) -> list[int]:
        """Tokens before the answer, for generation."""
        if not prompt:
            return []
        if not self.tokenizer.chat_template:
            return self._plain(prompt + "\n")
        frame = self.prefix(_MARK)
        head, _, tail = frame.partition(_MARK)
        return self._special(head) + self._plain(prompt) + self._special(tail)

    def _special(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return ids


_MARK = "\u241fPROMPT\u241f"
