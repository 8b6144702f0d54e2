"""Cost of the screen: bytes per second to the terminal, and CPU time per frame, measured in a pseudo-terminal.

    python benchmarks/screen.py

This command plays a trace in which every method writes 200 tokens per second, for each terminal size and symbol set.
The exit code is 1 when a cost exceeds its limit. CPU time is given relative to a reference task, which runs on the same
machine before and after the app, with as many pauses per second as the app. Without this reference, CPU times could not
be compared: machines differ in speed, the speed of shared machines changes by the hour, and code takes twice the time
after a pause. Linux only: the CPU time of the app is read from /proc.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise, product
from pathlib import Path

from msgspec import structs

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.terminal import Terminal
from decoder.events import Event, Round, Run, Start, encode
from dynatui.record.reader import read_events

TRACE = Path(__file__).parents[1] / "tests" / "traces" / "demo.jsonl"
TOKENS_PER_SECOND = 200.0
_WARM_S = 3.0
_REFERENCE_TICKS = 15
FRAME = b"\x1b[?2026h"


@dataclass(frozen=True)
class Bar:
    """Largest accepted costs of one screen."""

    bytes_per_second: float
    reference_tasks_per_frame: float = float("inf")
    """CPU time of a frame, in multiples of the reference task's CPU time."""


@dataclass(frozen=True)
class Cost:
    size: tuple[int, int]
    symbols: str
    seconds: float
    frames: int
    sent_bytes: int
    cpu_s: float
    reference_s: float

    @property
    def bytes_per_second(self) -> float:
        return self.sent_bytes / self.seconds

    @property
    def cpu_ms_per_frame(self) -> float:
        """CPU time of all the app's threads, in milliseconds."""
        return 1000 * self.cpu_s / max(1, self.frames)

    @property
    def reference_tasks_per_frame(self) -> float:
        return self.cpu_ms_per_frame / 1000 / self.reference_s

    def row(self, bar: Bar) -> str:
        return (
            f"{name(self.size):>7} {self.symbols:<8} "
            f"{self.bytes_per_second / 1000:>6.1f} {bar.bytes_per_second / 1000:>5.3g} "
            f"{self.cpu_ms_per_frame:>9.2f} "
            f"{self.reference_tasks_per_frame:>11.1f} {bar.reference_tasks_per_frame:>5.3g} "
            f"{self.frames / self.seconds:>9.1f}{'' if self.meets(bar) else '  missed'}\n"
        )

    def meets(self, bar: Bar) -> bool:
        quick = self.reference_tasks_per_frame <= bar.reference_tasks_per_frame
        return quick and self.bytes_per_second <= bar.bytes_per_second


SCREENS: dict[tuple[int, int], tuple[int, Bar]] = {
    (80, 24): (5, Bar(10_000)),
    (120, 40): (10, Bar(40_000, 20)),
    (200, 60): (10, Bar(float("inf"))),
}
"""Frames per second and limits, by terminal size. When the CPU limit was set, a frame took 12 to 17 times as long as
the reference task.
"""


def reference_s(ticks_per_second: int) -> float:
    """Mean CPU time in seconds of the reference task, which reads and sorts JSON `ticks_per_second` times a second."""
    document = json.dumps([{"a": place, "b": [place, str(place)], "c": {"d": place}} for place in range(300)])
    began = time.process_time()
    for _ in range(_REFERENCE_TICKS):
        sorted((str(entry["c"]["d"]), entry["a"]) for entry in json.loads(document))
        time.sleep(1 / ticks_per_second)
    return (time.process_time() - began) / _REFERENCE_TICKS


def name(size: tuple[int, int]) -> str:
    """Terminal size as text, such as 80x24."""
    return "x".join(map(str, size))


