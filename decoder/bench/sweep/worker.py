"""Worker of a sweep: claims a setting, measures it, keeps the result, until all settings have results.

Knows neither models nor other workers.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from decoder.bench.sweep.outcome import Result
from decoder.bench.sweep.spaces import Setting
from decoder.bench.sweep.trials import Claim, Sweep, claimed, kept, prolonged, returned, settled
from decoder.errors import DatabaseError

KEPT_ATTEMPTS = 4
"""Attempts to keep a result, a heartbeat apart; together shorter than a lease."""
Measure: TypeAlias = Callable[[Setting], Result]


def work(sweep: Sweep, measure: Measure) -> None:
    """Measures until every setting has a result, claims of dead workers included.

    Raises:
        DatabaseError: The database cannot be used any more; the last result is lost.
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
    """Keeps a result; retries where the database is away for a moment, since a measurement may have taken long."""
    for _ in range(KEPT_ATTEMPTS - 1):
        with suppress(DatabaseError):
            kept(sweep, claim, result)
            return
        time.sleep(sweep.heartbeat_s)
    kept(sweep, claim, result)


@contextmanager
def _alive(sweep: Sweep, claim: Claim) -> Iterator[None]:
    """Prolongs the lease in a thread while the setting is measured."""
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
        # a database may be away for a moment; if it stays away, keeping the result raises the error
        with suppress(DatabaseError):
            prolonged(sweep, claim)
