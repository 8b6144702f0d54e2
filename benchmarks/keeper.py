"""Runs a command for at most so long, and no longer than the program that asked for it.

    python keeper.py SECONDS GRACE COMMAND ...

The asker holds the other end of standard input. When that closes, which it does even where the asker is killed, the
command is killed, and so is all that it has started, in whatever session. After SECONDS less GRACE the command is
interrupted, so that it may tell what it knows, and after SECONDS it is killed. Standard output gets two lines: the
command's process group as soon as it runs, and how it ended. What the command says goes to standard error. For Linux;
needs nothing but Python, and is no part of any package.
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
"""What is stuck in a driver cannot be killed, and is not waited for any longer."""


def main(arguments: Sequence[str]) -> None:
    """Runs the command and tells how it ended."""
    limit_s, grace_s = map(float, arguments[:2])
    # Processes whose parent ends become this one's children, and so do those of other sessions.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(  # noqa: S603 - the asker's own command
        arguments[2:], stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), process_group=0
    )
    try:
        Thread(target=_end_with_the_asker, daemon=True).start()
        _tell(command.pid)
        code, in_time = _waited(command, limit_s, grace_s)
    finally:
        end_children()
    _tell({"exit_code": code, "in_time": in_time})


def _tell(what: object) -> None:
    with suppress(BrokenPipeError):  # the asker is gone, which another thread sees to
        os.write(1, f"{json.dumps(what)}\n".encode())


def _end_with_the_asker() -> None:
    while os.read(0, 1):
        pass
    end_children()
    os._exit(1)


def _waited(command: "subprocess.Popen[bytes]", limit_s: float, grace_s: float) -> tuple[int | None, bool]:
    """The exit code, None where the command has to be killed, and whether it came before the interruption."""
    with suppress(subprocess.TimeoutExpired):
        return command.wait(limit_s - grace_s), True
    os.killpg(command.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        return command.wait(grace_s), False
    return None, False


def end_children() -> None:
    """Kills all children, and theirs, which become this program's own as soon as their parents are dead."""
    until = time.monotonic() + PATIENCE_S
    with suppress(ChildProcessError):  # the only sure sign that none is left: a list is old before it is complete
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
    """Of a process; its name, which may hold anything, stands in parentheses before that."""
    with suppress(OSError):  # it has just ended
        return int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
