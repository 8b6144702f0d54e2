"""Stage that runs the real program in a terminal on the GPU, presses keys, and keeps what the screen shows."""

import os
import sys
import time
from pathlib import Path

import pyte

from benchmarks.stages.worker import ROOT, Work
from benchmarks.terminal import Terminal
from decoder.analysis.metrics import RunFold, fold
from dynatui.number_format import short
from dynatui.record.reader import read_events

BOOK = ROOT / "dynatui" / "prompts" / "4-lighthouse.txt"
SIZE = 160, 50
KEYS = ("", "]]", "d", "w")
"""Keys before each picture: none, a higher threshold twice, all knobs, the next method."""


def app(work: Work) -> None:
    """A race of the inflated pair: four screens as text in app.txt, and the figures of the rounds that it recorded.

    Raises:
        RuntimeError: The program has ended, or has recorded no round.
    """
    recording = work.journal.path.with_name("app.jsonl")
    recording.unlink(missing_ok=True)
    options = ["--inflate", work.setting.inflated, "--dtype", "float16", "--device", "cuda", "--record", str(recording)]
    kernels = () if work.kernels else ("--no-kernels",)
    command = [sys.executable, *work.setting.program, "-m", "dynatui", *options, "--prompt-file", str(BOOK), *kernels]
    terminal = Terminal(command, SIZE, dict(os.environ))
    screen = pyte.Screen(*SIZE)
    stream, fed = pyte.ByteStream(screen), 0
    end_s = time.monotonic() + work.setting.app_s
    try:
        while terminal.process.poll() is None and not recorded(recording).tallies and time.monotonic() < end_s:
            terminal.read(1.0)
        for number, keys in enumerate(KEYS, 1):
            terminal.press(keys)
            terminal.read(work.setting.watched_s)
            stream.feed(bytes(terminal.written[fed:]))
            fed = len(terminal.written)
            shown = "\n".join(line.rstrip() for line in screen.display).rstrip()
            work.append("app.txt", f"--- screen {number}, keys {keys or 'none'}\n{shown}\n")
        code = terminal.process.poll()
    finally:
        terminal.close()
    if code is not None:
        raise RuntimeError(f"the program has ended with {code}; its last screen is in app.txt")
    figures = recorded(recording).figures()
    if not figures:
        raise RuntimeError("the program has decoded no round; its screens are in app.txt")
    speeds = ", ".join(f"{name} {short(entry.tokens_per_second)}" for name, entry in figures.items())
    work.note(f"{len(KEYS)} screens in app.txt, {len(terminal.written)} bytes; {speeds} tokens/s", figures=figures)


def recorded(recording: Path) -> RunFold:
    """The run so far; its beginning alone if no method has begun."""
    begun = recording.exists() and recording.read_bytes().count(b"\n") > 1
    return fold(read_events(recording)) if begun else RunFold()