def steady(events: Sequence[Event], *, tokens_per_second: float, seconds: float) -> Iterator[Event]:
    """Events of one long run: rounds of all recorded runs, repeated, renumbered and evenly spaced in time."""
    first = next(event for event in events if isinstance(event, Run))
    watched = next(iter(first.methods))
    stretch = _tokens_per_second(events, watched) / tokens_per_second
    yield structs.replace(first, max_new_tokens=round(tokens_per_second * seconds))
    yield from [Start(method=name, prefill_s=0.0) for name in first.methods]
    rounds, tokens = dict.fromkeys(first.methods, 0), dict.fromkeys(first.methods, 0)
    clocks, began_s = dict.fromkeys(first.methods, 0.0), 0.0
    for lap in cycle(_laps(events)):
        ended_s, starts = began_s, dict(clocks)
        for event in lap:
            name = event.method
            ended_s = began_s + event.wall_s * stretch
            clocks[name] = starts[name] + event.t * stretch
            yield structs.replace(event, round=rounds[name], position=tokens[name], t=clocks[name], wall_s=ended_s)
            rounds[name] += 1
            tokens[name] += len(event.committed)
        began_s = ended_s
        if began_s >= seconds:
            return


def _laps(events: Sequence[Event]) -> list[list[Round]]:
    """Rounds of each run, in chronological order."""
    places = [place for place, event in enumerate(events) if isinstance(event, Run)]
    laps = [[event for event in events[a:b] if isinstance(event, Round)] for a, b in pairwise([*places, len(events)])]
    return [sorted(lap, key=lambda event: event.wall_s) for lap in laps]


def _tokens_per_second(events: Sequence[Event], method: str) -> float:
    """Recorded speed of a method, in tokens per second of wall time."""
    laps = [[event for event in lap if event.method == method] for lap in _laps(events)]
    tokens = sum(len(event.committed) for lap in laps for event in lap)
    return tokens / sum(lap[-1].wall_s for lap in _laps(events) if lap)


def steady_recording(folder: Path, seconds: float) -> Path:
    """Writes a recording that plays for longer than the measured window of `seconds`; returns the recording's path."""
    path = folder / "steady.jsonl"
    events = steady(read_events(TRACE), tokens_per_second=TOKENS_PER_SECOND, seconds=_WARM_S + seconds + 5)
    path.write_bytes(b"".join(map(encode, events)))
    return path


def cost(recording: Path, size: tuple[int, int], symbols: str, fps: int, seconds: float) -> Cost:
    """Plays the recording and measures its cost in a steady window."""
    arguments = ["replay", str(recording), "--speed", "1", "--fps", str(fps), "--symbols", symbols]
    before_s = reference_s(fps)
    terminal = Terminal([sys.executable, "-m", "dynatui", *arguments], size)
    try:
        while FRAME not in terminal.written and terminal.process.poll() is None:
            terminal.read(0.1)
        terminal.read(_WARM_S)
        terminal.written.clear()
        began, cpu_s = time.monotonic(), terminal.cpu_s()
        terminal.read(seconds)
        took_s, cpu_s = time.monotonic() - began, terminal.cpu_s() - cpu_s
        frames, sent_bytes = terminal.written.count(FRAME), len(terminal.written)
        return Cost(size, symbols, took_s, frames, sent_bytes, cpu_s, (before_s + reference_s(fps)) / 2)
    finally:
        terminal.close()


def main() -> int:
    """Prints the table; returns 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each measurement, in seconds")
    parser.add_argument("--symbols", nargs="*", default=["braille", "block", "ascii"])
    parser.add_argument("--sizes", nargs="*", default=[name(size) for size in SCREENS])
    arguments = parser.parse_args()
    missed = False
    sys.stdout.write(f"{'size':>7} {'symbols':<8} {'KB/s':>6} {'bar':>5} {'ms/frame':>9} ")
    sys.stdout.write(f"{'x reference':>11} {'bar':>5} {'frames/s':>9}\n")
    with tempfile.TemporaryDirectory() as folder:
        recording = steady_recording(Path(folder), arguments.seconds)
        for size, symbols in product(SCREENS, arguments.symbols):
            if name(size) in arguments.sizes:
                fps, bar = SCREENS[size]
                measured = cost(recording, size, symbols, fps, arguments.seconds)
                missed |= not measured.meets(bar)
                sys.stdout.write(measured.row(bar))
                sys.stdout.flush()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
