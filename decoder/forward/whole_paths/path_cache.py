"""Cache of a module that computes whole paths, for one text: the module's own cache, and the tokens of drafted rows.

Drafted rows never enter the module's cache: each pass computes paths in copies of it. `keep` takes the copy of the
accepted path, without the rows after the path. If the module's cache cannot be shortened, or if an earlier pass
computed the path, the accepted tokens are read again before the next pass. Knows neither trees nor modules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from decoder.forward.kv_cache import KvCache
from decoder.forward.whole_paths.module_cache import keeps_all, nbytes, one_of, shortened


@dataclass(frozen=True)
class PathPass:
    """Results of a pass over paths."""

    state: Any
    """The module's cache after all paths, as a batch."""
    paths: Sequence[Sequence[int]]
    """Drafted rows of each path."""
    longest: int
    """Number of tokens that the pass computed for each path."""

    def after(self, path: Sequence[int]) -> Any | None:
        """The module's cache after a path; None if no path of the pass begins with `path`, or if later tokens cannot be
        removed from the cache.
        """
        number = next((each for each, known in enumerate(self.paths) if list(known[: len(path)]) == list(path)), None)
        if number is None:
            return None
        state = one_of(self.state, number)
        return state if shortened(state, self.longest - len(path)) else None


class PathCache(KvCache):
    """A cache whose rows are tokens; its tensor of keys and values stays empty."""

    def __init__(self, layers: int, capacity: int, catch_up: Callable[["PathCache"], None]) -> None:
        """Makes an empty cache; `catch_up` reads the committed tokens that the module's cache lacks."""
        super().__init__(torch.zeros((layers, 2, 0, capacity, 0)))
        self.text: list[int] = []
        """Committed tokens."""
        self.state: Any = None
        """The module's cache; None before its first pass."""
        self.read = 0
        """Number of committed tokens in `state`."""
        self.tokens: list[int] = []
        """Tokens of the drafted rows."""
        self.parents: list[int] = []
        """Parents of the drafted rows; see `with_parents`."""
        self.latest: PathPass | None = None
        """The latest pass over drafted rows."""
        self._catch_up = catch_up

    @property
    def nbytes(self) -> int:
        """See `KvCache`."""
        return nbytes(self.state) if self.read else 0

    def keep(self, rows: Sequence[int]) -> None:
        """See `KvCache`; the rows must be a path from the first row after the text."""
        path = [row - self.length for row in rows]
        self.text += [self.tokens[row] for row in path]
        after = self.latest.after(path) if self.latest and path else None
        if after is not None:
            self.state, self.read = after, len(self.text)
        self.forget()

    def forget(self) -> None:
        """Drops all drafted rows."""
        self.length = self.used = len(self.text)
        self.tokens, self.parents, self.latest = [], [], None

    def cut(self, length: int) -> None:
        """See `KvCache`; if the module's cache cannot be shortened so far, the next pass makes a new one."""
        if length < self.read:
            if keeps_all(self.state) and shortened(self.state, self.read - length):
                self.read = length
            else:
                self.state, self.read = None, 0
        self.text = self.text[:length]
        self.forget()

    def assume(self, length: int) -> None:
        """See `KvCache`."""
        self.cut(length)
        self.text += [0] * (length - len(self.text))
        self.forget()
        self._catch_up(self)
