"""Prints the result of a measurement and appends it to a file, even if the measurement is interrupted.

A measurement takes minutes, so its results must survive a signal, a full disk and a closed pipe.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from decoder.errors import ConfigError, shortened
from dynatui.cli.headless import INTERRUPTED
from dynatui.files import to_append
from dynatui.terminal import streams
from dynatui.terminal.signals import INTERRUPTING, handled


@dataclass(frozen=True)
class Measured:
    """Result of a measurement: its table, its report, and whether it was interrupted."""

    table: str
    report: object
    interrupted: bool
    keep: Callable[[], None] = lambda: None
    """Writes further files of the measurement."""


def run_and_report(measure: Callable[[], Measured], path: Path | None) -> int:
    """Runs a measurement, writes and prints its result, and returns the exit code.

    Whether the file can be written is checked before the measurement.

    Raises:
        ConfigError: The file cannot be written.
    """
    if path is not None:
        _append(path, b"")
    with _interruptible():
        try:
            with streams.results_only():
                done = measure()
        except KeyboardInterrupt:
            streams.say("interrupted before everything was measured at least once, so nothing can be compared")
            return INTERRUPTED
        out, _ = streams.for_printing()
        try:
            done.keep()
            if path is not None:
                _append(path, msgspec.json.encode(done.report) + b"\n")
        finally:  # the table is printed even if the file cannot be written
            streams.show(done.table, out)
    return INTERRUPTED if done.interrupted else 0


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
