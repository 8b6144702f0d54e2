"""Numbers and texts in decoded JSON, which limits neither digits nor lengths."""

from collections.abc import Iterator, Mapping, Sequence

LARGEST = 2**64
"""Sums and squares of such numbers stay finite."""


def leaves(value: object) -> Iterator[object]:
    """Keys of tables, and values that are neither list nor table, in no particular order."""
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
    """A number whose absolute value is above `LARGEST`."""
    numbers = (leaf for leaf in leaves(value) if isinstance(leaf, int | float))
    return next((number for number in numbers if not abs(number) <= LARGEST), None)
