"""Texts in the two languages of a project, and the one place where a language is chosen for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specs.base import Language


class Texts(Mapping[str, tuple[str, str]]):
    """Texts by key, each in English and in Chinese; called with a language and a key, one of them with values in it."""

    def __init__(self, texts: Mapping[str, tuple[str, str]]) -> None:
        self._texts = texts

    def __call__(self, language: Language, key: str, /, **values: object) -> str:
        """One text. Raises `KeyError` for an unknown key, and for a value that the text needs and that is not given."""
        english, chinese = self._texts[key]
        return (chinese if language == "zh" else english).format(**values)

    def __getitem__(self, key: str) -> tuple[str, str]:
        return self._texts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
