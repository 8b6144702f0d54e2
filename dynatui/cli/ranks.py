"""`--tensor-parallel`: what this process is, the launcher of several, the one of them that leads, or a follower.

The leader is the program as its user sees it: the terminal, the prompts and the recording are its own. Followers write
nothing but why they fail. Imports no torch before it is known that this process follows.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from decoder.errors import ConfigError, DecoderError, not_importable
from decoder.tensor_parallel.ranks import LIFELINE, Ranks, group_rank, in_group, ranks_of
from dynatui.terminal import streams
from dynatui.terminal.shutdown import STOP_SIGNALS

PATIENCE_S = 4.0
"""How long a signal leaves it to the leader to end everything in its own way."""
SPREADS = "--tensor-parallel"
WHO_SPREADS = "only dynatui itself and dynatui bench speed spread a target over processes, so leave it out"
_FAULT = 1
_SOON_S = 0.3
"""After which a follower whose pass or connection failed would have ended by its leader's end, if that was why."""


def spread(
    count: int,
    models: Mapping[str, Any],
    arguments: Sequence[str],
    *,
    wants_screen: bool = False,
    further_s: float = 0.0,
) -> int | None:
    """Launches so many ranks, or is one of those that were launched.

    Args:
        count: Ranks; one alone is not launched.
        models: Options that say which models run where.
        arguments: The command line.
        wants_screen: Whether the program shows a screen where there is a terminal.
        further_s: How much longer than usual the leader may take to end in its own way after a first signal.

    Returns:
        The exit code of ranks that were launched here; None: this process decodes. A follower does not return.

    Raises:
        ConfigError: This process was started as one of another number, or cannot launch so many.
    """
    if not in_group(os.environ):
        if count == 1:
            return None
        from dynatui.cli.launcher import launch  # noqa: PLC0415 - few runs need it

        return launch(count, arguments, drawn=wants_screen and streams.can_draw(), further_s=further_s)
    ranks = ranks_of(count, os.environ)
    if not ranks.leads:
        _leave_signals_to_the_leader()
    if LIFELINE in os.environ:
        _end_with_the_launcher(int(os.environ[LIFELINE]))
    return None if ranks.leads else _follow(ranks, models)


def require_alone(command: str) -> None:
    """Refuses a command that knows nothing of other processes, each of which would do all of it.

    Raises:
        ConfigError: This process was started as one of several.
    """
    if in_group(os.environ) and (count := group_rank(os.environ).count) > 1:
        raise ConfigError(
            f"WORLD_SIZE says that {count} processes were started, and each would do all of {command}; start it once, "
            "without torchrun"
        )


def _leave_signals_to_the_leader() -> None:
    """Takes signals in a thread: the first one waits in C for the leader's word, where Python handles none."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def answer() -> None:
        number = signal.sigwait(STOP_SIGNALS)
        time.sleep(PATIENCE_S)
        os._exit(128 + number)

    threading.Thread(target=answer, name="signals", daemon=True).start()


def _end_with_the_launcher(pipe: int) -> None:
    """Asks this process to end, as a signal does, when the one that launched it is gone; in the end, ends it."""

    def wait() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE_S)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="launcher", daemon=True).start()


def _follow(ranks: Ranks, models: Mapping[str, Any]) -> NoReturn:
    """Serves the leader; the end of this process is an abrupt one, as Python's own would wait for threads in C."""
    code = _FAULT
    try:
        _serve(ranks, models)
    except DecoderError as error:
        time.sleep(_SOON_S)
        streams.say(str(error))
        code = error.exit_code
    except Exception:  # noqa: BLE001 - told in full, and then the process ends
        time.sleep(_SOON_S)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(ranks: Ranks, models: Mapping[str, Any]) -> NoReturn:
    try:
        from decoder.models.checkpoints import EMBEDDED_TARGET  # noqa: PLC0415 - imports torch
        from decoder.tensor_parallel.follower import serve  # noqa: PLC0415 - as above
    except (ImportError, OSError) as error:
        raise not_importable(error) from error
    serve(ranks, models["target"] or str(EMBEDDED_TARGET), models["device"])
