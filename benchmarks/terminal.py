"""Pseudo-terminal in which a program runs; a measurement reads its output and types into it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STATUS = {b"\x1b[5n": b"\x1b[0n"}
"""Query of the terminal's status -> answer."""
ALL_ANSWERS = {**STATUS, b"\x1b[?2026$p": b"\x1b[?2026;2$y"}
"""With Textual's query whether the terminal supports synchronised output (mode 2026)."""


class Responder:
    def __init__(self, answers: Mapping[bytes, bytes]) -> None:
        self._answers = answers
        self._tail = b""

    def answer(self, chunk: bytes) -> bytes:
        """Answers to the queries that end in this part of the output."""
        text = self._tail + chunk
        answers = [answer * (text.count(asked) - self._tail.count(asked)) for asked, answer in self._answers.items()]
        self._tail = text[1 - max(map(len, self._answers), default=1) :]
        return b"".join(answers)


@dataclass
class Terminal:
    command: Sequence[str]
    size: tuple[int, int]
    environment: dict[str, str] = field(default_factory=dict)
    answers: Mapping[bytes, bytes] = field(default_factory=lambda: ALL_ANSWERS)
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
        self._responder = Responder(self.answers)
        os.close(inner)

    def read(self, seconds: float, *, bytes_per_second: float | None = None) -> None:
        """Reads output for some seconds, without a speed limit or with the limit `bytes_per_second`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.outer], [], [], left)[0]:
                return
            try:
                chunk = os.read(self.outer, round(bytes_per_second / 20) if bytes_per_second else 65536)
                if bytes_per_second:
                    time.sleep(len(chunk) / bytes_per_second)
                os.write(self.outer, self._responder.answer(chunk))
            except OSError:
                return
            self.written += chunk

    def press(self, keys: str) -> None:
        os.write(self.outer, keys.encode())

    def cpu_s(self) -> float:
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def hang_up(self) -> None:
        """Closes the terminal, as when its window is closed."""
        os.close(self.outer)
        self.outer = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.outer >= 0:
            os.close(self.outer)
