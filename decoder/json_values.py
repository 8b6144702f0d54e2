"""Numbers and texts in decoded JSON. JSON itself limits neither the digits of a number nor the length of a text."""

from collections.abc import Iterator, Mapping, Sequence

LARGEST = 2**64
"""Sums and squares of numbers up to this bound stay finite."""


def leaves(value: object) -> Iterator[object]:
    """Keys of all objects, and all values that are neither a list nor an object, in no particular order."""
    unread = [value]
    while unread:
        value = unread.pop()
        if isinstance(value, Mapping):
            unread += (*value, *value.values())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            unread += value
        else:
            yield value


def too_large(value: object) -> int | float | None:
    """A number in `value` that is NaN or whose absolute value exceeds `LARGEST`; None if there is no such number."""
    numbers = (leaf for leaf in leaves(value) if isinstance(leaf, int | float))
    return next((number for number in numbers if not abs(number) <= LARGEST), None)
