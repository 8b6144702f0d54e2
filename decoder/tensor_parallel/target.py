"""A target over several processes: the leader loads it on all ranks and sends each pass to the followers, which
replay it.
"""

import atexit
import itertools
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.errors import DeviceError, LostRankError, first_line
from decoder.forward.hf_module import HfModule
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.forward.protocol import Forward
from decoder.models.checkpoints import display_name
from decoder.models.load_progress import Tell, downloading
from decoder.system.device import memory_is_full, peak_bytes, set_up
from decoder.system.libraries import imported
from decoder.tensor_parallel.check import rank_device, require_spreadable
from decoder.tensor_parallel.ranks import Ranks

T = TypeVar("T")
_SOURCE_LINE = re.compile(r"^\[\S+:\d+\] ")
ENDLESS = timedelta(days=3650)
"""Timeout of all process groups: practically none, since a leader sends nothing while it is paused."""
_CLOSED_WITHIN_S = 1.0


@dataclass(frozen=True)
class PassCommand:
    """Command to run one forward pass. It includes the complete state of the cache before the pass, so that operations
    on a cache need no messages of their own.
    """

    cache: int
    """Number of the cache; a new number means an empty cache."""
    capacity: int
    used: int
    """Number of rows in use before the pass."""
    moved: Sequence[tuple[int, int]]
    """Rows that were moved since the previous pass, as pairs (new index, old index)."""
    gone: Sequence[int]
    tokens: Sequence[int]
    positions: Sequence[int]
    visible: NDArray[np.bool_]
    """Attention mask, shape (N, M); see `LanguageModel.forward`."""


PEAK, END = "peak", "end"
Message: TypeAlias = PassCommand | torch.dtype | str
"""A pass; a dtype, in which the target is to be loaded; `PEAK`, which asks every rank for its peak memory; or `END`."""


class Channel:
    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        """Connects this rank to all others; waits until all have joined. Raises DeviceError if the connection fails."""
        self._count = ranks.count
        on_gpu = device.type == "cuda"
        try:
            dist.init_process_group("nccl" if on_gpu else "gloo", timeout=ENDLESS, device_id=device if on_gpu else None)
            self._group = dist.new_group(backend="gloo", timeout=ENDLESS)
        except (RuntimeError, ValueError) as error:
            raise DeviceError(
                f"the {ranks.count} processes of the target cannot reach each other: {reason(error)}; let torchrun "
                "set MASTER_ADDR and MASTER_PORT, or choose another port"
            ) from error

    def send(self, message: Message) -> None:
        dist.broadcast_object_list([message], 0, group=self._group)

    def receive(self) -> Message:
        messages: list[Any] = [None]
        dist.broadcast_object_list(messages, 0, group=self._group)
        message: Message = messages[0]
        return message

    def gather(self, own: T) -> list[T]:
        """The values of all ranks, in the order of ranks; each rank calls this method with its own value."""
        values: list[T] = [own] * self._count
        dist.all_gather_object(values, own, group=self._group)
        return values

    def release(self) -> None:
        """Ends the followers; only the leader calls this method.

        The process would abort if torch's threads freed tensors after Python had shut down, so these threads are ended
        here, unless one still waits for another rank.
        """
        with suppress(RuntimeError):  # a follower may have ended already
            self.send(END)
        closing = threading.Thread(target=dist.destroy_process_group, name="closing", daemon=True)
        closing.start()
        closing.join(_CLOSED_WITHIN_S)


def reason(error: BaseException) -> str:
    """Torch's error about a connection, without its source line number."""
    return _SOURCE_LINE.sub("", first_line(error)).partition(". ")[0]


class LeaderCache(KvCache):
    """The leader's cache, which records how its rows moved since the previous pass."""

    def __init__(self, store: Float[Tensor, "L 2 H S D"], number: int) -> None:
        super().__init__(store)
        self.number = number
        self._origins: dict[int, int] = {}
        """For each row that was overwritten since the previous pass: where its new contents were after that pass."""

    def place(self, first: int, rows: Sequence[int]) -> None:
        self._origins |= {first + index: self._origins.get(row, row) for index, row in enumerate(rows)}
        super().place(first, rows)

    def take_moves(self) -> list[tuple[int, int]]:
        """Pairs (new index, old index) of all moved rows; clears the record."""
        moves = [(row, origin) for row, origin in self._origins.items() if row < self.used and row != origin]
        self._origins = {}
        return moves


