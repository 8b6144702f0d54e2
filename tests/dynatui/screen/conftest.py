"""Replaces Textual's wait for an idle app by a faster one, and removes settings that change pictures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from textual import app, pilot

MOMENT_S = 0.009
STEPS = 1000


async def until_idle(*_given: float) -> None:
    """Waits a moment, and then until the event loop has no task that is ready to run.

    Textual's own wait sleeps at least 20 ms, twice per key, and depends on the CPU time of the process, in which other
    threads may be busy.
    """
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(MOMENT_S)
    for _ in range(STEPS):
        if not loop._ready:
            return
        await asyncio.sleep(0)


def then_idle(act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The action, after which the app has drawn everything."""

    async def acted(self: pilot.Pilot[None], *given: Any, **named: Any) -> Any:
        result = await act(self, *given, **named)
        await self.pause()
        return result

    return acted


@pytest.fixture(scope="session", autouse=True)
def _no_longer_than_needed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (app, pilot):
            patch.setattr(module, "wait_for_idle", until_idle)
        for name in ("press", "click", "resize_terminal"):
            patch.setattr(pilot.Pilot, name, then_idle(getattr(pilot.Pilot, name)))
        yield


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEXTUAL_THEME", "SSH_CONNECTION", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
