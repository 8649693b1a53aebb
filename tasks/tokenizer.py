"""The tokenizer and chat template of a local model folder, read without torch or transformers.

`tokenizer.json` is what the model was trained with, and the `tokenizers` library reads it as it stands. A folder
without it (SentencePiece or vocabulary files alone) is read by transformers, which converts it and loads torch.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from specs.errors import ModelError

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
TEMPLATE_DAY = dt.datetime(2024, 7, 26)
"""What `strftime_now` gives a template, so that a sample's text does not change with the calendar.

It is the day that Llama's templates fall back to."""


class TextTokenizer(Protocol):
    """What the stages need of a tokenizer, whichever library reads it."""

    chat_template: str | None
    eos_token: str
    eos_token_id: int
    bos_token_id: int | None
    pad_token_id: int | None

    def with_special(self, text: str) -> list[int]:
        """Tokens of a text of the template, in which special tokens are special. Nothing is added."""

    def as_text(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts of the data, in which what looks like a special token is text. Nothing is added."""

    def control(self) -> Mapping[int, str]:
        """The tokens that mark texts and turns, and stand in no text of the data."""

    def render(self, messages: Sequence[Mapping[str, str]], asks: bool = True) -> str:
        """The messages in the chat template, with `asks` up to where the assistant begins to write."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of tokens."""


class FileTokenizer:
    """A `TextTokenizer` over `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import AddedToken, Tokenizer

        settings = _settings(folder)
        self.tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.special = {name: _content(settings[name]) for name in NAMED if settings.get(name)}
        known = self.tokenizer.get_vocab(with_added_tokens=True)
        wanted = [*self.special.values(), *map(_content, _extra(settings))]
        missing = [token for token in dict.fromkeys(wanted) if token not in known]
        self.tokenizer.add_special_tokens([AddedToken(token, special=True) for token in missing])
        self.chat_template = _chat_template(folder, settings)
        self._compiled: Callable[..., str] | None = None
        self._control = self._unmarked_control_tokens()
        self.eos_token = self.special.get("eos_token") or _no_end(folder)
        ids: dict[str, Any] = {name: self.tokenizer.token_to_id(token) for name, token in self.special.items()}
        self.eos_token_id = ids["eos_token"]
        self.bos_token_id, self.pad_token_id = ids.get("bos_token"), ids.get("pad_token")

    def _unmarked_control_tokens(self) -> dict[int, str]:
        """Added tokens that the chat template writes, though the folder does not mark them as special.

        The library would make them of data, too; `as_text` does not.
        """
        written = [self.chat_template or "", *self.special.values()]
        added = self.tokenizer.get_added_tokens_decoder().items()
        unmarked = {i: t.content for i, t in added if not t.special and len(t.content) > 1}
        return {i: content for i, content in unmarked.items() if any(content in text for text in written)}

    def with_special(self, text: str) -> list[int]:
        """Tokens of a text of the template."""
        self.tokenizer.encode_special_tokens = False
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def as_text(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts of the data."""
        self.tokenizer.encode_special_tokens = True
        found = [e.ids for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        if self._control:
            for number, ids in enumerate(found):
                if not self._control.keys().isdisjoint(ids):
                    found[number] = self._apart(texts[number])
        return found

    def _apart(self, text: str) -> list[int]:
        """Tokens of a text in which every control token is cut after its first character, so that it stays text."""
        pattern = "|".join(f"(?<={re.escape(c[0])})(?={re.escape(c[1:])})" for c in self._control.values())
        ids: list[int] = []
        for piece in re.split(pattern, text):
            ids += self.tokenizer.encode(piece, add_special_tokens=False).ids
        return ids

    def control(self) -> Mapping[int, str]:
        """The special tokens, and what the template writes like them."""
        added = self.tokenizer.get_added_tokens_decoder().items()
        return {**{number: token.content for number, token in added if token.special}, **self._control}

    def render(self, messages: Sequence[Mapping[str, str]], asks: bool = True) -> str:
        """The messages in the chat template. Raises `ModelError` for a template that cannot be rendered."""
        import jinja2

        try:
            if self._compiled is None:
                self._compiled = _compile(self.chat_template or "")
            return self._compiled(
                messages=[dict(m) for m in messages],
                tools=None,
                documents=None,
                add_generation_prompt=asks,
                **self.special,
            )
        except jinja2.TemplateError as error:
            raise _not_rendered(error) from error

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


class LibraryTokenizer:
    """A `TextTokenizer` over transformers, for folders that have no `tokenizer.json`. Loads torch."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        template = self.tokenizer.chat_template
        self.chat_template: str | None = template.get("default") if isinstance(template, dict) else template
        self.eos_token = str(self.tokenizer.eos_token or _no_end(folder))
        self.eos_token_id = int(self.tokenizer.eos_token_id)
        self.bos_token_id: int | None = self.tokenizer.bos_token_id
        self.pad_token_id: int | None = self.tokenizer.pad_token_id

    def with_special(self, text: str) -> list[int]:
        """Tokens of a text of the template."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def as_text(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of texts of the data."""
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True)[
            "input_ids"
        ]
        return ids

    def control(self) -> Mapping[int, str]:
        """The special tokens."""
        added = self.tokenizer.added_tokens_decoder.items()
        return {int(number): str(token) for number, token in added if token.special}

    def render(self, messages: Sequence[Mapping[str, str]], asks: bool = True) -> str:
        """The messages in the chat template."""
        import jinja2

        try:
            text: str = self.tokenizer.apply_chat_template(
                [dict(m) for m in messages], tokenize=False, add_generation_prompt=asks
            )
        except jinja2.TemplateError as error:
            raise _not_rendered(error) from error
        return text

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


def load_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of a local model folder; raises `ModelError` when there is none that can be used."""
    try:
        if (folder / "tokenizer.json").is_file():
            return FileTokenizer(folder)
        return LibraryTokenizer(folder)
    except ModelError:
        raise
    except Exception as error:  # `tokenizers` raises bare Exception for every broken file
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{folder} has no tokenizer that can be loaded: {first}",
            "the folder needs tokenizer.json and tokenizer_config.json",
        ) from error


def _not_rendered(error: Exception) -> ModelError:
    return ModelError(
        f"the chat template of the base model cannot be rendered: {error}",
        "correct chat_template.jinja in the model's folder, or take an instruction-tuned base model",
    )


def _no_end(folder: Path) -> NoReturn:
    raise ModelError(f"the tokenizer of {folder} has no end token", "set eos_token in tokenizer_config.json")


def _settings(folder: Path) -> dict[str, Any]:
    """`tokenizer_config.json` over the older `special_tokens_map.json`."""
    merged: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            merged.update(json.loads(path.read_text("utf-8")))
    return merged


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _extra(settings: Mapping[str, Any]) -> list[Any]:
    """Further special tokens by any of the names that the formats have had for them."""
    found: list[Any] = []
    for name in ("extra_special_tokens", "additional_special_tokens"):
        value = settings.get(name) or []
        found.extend(value.values() if isinstance(value, dict) else value)
    return found


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The file `chat_template.jinja`, else the entry of the configuration: one text, or several of which one is the
    default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text("utf-8")
    entry = settings.get("chat_template")
    if isinstance(entry, list):
        named = {str(item["name"]): str(item["template"]) for item in entry}
        return named.get("default")
    return str(entry) if entry else None


def _compile(template: str) -> Callable[..., str]:
    """A chat template as a function. Templates come from the internet: they run in a sandbox without writing."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the assistant writes; here it is only passed through."""

        tags = {"generation"}  # noqa: RUF012 - the name and form that jinja2 asks for

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False, **options})
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = TEMPLATE_DAY.strftime
    return environment.from_string(template).render