class Leader(Forward):
    """The leader's form of a target that runs in several processes, each with a part of the weights.

    After a failed pass the caches of the ranks differ, so all further passes are refused.
    """

    def __init__(self, own: Forward, channel: Channel, devices: Sequence[str]) -> None:
        self.devices = devices
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
            message = PassCommand(
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
        """Peak memory of each rank; raises LostRankError if a rank has failed or was lost."""

        def ask() -> list[int]:
            self._channel.send(PEAK)
            return self._channel.gather(peak_bytes(torch.device(self.devices[0])))

        return self._together(ask)

    def _together(self, work: Callable[[], T]) -> T:
        """Runs work that needs all ranks. After a failure, each later call raises the same LostRankError."""
        if self._fault:
            raise self._fault
        try:
            return work()
        except BaseException as error:  # an interruption also leaves the ranks with different caches
            self._fault = LostRankError(
                f"the {len(self.devices)} processes of the target cannot go on: {reason(error)}; a process may have "
                "ended; start again"
            )
            if isinstance(error, RuntimeError) and not memory_is_full(error):
                raise self._fault from error
            raise


@torch.inference_mode()
def follow_leader(channel: Channel, own: Forward, device: torch.device) -> None:
    caches: dict[int, KvCache] = {}
    while (message := channel.receive()) != END:
        if isinstance(message, PassCommand):
            replay_pass(caches, own, message)
        elif message == PEAK:
            channel.gather(peak_bytes(device))


def replay_pass(caches: dict[int, KvCache], own: Forward, message: PassCommand) -> None:
    """Runs the leader's pass on this rank; `caches` maps the numbers of the leader's caches to this rank's caches."""
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


def part_of(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell = lambda _: None) -> Any:
    """This rank's part of the target's module. A pass in which all ranks take part gives the target's logits."""
    set_up(device, dtype)
    return imported("decoder.models.hf_checkpoints").load_module(name, dtype, device, tell, ranks=ranks.count)


def load_over(ranks: Ranks, name: str, device: torch.device, dtype: torch.dtype, tell: Tell) -> LanguageModel:
    """Called by the leader: loads the target on all ranks. When the leader's process ends, the followers end too.

    Raises ConfigError if transformers cannot divide the target; also ModelError and DeviceError, as `load_module`.
    """
    require_spreadable(name, imported("decoder.models.hf_checkpoints").load_config(name), ranks, device)
    channel = Channel(ranks, device)
    atexit.register(channel.release)
    devices = channel.gather(str(device))
    channel.send(dtype)
    hf = imported("decoder.forward.hf")
    with downloading(name, tell):
        module = part_of(ranks, name, device, dtype, tell)
    # `source` is None, so that no other forward form is made from the source's weights: other forms need all weights,
    # and a rank has only a part of them.
    traits = replace(hf.traits_of(module), source=None)
    model = LanguageModel(display_name(name), traits, HfModule(traits))
    model.ranks = leader = Leader(hf.ModuleForward(module), channel, devices)
    model.run_by(leader)
    return model


def serve(ranks: Ranks, target: str, device: str) -> NoReturn:
    """Loads this rank's part of the target and replays the leader's passes; ends this process when the leader ends.

    Raises:
        DecoderError: There is no such device, the target cannot be loaded, or a pass or another process has failed.
    """
    place = rank_device(ranks, device)
    channel = Channel(ranks, place)
    channel.gather(str(place))
    try:
        dtype = channel.receive()
        if isinstance(dtype, torch.dtype):  # else the leader has already ended
            module = part_of(ranks, target, place, dtype)
            follow_leader(channel, imported("decoder.forward.hf").ModuleForward(module), place)
    except RuntimeError as error:
        raise LostRankError(f"process {ranks.rank} of the target cannot go on: {reason(error)}; start again") from error
    os._exit(0)  # Python's usual shutdown would wait for threads that wait for other processes
