"""The embedded pair on the beginnings of books that it was not trained on, in float32."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Round

LETTERS = 600
"""Of a book's beginning."""


@cache
def engine() -> Engine:
    """The pair."""
    return load_pair(dtype="float32", device="cpu")


@cache
def beginnings() -> tuple[str, ...]:
    """Of ten books.

    Raises:
        ConfigError: They are not there.
    """
    folder = os.environ.get("DYNATUI_DATA", "")
    texts = sorted(Path(folder, "books_test").glob("*.txt")) if folder else []
    if not texts:
        raise ConfigError("the variable DYNATUI_DATA names no folder with books_test/; set it to one that has it")
    return tuple(text.read_text(encoding="utf-8")[:LETTERS] for text in texts)


def written(config: RunConfig, place: int) -> dict[str, list[int]]:
    """The tokens that each method goes on with after one of the beginnings, which are taken in turn."""
    prompts = beginnings()
    tokens: dict[str, list[int]] = {name: [] for name in config.methods}
    for event in _rounds(config, prompts[place % len(prompts)]):
        tokens[event.method] += event.committed
    return tokens


def _rounds(config: RunConfig, prompt: str) -> Iterator[Round]:
    return (event for event in decode(engine(), prompt, config) if isinstance(event, Round))
