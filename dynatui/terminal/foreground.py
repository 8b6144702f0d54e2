"""Waits for the foreground: a job in the background must neither change the modes of the shell nor restore them."""

import errno
import signal
import termios

from decoder.errors import ConfigError


def wait_for_foreground(terminal: int) -> None:
    """Returns once this process may set the modes of the terminal; until then, the system stops it.

    For the main thread. Raises ConfigError if no shell is left that could put the process into the foreground.
    """
    before = signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    try:
        while not _drained(terminal):
            pass
    finally:
        signal.signal(signal.SIGTTOU, before)


def _drained(terminal: int) -> bool:
    """Waits for output, which stops a background process but changes no mode; False if a signal's handler ended it."""
    try:
        termios.tcdrain(terminal)
    except termios.error as error:
        if error.args[0] == errno.EINTR:
            return False
        if error.args[0] == errno.EIO:
            raise ConfigError(
                "the terminal belongs to another job, and no shell can hand it over; start dynatui in the foreground, "
                "or use --headless"
            ) from None
    return True
