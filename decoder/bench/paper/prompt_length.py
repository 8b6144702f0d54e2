"""Prompts cut to a length, in characters as the paper does or in tokens. Knows no models."""

from bisect import bisect_right
from collections.abc import Callable, Sized

from decoder.bench.paper.asked import Unit


def cut(prompt: str, most: int, unit: Unit, encode: Callable[[str], Sized]) -> str:
    """How a prompt begins.

    Args:
        prompt: Of any length.
        most: Length of what is kept, in `unit`.
        unit: Characters, or tokens as `encode` counts them, with those that it adds.
        encode: Tokens of a text; not called where characters are counted.

    Returns:
        All of a short prompt; else a beginning that fits and with a further character does not. Nothing, where not even
        what `encode` adds to a text fits.
    """
    if unit == "characters":
        return prompt[:most]
    if len(encode(prompt)) <= most:
        return prompt
    # Of a text, not of its tokens: to decode a part of these may give a text that is encoded otherwise.
    fitting = bisect_right(range(len(prompt)), most, key=lambda end: len(encode(prompt[:end])))
    return prompt[: max(0, fitting - 1)]
