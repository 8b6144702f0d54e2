"""Lists of names and numbers with commas between them, as options of measurements take them: 0.5,1 or 1x2,2x4.

Knows nothing of the meaning of a list.
"""

from collections.abc import Iterable
from contextlib import suppress

from decoder.errors import ConfigError, quoted, require

LARGEST = 1 << 20
"""Largest number of a list; larger than every model's context."""


def names(text: str) -> tuple[str, ...]:
    """The distinct names of a list; blanks are left out."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, parts: Iterable[str], *, remedy: str) -> tuple[float, ...]:
    """The distinct numbers of a list that is split into parts already.

    Raises:
        ConfigError: A part is no number; the message names the option with its text, and the remedy.
    """
    with suppress(ValueError):
        return tuple(dict.fromkeys(map(float, parts)))
    raise ConfigError(f"{option} is {quoted(text)}; give {remedy}")


def number_lists(option: str, text: str, *, example: str) -> tuple[tuple[int, ...], ...]:
    """The distinct groups of a list, each of as many whole numbers with an x between them as the example has.

    Raises:
        ConfigError: A group is something else, or a number is too large.
    """
    parts = [part.strip().split("x") for part in text.split(",")]
    with suppress(ValueError):
        groups = tuple(dict.fromkeys(tuple(map(int, part)) for part in parts))
        if all(len(group) == len(example.split("x")) for group in groups):
            require(max(map(max, groups)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return groups
    raise ConfigError(f"{option} is {quoted(text)}; give {example}, or several with commas between them")
