"""Worker of a sweep: claims settings, measures them and stores the results, until all settings are finished.

This module does not depend on models or on other workers.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from decoder.errors import DatabaseError
from dynatui.lab.bench.sweep.outcome import Result
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.trials import Claim, Sweep, claimed, kept, prolonged, returned, settled

KEPT_ATTEMPTS = 4
"""Number of attempts to store a result, one per heartbeat; all attempts end before the lease expires."""
Measure: TypeAlias = Callable[[Setting], Result]


def work(sweep: Sweep, measure: Measure) -> None:
    """Measures settings until all are finished, including those that dead workers had claimed.

    Raises:
        DatabaseError: The database can no longer be used; the latest result is lost.
    """
    while True:
        claim = claimed(sweep)
        if claim is None and settled(sweep):
            return
        if claim is None:
            time.sleep(sweep.heartbeat_s)
            continue
        try:
            with _alive(sweep, claim):
                result = measure(claim.setting)
        except BaseException:
            returned(sweep, claim)
            raise
        _kept(sweep, claim, result)


def _kept(sweep: Sweep, claim: Claim, result: Result) -> None:
    """Stores a result; retries during a short outage of the database, since the measurement may have taken long."""
    for _ in range(KEPT_ATTEMPTS - 1):
        with suppress(DatabaseError):
            kept(sweep, claim, result)
            return
        time.sleep(sweep.heartbeat_s)
    kept(sweep, claim, result)


@contextmanager
def _alive(sweep: Sweep, claim: Claim) -> Iterator[None]:
    """Context in which a thread regularly prolongs the lease of a claim."""
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(sweep, claim, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(sweep: Sweep, claim: Claim, stop: threading.Event) -> None:
    while not stop.wait(sweep.heartbeat_s):
        # An error is ignored, since the database may be unreachable only for a short time. If it remains unreachable,
        # storing the result raises the error.
        with suppress(DatabaseError):
            prolonged(sweep, claim)
