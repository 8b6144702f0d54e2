"""Cache of a model with states, for one text: rows of keys and values, and the states after the committed rows.

A state cannot go back to an earlier token, so drafted rows never change it. Instead, the cache keeps the inputs that
the modules with states had for each drafted row, and `keep` runs only these modules again, over the accepted rows. If
the accepted path is a complete path of the latest pass, the states after it are known already. Knows neither trees nor
model libraries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from decoder.errors import PairError
from decoder.forward.kv_cache import KvCache

State = tuple[str, int, int]
"""(kind of the state, number of its layer, number among the layer's states of this kind)."""
States = Mapping[State, Tensor]
"""States of B texts or paths, each of shape (B, ...)."""


@dataclass
class OwnerCall:
    """One call of a module that owns a state, in a pass over drafted rows."""

    owner: int
    """Index of the module in the sequence of owners."""
    arguments: Any
    """Positional and named arguments of the latest call."""
    inputs: list[Float[Tensor, "N ..."]]
    """The tensors in the arguments that have one row per token; each contains the rows of all drafted tokens."""


@dataclass
class Drafted:
    """The drafted rows: their parents, and what passes computed for them."""

    parents: list[int] = field(default_factory=list)
    calls: list[OwnerCall] = field(default_factory=list)
    """Calls of the owners, in the order in which a pass makes them."""
    ends: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    """Index in the batch `after` of each path that the latest pass computed without padding."""
    after: States = field(default_factory=dict)
    """States after all paths of the latest pass, as a batch of paths."""


Replay = Callable[["StateCache", Sequence[int]], States]
"""(cache, rows of a path, numbered from the first drafted row) -> the states after the path, of batch size 1."""


class StateCache(KvCache):
    """A KV cache with states."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], replay: Replay) -> None:
        super().__init__(store)
        self.states: dict[State, Tensor] = {}
        """States after the committed rows, of batch size 1."""
        self.drafted = Drafted()
        self._replay = replay

    @property
    def nbytes(self) -> int:
        """See `KvCache`."""
        return super().nbytes + sum(state.nbytes for state in self.states.values())

    def keep(self, rows: Sequence[int]) -> None:
        """See `KvCache`; the rows must be a path from the first row after the text."""
        path = [row - self.length for row in rows]
        if path:
            self.states.update(self._after(path))
        super().keep(rows)
        self.drafted = Drafted()

    def cut(self, length: int) -> None:
        """See `KvCache`; raises PairError if committed rows would be dropped, since states cannot go back."""
        if length < self.length:
            raise PairError(
                "a draft whose layers keep states cannot read tokens again, as a selector requires; leave out the "
                "selector, or choose a draft whose layers all attend to cached keys and values"
            )
        super().cut(length)
        self.drafted = Drafted()

    def assume(self, length: int) -> None:
        """See `KvCache`."""
        super().assume(length)
        self.drafted = Drafted()

    def _after(self, path: Sequence[int]) -> States:
        number = self.drafted.ends.get(tuple(path))
        if number is None:
            return self._replay(self, path)
        return {state: _alone(after[number : number + 1]) for state, after in self.drafted.after.items()}


def _alone(state: Tensor) -> Tensor:
    """The state, or a copy if it is a slice of a larger tensor, so that the larger tensor can be freed."""
    return state if state.untyped_storage().nbytes() == state.nbytes else state.clone()
