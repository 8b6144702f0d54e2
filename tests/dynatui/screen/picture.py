"""A terminal's cells after all output of an app, and its cells after a fresh draw."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pyte
import pytest
from textual import events
from textual.drivers import headless_driver
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.pilot import Pilot

from dynatui.screen.panel_app import PanelApp
from dynatui.screen.widgets.canvas import Canvas

Seen: TypeAlias = tuple[object, ...]


class Picture:
    def __init__(self, size: tuple[int, int]) -> None:
        self._screen = pyte.Screen(*size)
        self._stream = pyte.Stream(self._screen)

    def feed(self, sent: str) -> None:
        self._stream.feed(sent)

    def resize(self, width: int, height: int) -> None:
        self._screen.resize(height, width)

    @property
    def cells(self) -> list[list[Seen]]:
        screen = self._screen
        return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


class PictureDriver(HeadlessDriver):
    picture: Picture

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        if not hasattr(self, "picture"):
            self.picture = Picture(self._size or (80, 24))
        self.picture.feed(data)


@asynccontextmanager
async def pictured(app: PanelApp, size: tuple[int, int]) -> AsyncIterator[tuple[Pilot[None], PictureDriver]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headless_driver, "HeadlessDriver", PictureDriver)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            driver: Any = app._driver
            assert isinstance(driver, PictureDriver)
            yield pilot, driver


async def resize(pilot: Pilot[None], driver: PictureDriver, size: tuple[int, int]) -> None:
    driver._size = size
    driver.picture.resize(*size)
    driver.process_message(events.Resize(Size(*size), Size(*size)))
    await pilot.pause()


async def afresh(app: PanelApp, driver: PictureDriver) -> list[list[Seen]]:
    own, driver.picture = driver.picture, Picture(driver._size or (80, 24))
    for canvas in app.screen_stack[0].query(Canvas):
        canvas._forget()
        canvas.show(canvas._scene, canvas._inks)
    app._display(app.screen, app.screen._compositor.render_full_update())
    fresh, driver.picture = driver.picture, own
    return fresh.cells


def differing(one: list[list[Seen]], other: list[list[Seen]]) -> list[str]:
    return [
        f"row {y}:\n{''.join(str(cell[0]) for cell in a)}\n{''.join(str(cell[0]) for cell in b)}"
        f"\n{''.join('^' if c != d else ' ' for c, d in zip(a, b, strict=True))}"
        for y, (a, b) in enumerate(zip(one, other, strict=True))
        if a != b
    ]


def _seen(cell: pyte.screens.Char) -> Seen:
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    if cell.data == " ":
        return " ", back, cell.underscore, cell.strikethrough
    return cell.data, front, back, cell.bold, cell.italics, cell.underscore, cell.strikethrough
