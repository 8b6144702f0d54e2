"""The embedded pair in float32 on openings of books that are not in its training data."""

import os
from collections import Counter
from functools import cache
from pathlib import Path

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Round

LETTERS = 600
"""Number of characters of a book's opening."""


@cache
def engine() -> Engine:
    """The embedded pair in float32."""
    return load_pair(dtype="float32", device="cpu")


@cache
def beginnings() -> tuple[str, ...]:
    """Openings of ten books.

    Raises:
        ConfigError: The folder with the books does not exist.
    """
    folder = os.environ.get("DYNATUI_DATA", "")
    texts = sorted(Path(folder, "books_test").glob("*.txt")) if folder else []
    if not texts:
        raise ConfigError("the variable DYNATUI_DATA names no folder with books_test/; set it to one that has it")
    return tuple(text.read_text(encoding="utf-8")[:LETTERS] for text in texts)


def written(config: RunConfig, seed: int) -> dict[str, list[int]]:
    """Tokens of each method of a run; the seed also selects the opening."""
    own = RunConfig(config.methods, config.max_new_tokens, seed, parameters=config.parameters)
    tokens: dict[str, list[int]] = {name: [] for name in config.methods}
    prompts = beginnings()
    for event in decode(engine(), prompts[seed % len(prompts)], own):
        if isinstance(event, Round):
            tokens[event.method] += event.committed
    return tokens


def identical(config: RunConfig, seeds: range) -> Counter[str]:
    """Number of texts of full length that equal those of `ar`, by method."""
    found: Counter[str] = Counter()
    for seed in seeds:
        tokens = written(config, seed)
        whole = len(tokens["ar"]) == config.max_new_tokens
        found.update(name for name in config.methods if whole and tokens[name] == tokens["ar"])
    return found
