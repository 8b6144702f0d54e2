"""`--tensor-parallel`: decides whether this process launches several processes, leads them, or follows their leader.

Only the leader has the terminal, the prompts and the recording. A follower prints nothing but its error. Torch is
imported only after this process is known to be a follower.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from decoder.errors import ConfigError, DecoderError, not_importable
from decoder.tensor_parallel.ranks import LIFELINE, Ranks, group_rank, in_group, ranks_of
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.signals import STOP_SIGNALS

PATIENCE_S = 4.0
"""Seconds after a signal, or after the launcher's end, at which a process ends itself."""
SPREADS = "--tensor-parallel"
WHO_SPREADS = "leave the option out, since only dynatui itself and dynatui bench speed spread a target over processes"
_FAULT = 1
_SOON_S = 0.3
"""If the end of the leader caused a follower's error, the follower is killed in this time and reports nothing."""


def spread(
    count: int, models: Models, arguments: Sequence[str], *, wants_screen: bool = False, further_s: float = 0.0
) -> int | None:
    """Launches `count` ranks; in a process that is a rank already, the leader only returns, and a follower serves it.

    Returns the exit code of the launched ranks, or None if this process is to decode. A first signal extends the time
    in which the leader must end by `further_s`. Raises ConfigError if the started ranks are not `count`, or too many.
    """
    if not in_group(os.environ):
        if count == 1:
            return None
        from dynatui.cli.launcher import launch  # noqa: PLC0415 - needed only by the launcher

        return launch(count, arguments, drawn=wants_screen and streams.can_draw(), further_s=further_s)
    ranks = ranks_of(count, os.environ)
    if not ranks.leads:
        _leave_signals_to_the_leader()
    if LIFELINE in os.environ:
        _end_with_the_launcher(int(os.environ[LIFELINE]))
    return None if ranks.leads else _follow(ranks, models)


def require_alone(command: str) -> None:
    """Raises ConfigError in one of several processes, since each would do all of the work."""
    if in_group(os.environ) and (count := group_rank(os.environ).count) > 1:
        raise ConfigError(
            f"WORLD_SIZE says that {count} processes were started, and each would do the whole work of {command}; "
            "start the command once, without torchrun"
        )


def _leave_signals_to_the_leader() -> None:
    """Makes this follower end `PATIENCE_S` seconds after a signal, so that the leader has time to end it.

    A thread waits for the signal, since no Python handler runs while the main thread waits for the leader in C code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def answer() -> None:
        number = signal.sigwait(STOP_SIGNALS)
        time.sleep(PATIENCE_S)
        os._exit(128 + number)

    threading.Thread(target=answer, name="signals", daemon=True).start()


def _end_with_the_launcher(pipe: int) -> None:
    def wait() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE_S)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="launcher", daemon=True).start()


def _follow(ranks: Ranks, models: Models) -> NoReturn:
    """Serves the leader; exits by `os._exit`, since Python's exit would wait for threads in C code."""
    code = _FAULT
    try:
        _serve(ranks, models)
    except DecoderError as error:
        time.sleep(_SOON_S)
        streams.say(str(error))
        code = error.exit_code
    except Exception:  # noqa: BLE001 - the traceback is printed, and the process ends
        time.sleep(_SOON_S)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(ranks: Ranks, models: Models) -> NoReturn:
    try:
        from decoder.models.checkpoints import EMBEDDED_TARGET  # noqa: PLC0415 - imports torch
        from decoder.tensor_parallel.follower import serve  # noqa: PLC0415 - imports torch
    except (ImportError, OSError) as error:
        raise not_importable(error) from error
    serve(ranks, models.target or str(EMBEDDED_TARGET), models.device)
