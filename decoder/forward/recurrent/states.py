"""Paths of drafted rows, and the cache of a model with states. Rows are numbered from the first row after the committed
text; a parent has a lower number. A state cannot be reset, so drafted rows never change committed states: the cache
keeps the inputs of modules with states for each drafted row, and `keep` runs only these modules again over the accepted
rows, unless the accepted rows are a complete path of the latest pass. Independent of model libraries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.kv_cache import KvCache

NO_PARENT = -1


def with_parents(parents: Sequence[int], visible: Bool[np.ndarray, "N M"]) -> list[int]:
    """`parents`, followed by the parents of N new rows. Raises ValueError unless each new row attends to one path."""
    count, recent = visible.shape
    total = len(parents) + count
    drafted = min(recent, total)
    seen = np.ones((count, total), dtype=np.bool_)
    seen[:, total - drafted :] = visible[:, recent - drafted :]
    earlier = seen & np.tri(count, total, len(parents) - 1, dtype=np.bool_)
    nearest = np.where(earlier.any(1), total - 1 - earlier[:, ::-1].argmax(1), NO_PARENT)
    known = [*parents, *nearest.tolist()]
    depths: list[int] = []
    for parent in known:
        depths.append(1 if parent == NO_PARENT else 1 + depths[parent])
    if not visible[:, : recent - drafted].all() or (seen.sum(1) != depths[len(parents) :]).any():
        raise ValueError(
            "each row of a model that computes paths must attend to the whole text and to the rows of one path"
        )
    return known


def path_to(row: int, parents: Sequence[int]) -> list[int]:
    path = []
    while row != NO_PARENT:
        path.append(row)
        row = parents[row]
    return path[::-1]


@dataclass(frozen=True)
class PathBatch:
    paths: Sequence[Sequence[int]]
    """B paths to the leaves among the new rows."""
    padded: Int[np.ndarray, "B T"]
    """The paths, padded to one length: a shorter path repeats its last row, which does not affect earlier rows."""
    places: Int[np.ndarray, "N"]
    """Index of each new row among the B x T rows of `padded`."""

    @property
    def unpadded(self) -> dict[tuple[int, ...], int]:
        """Index in the batch of each path that is not padded."""
        longest = self.padded.shape[1]
        return {tuple(path): number for number, path in enumerate(self.paths) if len(path) == longest}


def path_batch(parents: Sequence[int], first: int) -> PathBatch:
    """Paths that cover the row `first` and all later rows."""
    inner = set(parents)
    paths = [path_to(row, parents) for row in range(first, len(parents)) if row not in inner]
    longest = max(map(len, paths))
    padded = np.array([[*path, *[path[-1]] * (longest - len(path))] for path in paths])
    places = {row: index for index, row in reversed(list(enumerate(padded.flat)))}
    return PathBatch(paths, padded, np.array([places[row] for row in range(first, len(parents))]))


State = tuple[str, int, int]
"""(kind of the state, number of its layer, number among the layer's states of this kind)."""
States = Mapping[State, Tensor]
"""States of B texts or paths, each of shape (B, ...)."""


@dataclass
class OwnerCall:
    """One call of a module that owns a state, in a pass over drafted rows."""

    owner: int
    arguments: Any
    """Positional and named arguments of the latest call."""
    inputs: list[Float[Tensor, "N ..."]]
    """The arguments that have one row per token, with the rows of all drafted tokens."""


@dataclass
class Drafted:
    parents: list[int] = field(default_factory=list)
    calls: list[OwnerCall] = field(default_factory=list)
    """Calls of owners, in the order in which a pass makes them."""
    ends: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    """Index in the batch `after` of each path that the latest pass computed without padding."""
    after: States = field(default_factory=dict)


Replay = Callable[["StateCache", Sequence[int]], States]
"""(cache, rows of a path, numbered from the first drafted row) -> states after the path, of batch size 1."""


class StateCache(KvCache):
    def __init__(self, store: Float[Tensor, "L 2 H S D"], replay: Replay) -> None:
        super().__init__(store)
        self.states: dict[State, Tensor] = {}
        """States after the committed rows, of batch size 1."""
        self.drafted = Drafted()
        self._replay = replay

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(state.nbytes for state in self.states.values())

    def keep(self, rows: Sequence[int]) -> None:
        """The rows must be a path that begins directly after the committed text."""
        path = [row - self.length for row in rows]
        if path:
            self.states.update(self._after(path))
        super().keep(rows)
        self.drafted = Drafted()

    def cut(self, length: int) -> None:
        """Raises PairError if `length` would drop committed rows: a state cannot be reset to an earlier state."""
        if length < self.length:
            raise PairError(
                "a selector makes the draft read tokens again, which a draft whose layers keep states cannot do; leave "
                "out the selector, or choose a draft whose layers all attend to cached keys and values"
            )
        super().cut(length)
        self.drafted = Drafted()

    def assume(self, length: int) -> None:
        super().assume(length)
        self.drafted = Drafted()

    def _after(self, path: Sequence[int]) -> States:
        number = self.drafted.ends.get(tuple(path))
        if number is None:
            return self._replay(self, path)
        return {state: _alone(after[number : number + 1]) for state, after in self.drafted.after.items()}


def _alone(state: Tensor) -> Tensor:
    """The state, copied if it is a slice of a larger tensor, so that the larger tensor can be freed."""
    return state if state.untyped_storage().nbytes() == state.nbytes else state.clone()
