"""Pseudo-terminal in which a program runs, and which a measurement reads and types into.

This module knows no program.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_QUESTION, _ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""Textual's query about synchronised output (mode 2026), and the answer that the terminal supports it."""


@dataclass
class Terminal:
    """Pseudo-terminal that runs a program, reads all its output, and answers its queries about the terminal."""

    command: Sequence[str]
    size: tuple[int, int]
    environment: dict[str, str] = field(default_factory=dict)
    written: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.outer, inner = pty.openpty()
        width, height = self.size
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "HOME")}
        environment = {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", **self.environment}
        self.process = subprocess.Popen(  # noqa: S603 - the program under measurement
            self.command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
        )
        os.close(inner)

    def read(self, seconds: float, *, bytes_per_second: float | None = None) -> None:
        """Reads output for some seconds, without a speed limit or with the limit `bytes_per_second`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.outer], [], [], left)[0]:
                return
            try:
                chunk = os.read(self.outer, 1024 if bytes_per_second else 65536)
            except OSError:
                return
            if _QUESTION in chunk:
                os.write(self.outer, _ANSWER)
            self.written += chunk
            if bytes_per_second:
                time.sleep(len(chunk) / bytes_per_second)

    def press(self, keys: str) -> None:
        """Sends keys to the program, as if typed."""
        os.write(self.outer, keys.encode())

    def cpu_s(self) -> float:
        """CPU time of all the program's threads so far, in seconds."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def hang_up(self) -> None:
        """Closes the terminal, as when its window is closed."""
        os.close(self.outer)
        self.outer = -1

    def close(self) -> None:
        """Ends the program."""
        self.process.kill()
        self.process.wait()
        if self.outer >= 0:
            os.close(self.outer)
