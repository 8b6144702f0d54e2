"""Python processes that begin with the program imported: its imports take more CPU time than most of its runs.

A server process imports the modules of the screens once, and forks for each request. The new process has a session, a
terminal, an environment, a folder and arguments of its own, runs `-c TEXT` or `-m MODULE` and exits like an
interpreter; its parent is the process that asked for it. Tests of start-up and of imports need a new interpreter.
"""

import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pexpect
from ptyprocess import PtyProcess

_ROOT = Path(__file__).parents[2]
_IMPORTED = (
    "dynatui.main",
    "dynatui.screen.app",
    "dynatui.screen.server_app",
    "dynatui.screen.compare",
    "dynatui.screen.run",
    "dynatui.sources.engine",
    "tests.dynatui.endless_engine",
    "tests.dynatui.hostile_text",
)
_SET_CHILD_SUBREAPER = 36
"""From linux/prctl.h."""
_LONGEST = 1 << 17


class WarmPython:
    """The test's end of the server."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT,
                env={name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
                | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def spawn(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], size: tuple[int, int]
    ) -> "pexpect.spawn[bytes]":
        """Starts Python with `-c TEXT` or `-m MODULE` and arguments in a terminal of a size in columns and lines."""
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, size[::-1])
        request = json.dumps([list(arguments), str(cwd), dict(environment)]).encode()
        assert len(request) < _LONGEST
        with _adopting():
            socket.send_fds(self._connection, [request], [theirs])
            process = int(self._connection.recv(64))
        os.close(theirs)
        child: Any = pexpect.spawn(None, timeout=20)
        child.ptyproc = PtyProcess(process, ours)
        child.pid, child.child_fd, child.terminated, child.closed = process, ours, False, False
        return child

    def close(self) -> None:
        self._connection.close()
        self._server.wait()


@contextmanager
def _adopting() -> Iterator[None]:
    """Makes this process the parent of descendants whose parent ends."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    assert control(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        control(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _next_process(connection: socket.socket) -> tuple[list[str], str, dict[str, str], int]:
    """Forks for each request; returns in the new process alone, with the request and its terminal."""
    while True:
        request, (*terminals,), _, _ = socket.recv_fds(connection, _LONGEST, 1)
        if not request:
            os._exit(0)
        reads, writes = os.pipe()
        if (between := os.fork()) == 0:
            if (process := os.fork()) == 0:
                for descriptor in (reads, writes, connection.detach()):
                    os.close(descriptor)
                arguments, cwd, environment = json.loads(request)
                return arguments, cwd, environment, terminals[0]
            os.write(writes, str(process).encode())
            os._exit(0)
        os.waitpid(between, 0)
        connection.send(os.read(reads, 64))
        for descriptor in (reads, writes, *terminals):
            os.close(descriptor)


def _take(terminal: int) -> None:
    """Makes this the controlling terminal, and opens the three standard streams on it."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for descriptor in range(3):
        os.dup2(terminal, descriptor)
    os.close(terminal)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115 - stays open
    sys.stdout = sys.__stdout__ = open(1, "w", buffering=1, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )


def _run(option: str, program: str, *arguments: str) -> None:
    if option == "-m":
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(main))  # noqa: S102 - the test's program


def _serve(descriptor: int) -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    assert "torch" not in sys.modules, "the program imports it late"
    gc.freeze()
    arguments, cwd, environment, terminal = _next_process(socket.socket(fileno=descriptor))
    _take(terminal)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    _run(*arguments)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
