"""Append-only sequences. Successive versions share one list: each version stores a reference to the list and its own
length, since copying the list for each version would take time quadratic in the length of a text.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class SharedList(Sequence[T], Generic[T]):
    """A view of the first items of a shared list, to which other views may have appended more items."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def plus(self, more: Iterable[T]) -> "SharedList[T]":
        """Returns a view extended by `more`; copies the list only if another view has already extended the list."""
        items = self._items if len(self._items) == self._length else self._items[: self._length]
        items.extend(more)
        longer: SharedList[T] = SharedList.__new__(SharedList)
        longer._items, longer._length = items, len(items)
        return longer

    def begins_with(self, other: "SharedList[T]") -> bool:
        """Whether this view begins with the items of `other`; compares items only if the views use different lists."""
        if len(self) < len(other):
            return False
        return self.continues(other) or self[: len(other)] == other[:]

    def continues(self, other: "SharedList[T]") -> bool:
        return self._items is other._items  # noqa: SLF001 - another instance of the same class

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            first, last, step = index.indices(self._length)
            quick = step > 0  # with a negative step, `last` may be -1, which a slice would take for the last index
            return tuple(self._items[first:last:step] if quick else (self._items[i] for i in range(first, last, step)))
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[T]:
        return (self._items[place] for place in range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class TokenLog:
    """Tokens of a text, and the number of distinct 8-grams among them, counted incrementally."""

    __slots__ = ("_first_at", "distinct", "tokens")

    RUN = 8

    def __init__(self) -> None:
        self.tokens: SharedList[int] = SharedList()
        self.distinct = 0
        self._first_at: dict[tuple[int, ...], int] = {}
        """Index of the first occurrence of each 8-gram; shared by all logs whose tokens are views of one list."""

    @property
    def runs(self) -> int:
        """Number of 8-grams, duplicates included."""
        return max(0, len(self.tokens) - self.RUN + 1)

    def plus(self, more: Sequence[int]) -> "TokenLog":
        longer = TokenLog()
        longer.tokens = self.tokens.plus(more)
        branched = not longer.tokens.continues(self.tokens)
        longer._first_at, longer.distinct = ({}, 0) if branched else (self._first_at, self.distinct)
        begin = 0 if branched else self.runs
        tail = longer.tokens[begin:]
        for start in range(begin, longer.runs):
            run = tail[start - begin : start - begin + self.RUN]
            longer.distinct += longer._first_at.setdefault(run, start) == start
        return longer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenLog) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)
