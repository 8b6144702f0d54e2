"""Communication between the ranks of one target: torch.distributed, set up once for the whole process.

Messages go over CPU memory on every device, through groups of their own, and wait as long as the user does. Knows
nothing of what they say.
"""

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from decoder.errors import DeviceError, first_line
from decoder.tensor_parallel.messages import FRAME, Words, framed, left_over, unframed
from decoder.tensor_parallel.ranks import Ranks

_SOURCE_LINE = re.compile(r"^\[\S+:\d+\] ")
ENDLESS = timedelta(days=3650)
"""A paused leader says nothing; that it is gone is told by its closed connection."""
_CLOSED_WITHIN_S = 1.0


class Channel:
    """Words from the leader to all, numbers from all to the leader, and word of the leader's end."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        """Waits until all are there.

        Raises:
            DeviceError: They do not find each other.
        """
        self._ranks = ranks
        try:
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                timeout=ENDLESS,
                device_id=device if device.type == "cuda" else None,
            )
            self._words, self._ends = (dist.new_group(backend="gloo", timeout=ENDLESS) for _ in range(2))
        except (RuntimeError, ValueError) as error:
            raise DeviceError(
                f"the {ranks.count} processes of the target do not find each other: {reason(error)}; let torchrun "
                "set MASTER_ADDR and MASTER_PORT, or choose another port"
            ) from error

    def send(self, words: Words) -> None:
        """Tells all followers; called by the leader alone."""
        for part in framed(words):
            if len(part):
                dist.broadcast(torch.from_numpy(part), 0, group=self._words)

    def receive(self) -> Words:
        """The leader's next message, however long it takes; called by followers alone."""
        frame = self._received(FRAME)
        return unframed(frame, self._received(left_over(frame)))

    def gathered(self, number: int) -> list[int]:
        """The number that each rank brings, by rank; called by all."""
        found = [torch.zeros(1, dtype=torch.int64) for _ in range(self._ranks.count)]
        dist.all_gather(found, torch.tensor([number]), group=self._words)
        return [int(each) for each in found]

    def release(self) -> None:
        """Lets the followers end, whatever they are doing, and closes the channel; called by the leader alone.

        Threads of torch drop tensors a little after they have been sent, for which they need Python: where it has ended
        by then, the process aborts. So they end here, unless one of them waits for a rank.
        """
        for rank in range(1, self._ranks.count):
            with suppress(RuntimeError):  # one that is gone needs no word
                dist.send(torch.ones(1), rank, group=self._ends)
        groups = [self._words, self._ends]
        del self._words, self._ends

        def close() -> None:
            while groups:
                dist.destroy_process_group(groups.pop())

        closing = threading.Thread(target=close, name="closing", daemon=True)
        closing.start()
        closing.join(_CLOSED_WITHIN_S)

    def watch_leader(self, ended: Callable[[bool], object]) -> None:
        """Has a thread call `ended` when the leader lets go of this process; with False where it is gone without."""

        def wait() -> None:
            try:
                dist.recv(torch.zeros(1), 0, group=self._ends)
            except RuntimeError:
                ended(False)
            else:
                ended(True)

        threading.Thread(target=wait, name="leader", daemon=True).start()

    def _received(self, count: int) -> Words:
        words = torch.zeros(count, dtype=torch.int64)
        if count:
            dist.broadcast(words, 0, group=self._words)
        found: Words = words.numpy()
        return found


def reason(error: BaseException) -> str:
    """Why processes cannot reach each other, without the place in the library's source and its advice."""
    return _SOURCE_LINE.sub("", first_line(error)).partition(". ")[0]


def leave(code: int) -> None:
    """Ends this process at once: Python's own end would wait for threads that wait for other processes."""
    os._exit(code)
