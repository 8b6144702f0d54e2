"""How long tests of the app wait until it has done what was asked of it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from textual import app, pilot

MOMENT_S = 0.009
"""Longer than Textual waits until it lays a changed screen out."""
STEPS = 1000
"""Of the event loop, after which one that never comes to rest is left as it is."""


async def until_idle(*_given: float) -> None:
    """Waits a moment, and until no task of the event loop could go on.

    Textual's own sleeps twenty milliseconds at least, twice a key, and looks at the CPU time of the process, in which
    other threads may be busy.
    """
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(MOMENT_S)
    for _ in range(STEPS):
        if not loop._ready:
            return
        await asyncio.sleep(0)


@pytest.fixture(scope="session", autouse=True)
def _no_longer_than_needed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (app, pilot):
            patch.setattr(module, "wait_for_idle", until_idle)
        yield
