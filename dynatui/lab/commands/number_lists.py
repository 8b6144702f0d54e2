"""Parses option values that are comma-separated lists of names or numbers, such as 0.5,1 or 1x2,2x4.

Knows nothing of the meaning of a list.
"""

from collections.abc import Iterable
from contextlib import suppress

from decoder.errors import ConfigError, quoted, require

LARGEST = 1 << 20
"""Larger than every model's context."""


def names(text: str) -> tuple[str, ...]:
    """Without duplicates and empty names."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, parts: Iterable[str], *, remedy: str) -> tuple[float, ...]:
    """Converts the parts of a list to numbers, without duplicates; raises ConfigError with the remedy."""
    with suppress(ValueError):
        return tuple(dict.fromkeys(map(float, parts)))
    raise ConfigError(f"{option} is {quoted(text)}; give {remedy}")


def number_lists(option: str, text: str, *, example: str) -> tuple[tuple[int, ...], ...]:
    """The groups of numbers in a list, without duplicates; each group must have as many numbers as the example."""
    parts = [part.strip().split("x") for part in text.split(",")]
    with suppress(ValueError):
        groups = tuple(dict.fromkeys(tuple(map(int, part)) for part in parts))
        if all(len(group) == len(example.split("x")) for group in groups):
            require(max(map(max, groups)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return groups
    raise ConfigError(f"{option} is {quoted(text)}; give values such as {example}, with commas between them")
