"""How long tests of the app wait until it has done what was asked of it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from textual import app, pilot

MOMENT_S = 0.002
"""Long enough for a thread to hand over what it has."""


async def until_idle(_min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Waits until no task of the event loop could go on, twice in a row.

    Textual's own, of the same name and signature, sleeps 20 milliseconds at least, twice a key, and looks at the CPU
    time of the process, in which other threads may be busy.
    """
    loop: Any = asyncio.get_running_loop()
    end, quiet = loop.time() + max_sleep, 0
    while quiet < 2 and loop.time() < end:
        await asyncio.sleep(MOMENT_S)
        quiet = 0 if loop._ready else quiet + 1


@pytest.fixture(scope="session", autouse=True)
def _no_longer_than_needed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (app, pilot):
            patch.setattr(module, "wait_for_idle", until_idle)
        yield
