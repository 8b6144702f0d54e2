"""Communication between the ranks of one target through torch.distributed, and the leader's messages.

Messages are in CPU memory, whatever the model's device, and have a process group of their own. torchrun ends all
processes when one of them fails.
"""

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from decoder.errors import DeviceError, first_line
from decoder.tensor_parallel.ranks import Ranks

T = TypeVar("T")
_SOURCE_LINE = re.compile(r"^\[\S+:\d+\] ")
ENDLESS = timedelta(days=3650)
"""Timeout of all process groups: practically none, since a leader sends nothing while it is paused."""
_CLOSED_WITHIN_S = 1.0


@dataclass(frozen=True)
class Pass:
    """Command to run one forward pass. It includes the complete state of the cache before the pass, so that operations
    on a cache need no messages of their own.
    """

    cache: int
    """Number of the cache; a new number means an empty cache."""
    capacity: int
    used: int
    """Rows before the pass, which appends further ones."""
    moved: Sequence[tuple[int, int]]
    """Rows that were moved since the previous pass, as pairs (new index, old index)."""
    gone: Sequence[int]
    tokens: Sequence[int]
    positions: Sequence[int]
    visible: NDArray[np.bool_]
    """Attention mask, shape (N, M); see `LanguageModel.forward`."""


PEAK, END = "peak", "end"
Message: TypeAlias = Pass | torch.dtype | str
"""A pass; a dtype, in which the target is to be loaded; `PEAK`, which asks every rank for its peak memory; or `END`."""


class Channel:
    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        """Connects this rank to all others; waits until all have joined. Raises DeviceError if it cannot."""
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
        """The values of all ranks in their order; each rank calls this method with its own."""
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
