"""A follower: loads its part of the target, and replays the leader's passes until the leader lets go of it.

It decides nothing and writes nothing. Whatever becomes of the leader ends it, also in the middle of a pass.
"""

from typing import NoReturn

import torch

from decoder.deferred import imported
from decoder.device import DTYPES, peak_bytes
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward
from decoder.tensor_parallel.channel import Channel, leave
from decoder.tensor_parallel.messages import Begin, Pass, Peak, decoded
from decoder.tensor_parallel.ranks import LOST, Ranks
from decoder.tensor_parallel.rows import follow
from decoder.tensor_parallel.target import devices_of, part_of, rank_device


def serve(ranks: Ranks, target: str, device: str) -> NoReturn:
    """Follows until the process ends, at once, when the leader lets go of it or is gone.

    Args:
        ranks: This process among all.
        target: Hub id or folder, as the leader was given it.
        device: auto, cpu or cuda.

    Raises:
        DecoderError: There is no such device, or the target cannot be loaded.
        RuntimeError: A pass has failed, here or in another process.
    """
    place = rank_device(ranks, device)
    channel = Channel(ranks, place)
    channel.watch_leader(lambda released: leave(0 if released else LOST))
    devices_of(channel, place)
    begin = decoded(channel.receive())
    assert isinstance(begin, Begin), "the leader begins with the dtype"  # noqa: S101 - a programmer's mistake
    module = part_of(ranks, target, place, list(DTYPES.values())[begin.dtype])
    replay(channel, imported("decoder.forward.hf").ModuleForward(module), place)


@torch.inference_mode()
def replay(channel: Channel, own: Forward, device: torch.device) -> NoReturn:
    """Runs each pass that the leader tells, without end."""
    caches: dict[int, KvCache] = {}
    while True:
        told = decoded(channel.receive())
        if isinstance(told, Pass):
            replayed(caches, own, told)
        elif isinstance(told, Peak):
            channel.gathered(peak_bytes(device))


def replayed(caches: dict[int, KvCache], own: Forward, told: Pass) -> None:
    """Runs one pass on the cache that it names; `caches` are the leader's, by their numbers."""
    for number in told.gone:
        caches.pop(number, None)  # some never saw a pass
    if told.cache not in caches:
        caches[told.cache] = own.new_cache(told.capacity)
    cache = caches[told.cache]
    follow(cache, told.capacity, told.used, told.moved)
    own.forward(cache, told.tokens, told.positions, told.visible)
