"""Runs a command with a time limit, and kills it when the process that started the keeper ends.

    python keeper.py SECONDS GRACE COMMAND ...

The starting process holds the writing end of the keeper's standard input. When that end closes, even because the
starting process was killed, the keeper kills the command and its descendants in all sessions. GRACE seconds before
SECONDS are over, the command is interrupted (SIGINT), so that it can still report its results; after SECONDS it is
killed. The keeper prints two lines: the command's process group when the command starts, and a JSON object when the
command ends. The command's own output goes to standard error. Linux only; needs only Python's standard library.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 5.0
"""Seconds after which the keeper stops trying to kill the command's descendants, since a process that is blocked in a
driver cannot be killed.
"""


def main(arguments: Sequence[str]) -> None:
    """Runs the command and prints its process group and how it ended."""
    limit_s, grace_s = map(float, arguments[:2])
    # From now on, descendants whose parent ends become children of this process, even descendants in other sessions.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(  # noqa: S603 - the command line's own command
        arguments[2:], stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), process_group=0
    )
    try:
        Thread(target=_end_with_the_asker, daemon=True).start()
        _tell(command.pid)
        code, in_time = _waited(command, limit_s, grace_s)
    finally:
        end_children()
    _tell({"exit_code": code, "in_time": in_time})


def _tell(message: object) -> None:
    # If the process that started this one is gone, the thread of `_end_with_the_asker` kills the command.
    with suppress(BrokenPipeError):
        os.write(1, f"{json.dumps(message)}\n".encode())


def _end_with_the_asker() -> None:
    while os.read(0, 1):
        pass
    end_children()
    os._exit(1)


def _waited(command: "subprocess.Popen[bytes]", limit_s: float, grace_s: float) -> tuple[int | None, bool]:
    """Exit code (None if the command was killed), and whether the command ended before the interruption."""
    with suppress(subprocess.TimeoutExpired):
        return command.wait(limit_s - grace_s), True
    os.killpg(command.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        return command.wait(grace_s), False
    return None, False


def end_children() -> None:
    """Kills all descendants: kills all children repeatedly, since a killed child's children become our children."""
    until = time.monotonic() + PATIENCE_S
    # The loop ends when `waitpid` raises ChildProcessError, which proves that no child is left. An empty list from
    # `_children` proves nothing, since it may miss new children.
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.01)


def _children() -> list[int]:
    return [int(place.name) for place in Path("/proc").glob("[0-9]*") if _parent(place) == os.getpid()]


def _parent(place: Path) -> int | None:
    """Parent of a process: the second field after the name in /proc/PID/stat; the name is any text in parentheses."""
    with suppress(OSError):  # the process has just ended
        return int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
