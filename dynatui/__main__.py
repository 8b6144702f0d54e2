"""Entry point. Slow modules are imported only once SIGINT has a handler, so Ctrl+C never prints a traceback."""

import os
import signal
import sys
import traceback
from types import FrameType, TracebackType

from decoder.system.openmp import spin_briefly
from dynatui.clean import clean

_INTERRUPTED = 130


def main() -> int:
    sys.excepthook = _report
    spin_briefly()  # has an effect only before torch is loaded
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return _run()  # SIGINT is ignored, as in a background job of a shell script
    signal.signal(signal.SIGINT, _leave)
    try:
        return _run()
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, _leave)


def _run() -> int:
    from dynatui.main import main as run  # noqa: PLC0415 - this import takes long
    from dynatui.terminal.streams import discard_errors  # noqa: PLC0415 - already imported by the line above

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    finally:
        discard_errors()


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the traceback of a bug; makes control characters visible, since they may come from models or files."""
    sys.stderr.write(clean("".join(traceback.format_exception(kind, error, trace))))


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
