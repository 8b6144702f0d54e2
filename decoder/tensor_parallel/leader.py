"""The leader's `Forward`: sends each pass to the followers, then runs the leader's part of the pass.

The engine uses this `Forward` like a model in a single process. Knows nothing of drafts and texts.
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
from decoder.tensor_parallel.channel import Channel, reason
from decoder.tensor_parallel.messages import Pass, Peak, encode
from decoder.tensor_parallel.rows import LeaderCache

Result = TypeVar("Result")


class Leader:
    """A `Forward` that runs in several processes; each process has its own part of the target.

    After a failed pass the caches of the ranks differ, so all further passes are refused.
    """

    def __init__(self, own: Forward, channel: Channel, devices: Sequence[str]) -> None:
        self.devices = devices
        """Device of each rank."""
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
        """See `Forward`.

        Raises:
            LostRankError: A rank has failed or was lost.
        """

        def run() -> Tensor:
            self._send(cache, tokens, positions, visible)
            return self._own.forward(cache, tokens, positions, visible)

        return self._together(run)

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        logits = self.forward(cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))[-1]
        cache.keep(positions)
        return logits

    def peak_bytes(self) -> list[int]:
        """Peak memory use so far in bytes, by rank.

        Raises:
            LostRankError: A rank has failed or was lost.
        """

        def ask() -> list[int]:
            self._channel.send(encode(Peak()))
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

    def _send(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> None:
        assert isinstance(cache, LeaderCache), "the cache must have been made by this leader"  # noqa: S101 - a programmer's mistake
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        message = Pass(
            cache.number,
            cache.capacity,
            cache.used,
            moved=cache.take_moves(),
            gone=gone,
            tokens=tokens,
            positions=positions,
            visible=visible,
        )
        self._channel.send(encode(message))

    def _failed(self, error: BaseException) -> LostRankError:
        return LostRankError(
            f"the {len(self.devices)} processes of the target cannot go on: {reason(error)}; a process may have "
            "ended; start again"
        )
