"""Communication of the ranks of one target, in separate processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")

ROOT = Path(__file__).parents[3]

LEADER = """
import time
from pathlib import Path

import torch
import torch.distributed as dist

from decoder.tensor_parallel.target import PEAK, Channel
from decoder.tensor_parallel.ranks import Ranks

def count():
    return len(list(Path("/proc/self/task").iterdir()))

def counted(make=dist.new_group, **named):
    counts.append(count())
    return make(**named)

counts = []
dist.new_group = counted
channel = Channel(Ranks(0, 1, 0, 1), torch.device("cpu"))
counts.append(count())
channel.send(PEAK)
channel.release()
end = time.monotonic() + 20
while count() > counts[0] and time.monotonic() < end:
    time.sleep(0.01)  # the system takes a thread off its list a little after its end
counts.append(count())
print(*counts)
"""
"""A program with one rank, the leader; prints its number of threads before and with the channel, and at the end."""


def test_no_thread_of_the_channel_is_left_after_its_release() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    done = subprocess.run(
        [sys.executable, "-c", LEADER],
        env={**os.environ, **place, "RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    before, within, after = map(int, done.stdout.split())
    assert after <= before < within
