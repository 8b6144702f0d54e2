"""Passes of a target over several processes: the leader sends each to the followers, which replay it.

Followers do not see the operations on the leader's cache between two passes; they see the cache's state when a pass
begins. The engine uses the leader like a model in a single process. Knows nothing of drafts and texts.
"""

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import LostRankError
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward
from decoder.system.device import memory_is_full, peak_bytes
from decoder.tensor_parallel.channel import END, PEAK, Channel, Pass, reason

Result = TypeVar("Result")


class LeaderCache(KvCache):
    """The leader's cache, which records how its rows moved since the previous pass."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], number: int) -> None:
        super().__init__(store)
        self.number = number
        self._origins: dict[int, int] = {}
        """For each row that was overwritten since the previous pass, the row that held its present contents after that
        pass.
        """

    def place(self, first: int, rows: Sequence[int]) -> None:
        self._origins |= {first + index: self._origins.get(row, row) for index, row in enumerate(rows)}
        super().place(first, rows)

    def take_moves(self) -> list[tuple[int, int]]:
        """Pairs (new index, old index); clears the record."""
        moves = [(row, origin) for row, origin in self._origins.items() if row < self.used and row != origin]
        self._origins = {}
        return moves


class Leader:
    """A `Forward` that runs in several processes; each process has its own part of the target.

    After a failed pass the caches of the ranks differ, so all further passes are refused.
    """

    def __init__(self, own: Forward, channel: Channel, devices: Sequence[str]) -> None:
        self.devices = devices
        """By rank."""
        self._own = own
        self._channel = channel
        self._numbers = itertools.count()
        self._gone: deque[int] = deque()
        """Numbers of the caches that were garbage-collected since the last pass."""
        self._fault: LostRankError | None = None

    def new_cache(self, capacity: int) -> KvCache:
        own = self._own.new_cache(capacity)
        cache = LeaderCache(own.store, next(self._numbers))
        cache.positions = own.positions
        weakref.finalize(cache, self._gone.append, cache.number)
        return cache

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Float[Tensor, "N V"]:
        """See `Forward`; raises LostRankError if a rank has failed or was lost."""
        assert isinstance(cache, LeaderCache), "the cache must have been made by this leader"  # noqa: S101 - a programmer's mistake

        def run() -> Tensor:
            message = Pass(
                cache.number,
                cache.capacity,
                cache.used,
                moved=cache.take_moves(),
                gone=[self._gone.popleft() for _ in range(len(self._gone))],
                tokens=tokens,
                positions=positions,
                visible=visible,
            )
            self._channel.send(message)
            return self._own.forward(cache, tokens, positions, visible)

        return self._together(run)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits

    def peak_bytes(self) -> list[int]:
        """By rank; raises LostRankError if a rank has failed or was lost."""

        def ask() -> list[int]:
            self._channel.send(PEAK)
            return self._channel.gather(peak_bytes(torch.device(self.devices[0])))

        return self._together(ask)

    def _together(self, work: Callable[[], Result]) -> Result:
        """Runs work in which all ranks take part; after a failure, raises the same error for all later work."""
        if self._fault:
            raise self._fault
        try:
            return work()
        except BaseException as error:  # an interruption also leaves the ranks with different caches
            self._fault = self._failed(error)
            if isinstance(error, RuntimeError) and not memory_is_full(error):
                raise self._fault from error
            raise

    def _failed(self, error: BaseException) -> LostRankError:
        return LostRankError(
            f"the {len(self.devices)} processes of the target cannot go on: {reason(error)}; a process may have "
            "ended; start again"
        )


@torch.inference_mode()
def replay(channel: Channel, own: Forward, device: torch.device) -> None:
    caches: dict[int, KvCache] = {}
    while (message := channel.receive()) != END:
        if isinstance(message, Pass):
            replay_pass(caches, own, message)
        elif message == PEAK:
            channel.gather(peak_bytes(device))


def replay_pass(caches: dict[int, KvCache], own: Forward, message: Pass) -> None:
    """`caches` maps cache numbers to this rank's counterparts."""
    for number in message.gone:
        caches.pop(number, None)  # a cache that the leader has not used was never created here
    if message.cache not in caches:
        caches[message.cache] = own.new_cache(message.capacity)
    cache = caches[message.cache]
    follow(cache, message.capacity, message.used, message.moved)
    own.forward(cache, message.tokens, message.positions, message.visible)


def follow(cache: KvCache, capacity: int, used: int, moved: Sequence[tuple[int, int]]) -> None:
    """Brings a follower's cache from its state after the previous pass to the leader's state before the next pass."""
    cache.reserve(capacity)
    if moved:
        rows, origins = zip(*moved, strict=True)
        cache.gather(rows, origins)
    cache.used = used
