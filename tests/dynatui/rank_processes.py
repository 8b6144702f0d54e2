"""Helpers that find the processes of a tensor-parallel run and check that none is left."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 120.0
GONE_WITHIN_S = 5.0


def ranks_below(launcher: int) -> dict[int, int]:
    """Process ids of a launcher's ranks, by rank."""
    found = dict[int, int]()
    for pid in children(launcher):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            # Between fork and exec, a process still has its parent's environment.
            found |= {int(each[5:]): pid for each in variables if each.startswith(b"RANK=")}
    return found


def children(parent: int) -> list[int]:
    """Ids of the existing child processes of a process."""
    found = list[int]()
    for pid in _processes():
        with suppress(OSError, IndexError):
            if int(_status(pid)[1]) == parent:
                found.append(pid)
    return found


def wait_for_ranks(launcher: int, count: int) -> dict[int, int]:
    """Waits until all ranks have started; returns their process ids by rank."""
    end = time.monotonic() + PATIENCE_S
    while len(found := ranks_below(launcher)) < count:
        assert time.monotonic() < end, f"only {found} of {count} ranks came"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return _status(pid)[0] not in "ZX"
    except OSError:
        return False


def seconds_until_gone(pids: list[int]) -> float:
    """Seconds until none of the processes runs; kills those that do not end."""
    began = time.monotonic()
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < began + 4 * GONE_WITHIN_S:
        time.sleep(0.02)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return time.monotonic() - began


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent and so on; the name may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
