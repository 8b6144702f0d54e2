"""An engine with a tensor-parallel target, and a follower in the same process that replays each message at once.

Each side has the whole model, because the tests check only their messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.hf import ModuleForward, traits_of
from decoder.forward.hf_module import HfModule
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.tensor_parallel.target import Leader, Message, PassCommand, replay_pass
from tests.decoder.makers import TinyModels


@dataclass
class Replaying:
    """Replaces the channel by a follower that replays at once, and records the messages."""

    own: ModuleForward
    caches: dict[int, KvCache] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    before: Callable[[int], None] = lambda _passes: None

    def send(self, message: Message) -> None:
        self.messages.append(message)
        self.before(len(self.messages))
        if isinstance(message, PassCommand):
            replay_pass(self.caches, self.own, message)

    def gather(self, number: int) -> list[int]:
        return [number, number + 1]


class Compared:
    """The leader's forward pass; compares the leader's cache with the follower's after each pass."""

    def __init__(self, own: ModuleForward, follower: Replaying) -> None:
        self._own, self._follower = own, follower
        self.passes = 0

    def new_cache(self, capacity: int) -> KvCache:
        return self._own.new_cache(capacity)

    def read(self, *_: object) -> Tensor:
        raise AssertionError("the leader makes a pass of it")

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Tensor:
        logits = self._own.forward(cache, tokens, positions, visible)
        mine: Any = cache
        theirs = self._follower.caches[mine.number]
        self.passes += 1
        assert (theirs.used, theirs.store.shape) == (cache.used, cache.store.shape)
        assert torch.equal(theirs.store[..., : cache.used, :], cache.store[..., : cache.used, :])
        for part, (rows, axis) in cache.parts.items():
            assert torch.equal(theirs.parts[part][0].narrow(axis, 0, cache.used), rows.narrow(axis, 0, cache.used))
        if cache.positions is not None:
            assert theirs.positions is not None
            assert torch.equal(theirs.positions[: cache.used], cache.positions[: cache.used])
        return logits


@dataclass(frozen=True)
class Led:
    """An engine with a tensor-parallel target."""

    engine: Engine
    leader: Leader
    channel: Replaying
    compared: Compared


def led(models: TinyModels, family: str) -> Led:
    pair = models.pair(family)
    return led_by(models.loaded(pair, "float32"), models.plain(pair.target, "float32"))


def led_by(engine: Engine, module: Any) -> Led:
    """The engine with this module as its tensor-parallel target."""
    channel = Replaying(ModuleForward(module))
    compared = Compared(ModuleForward(module), channel)
    leader = Leader(compared, channel, ("cpu", "cpu"))  # type: ignore[arg-type]  # a sufficient channel
    traits = replace(traits_of(module), source=None)
    target = LanguageModel("tiny", traits, HfModule(traits))
    target.run_by(leader)
    target.ranks = leader
    return Led(replace(engine, pair=replace(engine.pair, target=target), costs={}), leader, channel, compared)
