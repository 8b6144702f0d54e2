"""Whole numbers in lists, as options of measurements take them: 1x2,2x4. Knows nothing of what they mean."""

from contextlib import suppress

from decoder.errors import ConfigError, quoted, require

LARGEST = 1 << 20
"""Of all numbers in lists; beyond every model's context."""


def number_lists(option: str, text: str, *, example: str) -> tuple[tuple[int, ...], ...]:
    """Groups of whole numbers with commas between the groups, each of as many numbers as the example has.

    Raises:
        ConfigError: It is something else, or a number is too large.
    """
    groups = [part.strip().split("x") for part in text.split(",")]
    with suppress(ValueError):
        found = tuple(dict.fromkeys(tuple(map(int, group)) for group in groups))
        if all(len(group) == len(example.split("x")) for group in found):
            require(max(map(max, found)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return found
    raise ConfigError(f"{option} is {quoted(text)}; give {example}, or several with commas between them")
