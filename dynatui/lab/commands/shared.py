"""What commands for measurements share: options and parsers of lists, progress on standard error, and the result, which
is printed and saved even after an interrupt.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from types import FrameType
from typing import Any

import msgspec

from decoder.errors import ConfigError, quoted, require, shortened
from dynatui.cli import options
from dynatui.cli.headless import INTERRUPTED
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import Option, OptionGroup, option
from dynatui.files import to_append
from dynatui.lab.bench import Done, Progress
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.shutdown import INTERRUPTING, handled


@dataclass(frozen=True)
class Measured:
    """Result of a measurement, and its report as text."""

    text: str
    done: Done[Any]
    keep: Callable[[], None] = lambda: None
    """Writes further files of the measurement."""


def run_and_report(measure: Callable[[], Measured], path: Path | None) -> int:
    """Runs a measurement, writes and prints its result, and returns the exit code.

    Whether the file can be written is checked before the measurement.
    """
    if path is not None:
        _append(path, b"")
    with _interruptible():
        try:
            with streams.results_only():
                measured = measure()
        except KeyboardInterrupt:
            streams.say("interrupted before everything was measured at least once, so nothing can be compared")
            return INTERRUPTED
        out, _ = streams.for_printing()
        try:
            measured.keep()
            if path is not None:
                _append(path, msgspec.json.encode(measured.done.report) + b"\n")
        finally:  # the text is printed even if the file cannot be written
            streams.show(measured.text, out)
    return INTERRUPTED if measured.done.interrupted else 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Context in which the first signal interrupts the measurement, and the third signal interrupts the output.

    The second signal is ignored, since it usually arrives while the result of the interrupted measurement is printed.
    """
    signals = 0

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        if signals != 2:
            raise KeyboardInterrupt

    with handled(INTERRUPTING, stop):
        yield


def _append(path: Path, content: bytes) -> None:
    """Appends the whole content or nothing, since a partial line would make the next line unreadable too."""
    try:
        with to_append(path) as file:
            before = path.stat().st_size
            try:
                while content:
                    content = content[file.write(content) :]
            except OSError:
                with suppress(OSError):
                    file.truncate(before)
                raise
    except OSError as error:
        raise ConfigError(f"cannot write {shortened(path)}: {error.strerror}; set --json to another file") from None


SELDOM_S = 30.0
"""Minimum time in seconds between two progress lines if there is no terminal."""
_OVER = "\r\x1b[K"
_BAR = 20
"""Width of the progress bar in characters. The bar is ASCII, since the terminal's font is unknown."""


def words(seconds: float) -> str:
    """A duration in a suitable unit, such as 40 s, 3 min or 2.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def left_s(first: float, share: float, elapsed_s: float) -> float | None:
    """Estimated time left, if the share of done work rose from `first` to `share` in `elapsed_s`; None if unknown."""
    return elapsed_s * (1 - share) / (share - first) if share > first else None


def bar(share: float) -> str:
    full = round(_BAR * share)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {share:.0%}"


def say_line(line: str) -> None:
    """Prints a line that later progress does not overwrite."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(_OVER)
    streams.say(line)


def shown(steps: Iterable[Progress]) -> Iterator[Progress]:
    began, printed_at, first = time.monotonic(), -SELDOM_S, None
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    try:
        for step in steps:
            now = time.monotonic()
            first = step.share if first is None else first
            left = left_s(first, step.share, now - began)
            line = step.line if left is None or step.share >= 1 else f"{words(left)} left, {step.line}"
            if on_terminal:
                # A line wider than the terminal would wrap, and only its last part would be overwritten.
                whole = f"dynatui: {bar(step.share)} {line}"
                sys.stderr.write(_OVER + whole[: get_terminal_size().columns - 1])
                sys.stderr.flush()
            elif now - printed_at >= SELDOM_S or step.share >= 1:
                printed_at = now
                streams.say(line)
            yield step
    finally:
        if on_terminal:
            sys.stderr.write("\n")


LARGEST = 1 << 20
"""Largest number in a list; larger than every model's context."""


def names(text: str) -> tuple[str, ...]:
    """Names in a comma-separated list, without duplicates and empty names."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, parts: Iterable[str], *, remedy: str) -> tuple[float, ...]:
    """Converts the parts of a list to numbers, without duplicates; raises ConfigError if a part is not a number."""
    with suppress(ValueError):
        return tuple(dict.fromkeys(map(float, parts)))
    raise ConfigError(f"{option} is {quoted(text)}; give {remedy}")


def number_lists(option: str, text: str, *, example: str, probability: bool = False) -> tuple[tuple[Any, ...], ...]:
    """Groups of whole numbers, such as 8x64, in a comma-separated list, without duplicate groups. A group must have as
    many numbers as `example`; with `probability`, a group may have one further number, which need not be whole.
    """
    parts = [part.strip().split("x") for part in text.split(",")]
    count = len(example.split("x"))
    with suppress(ValueError):
        groups = tuple(dict.fromkeys((*map(int, part[:count]), *map(float, part[count:])) for part in parts))
        if all(count <= len(group) <= count + probability for group in groups):
            require(max(map(max, groups)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return groups
    raise ConfigError(f"{option} is {quoted(text)}; give values such as {example}, with commas between them")


PAIR = OptionGroup("pair", options.PAIR_OPTIONS, Models)


def repeats(explained: str, **further: Any) -> Option:
    return option("--repeats R", explained, int, least=1, most=1000, panel=MEASUREMENT, **further)


def json_file(content: str) -> Option:
    return option(
        "--json FILE", f"Append to FILE a line of JSON with {content}.", Path, name="json_file", panel=MEASUREMENT
    )
