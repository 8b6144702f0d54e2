"""A follower rank: loads its part of the target, and replays the leader's passes until the leader ends.

A follower decides nothing and writes nothing. It ends when the leader ends or is lost, even in the middle of a pass.
"""

from typing import NoReturn

import torch

from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward
from decoder.system.deferred import imported
from decoder.system.device import DTYPES, peak_bytes
from decoder.tensor_parallel.channel import Channel, leave
from decoder.tensor_parallel.messages import Begin, Pass, Peak, decode
from decoder.tensor_parallel.ranks import LOST, Ranks
from decoder.tensor_parallel.rows import follow
from decoder.tensor_parallel.target import devices_of, part_of, rank_device


def serve(ranks: Ranks, target: str, device: str) -> NoReturn:
    """Loads this rank's part of the target and replays the leader's passes until the leader ends; never returns.

    Args:
        ranks: Rank of this process.
        target: Hub id or folder of the target, the same as the leader's.
        device: auto, cpu or cuda.

    Raises:
        DecoderError: There is no such device, or the target cannot be loaded.
        RuntimeError: A pass has failed, in this process or in another process.
    """
    place = rank_device(ranks, device)
    channel = Channel(ranks, place)
    channel.watch_leader(lambda released: leave(0 if released else LOST))
    devices_of(channel, place)
    begin = decode(channel.receive())
    assert isinstance(begin, Begin), "the leader's first message must be Begin"  # noqa: S101 - a programmer's mistake
    module = part_of(ranks, target, place, list(DTYPES.values())[begin.dtype])
    replay(channel, imported("decoder.forward.hf").ModuleForward(module), place)


@torch.inference_mode()
def replay(channel: Channel, own: Forward, device: torch.device) -> NoReturn:
    """Executes the leader's messages in an endless loop."""
    caches: dict[int, KvCache] = {}
    while True:
        message = decode(channel.receive())
        if isinstance(message, Pass):
            replay_pass(caches, own, message)
        elif isinstance(message, Peak):
            channel.gather(peak_bytes(device))


def replay_pass(caches: dict[int, KvCache], own: Forward, message: Pass) -> None:
    """Runs one pass on this rank's counterpart of the leader's cache; `caches` maps cache numbers to counterparts."""
    for number in message.gone:
        caches.pop(number, None)  # a cache that the leader has not used was never created here
    if message.cache not in caches:
        caches[message.cache] = own.new_cache(message.capacity)
    cache = caches[message.cache]
    follow(cache, message.capacity, message.used, message.moved)
    own.forward(cache, message.tokens, message.positions, message.visible)
