"""Runs under torchrun: rank 0 (the leader) decodes; the other ranks (followers) serve rank 0 and print only errors."""

import os
import signal
import sys
import time
import traceback

from decoder.errors import ConfigError, DecoderError, not_importable
from decoder.tensor_parallel.ranks import ranks_here
from dynatui.session import Models
from dynatui.terminal import streams
from dynatui.terminal.shutdown import STOP_SIGNALS

_FAULT = 1
_SOON_S = 1.0
"""Seconds from a follower's error to its report; if the leader has ended, torchrun kills the follower before that."""


def join(models: Models) -> None:
    """If this process is a follower, serves the leader and never returns."""
    ranks = ranks_here()
    if ranks is None or ranks.leads:
        return
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the leader ends this process
    code = _FAULT
    try:
        try:
            from decoder.models.checkpoints import EMBEDDED_TARGET  # noqa: PLC0415 - imports torch
            from decoder.tensor_parallel.target import serve  # noqa: PLC0415 - imports torch
        except (ImportError, OSError) as error:
            raise not_importable(error) from error
        serve(ranks, models.target or str(EMBEDDED_TARGET), models.device)
    except DecoderError as error:
        time.sleep(_SOON_S)
        streams.say(str(error))
        code = error.exit_code
    except Exception:  # noqa: BLE001 - the traceback is printed, and the process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # Python's exit would wait for threads in C code


def spreads() -> bool:
    """Whether torchrun has started several processes, over which the target is spread."""
    return ranks_here() is not None


def require_alone(command: str) -> None:
    """Raises ConfigError if torchrun has started several processes, each of which would do the command's whole work."""
    if ranks := ranks_here():
        fault = f"{ranks.count} processes were started, and each would do the whole work of {command}"
        raise ConfigError(f"WORLD_SIZE says that {fault}; start the command once, without torchrun")
