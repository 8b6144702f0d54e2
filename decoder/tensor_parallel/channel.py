"""Communication between the ranks of one target through torch.distributed, initialised once per process.

Messages are in CPU memory, whatever the model's device. Messages have process groups of their own. The timeouts of all
groups are practically endless, since the user may pause a run. Does not know the content of messages.
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
from decoder.tensor_parallel.messages import FRAME, Words, join_frame, rest_length, split_frame
from decoder.tensor_parallel.ranks import Ranks

_SOURCE_LINE = re.compile(r"^\[\S+:\d+\] ")
ENDLESS = timedelta(days=3650)
"""Timeout of all process groups: practically none, since a leader sends nothing while it is paused. If the leader is
lost, the followers notice that the connection to it is closed.
"""
_CLOSED_WITHIN_S = 1.0


class Channel:
    """Communication of the ranks: messages from the leader to the followers, numbers from each rank to all ranks, and
    notice of the leader's end.
    """

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        """Connects this rank to all other ranks; waits until all have joined.

        Raises:
            DeviceError: The ranks cannot connect to each other.
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
                f"the {ranks.count} processes of the target cannot reach each other: {reason(error)}; let torchrun "
                "set MASTER_ADDR and MASTER_PORT, or choose another port"
            ) from error

    def send(self, words: Words) -> None:
        """Sends a message to all followers; only the leader calls this method."""
        for part in split_frame(words):
            if len(part):
                dist.broadcast(torch.from_numpy(part), 0, group=self._words)

    def receive(self) -> Words:
        """Waits for the leader's next message; only followers call this method."""
        frame = self._received(FRAME)
        return join_frame(frame, self._received(rest_length(frame)))

    def gather(self, number: int) -> list[int]:
        """The numbers of all ranks, in the order of the ranks; each rank calls this method with its own number."""
        numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(self._ranks.count)]
        dist.all_gather(numbers, torch.tensor([number]), group=self._words)
        return [int(each) for each in numbers]

    def release(self) -> None:
        """Ends the followers, even in the middle of a pass, and closes the channel; only the leader calls this method.

        Torch's threads free tensors shortly after sending them; the process would abort if Python had shut down before
        that. So torch's threads are ended here, unless a thread still waits for another rank.
        """
        for rank in range(1, self._ranks.count):
            with suppress(RuntimeError):  # the follower may have ended already
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
        """Starts a thread that calls `ended` when the leader ends: with True after `release`, with False if the leader
        is lost.
        """

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
        received: Words = words.numpy()
        return received


def reason(error: BaseException) -> str:
    """First sentence of torch's error about a connection, without torch's source line number."""
    return _SOURCE_LINE.sub("", first_line(error)).partition(". ")[0]


def leave(code: int) -> None:
    """Ends this process at once; Python's usual shutdown would wait for threads that wait for other processes."""
    os._exit(code)
