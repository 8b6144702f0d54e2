"""Stage that runs the real program in a terminal on the GPU, presses keys, and keeps what the screen shows."""

import os
import sys

import pyte

from benchmarks.stages.worker import ROOT, Work
from benchmarks.terminal import Terminal

SIZE = 160, 50
KEYS = ("", "]]", "d", "w")
"""Keys before each picture: none, a higher threshold twice, the drawer, another page."""


def app(work: Work) -> None:
    """Four screens of a race of the inflated pair, as text, in app.txt.

    Raises:
        RuntimeError: The program has ended, or the last screen shows no speed.
    """
    options = ("--inflate", work.setting.inflated, "--dtype", "float16", "--device", "cuda")
    book = ("--prompt-file", str(ROOT / "dynatui" / "prompts" / "4-lighthouse.txt"))
    kernels = () if work.kernels else ("--no-kernels",)
    command = [sys.executable, *work.setting.program, "-m", "dynatui", *options, *book, *kernels]
    terminal = Terminal(command, SIZE, dict(os.environ))
    screen = pyte.Screen(*SIZE)
    stream, fed = pyte.ByteStream(screen), 0
    try:
        for number, keys in enumerate(KEYS, 1):
            if keys:
                terminal.press(keys)
            terminal.read(work.setting.app_s * (0.55 if number == 1 else 0.15))
            stream.feed(bytes(terminal.written[fed:]))
            fed = len(terminal.written)
            shown = "\n".join(line.rstrip() for line in screen.display).rstrip()
            work.append("app.txt", f"--- screen {number}, keys {keys or 'none'}\n{shown}\n")
        code = terminal.process.poll()
    finally:
        terminal.close()
    if code is not None:
        raise RuntimeError(f"the program has ended with {code}; its last screen is in app.txt")
    speeds = [line.strip() for line in shown.splitlines() if "tok/s" in line or "tokens/s" in line]
    if not speeds:
        raise RuntimeError("the last screen shows no speed; see app.txt")
    work.note(f"{len(KEYS)} screens in app.txt, {len(terminal.written)} bytes: {speeds[0]}", speeds=speeds)
