"""One worker: takes a setting, measures it, keeps the result, until every setting has one.

Knows neither models nor how many workers there are.
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
"""Times that a result is offered to a database, a heartbeat apart: together less than a lease."""
Measure: TypeAlias = Callable[[Setting], Result]


def work(sweep: Sweep, measure: Measure) -> None:
    """Measures until every setting has its result, also those that dead workers held.

    Raises:
        DatabaseError: The database cannot be used any more; what was measured last is not in it.
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
    """Keeps a result, and waits for a database that is away for a moment: a measurement may have taken long."""
    for _ in range(KEPT_ATTEMPTS - 1):
        with suppress(DatabaseError):
            kept(sweep, claim, result)
            return
        time.sleep(sweep.heartbeat_s)
    kept(sweep, claim, result)


@contextmanager
def _alive(sweep: Sweep, claim: Claim) -> Iterator[None]:
    """Within, the database is told every now and then that this trial's worker lives."""
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
        # A database may be away for a moment; if it stays away, keeping the result says so.
        with suppress(DatabaseError):
            prolonged(sweep, claim)
