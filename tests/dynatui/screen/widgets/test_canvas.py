"""A panel: rows it patches itself, rows left to Textual, and the check that nothing covers it."""

from collections.abc import Mapping

import pyte
import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Offset, Region
from textual.screen import ModalScreen

from dynatui.render.ink import Ink, Rows
from dynatui.render.scene import Scene
from dynatui.screen.widgets.canvas import Canvas, uncovered
from dynatui.screen.widgets.wire import Frame

INKS: dict[Ink, Style] = {"plain": Style.parse("#ffffff"), "good": Style.parse("#00ff00")}
PLACE = Offset(0, 0)


def speeds(scene: Scene, width: int, height: int) -> Rows:
    del width
    return [(("top", "plain"),), ((f"speed {scene.speed:.0f}", "good"),), *[()] * (height - 2)]


class Panels(App[None]):
    CSS = "Screen { layout: horizontal; } Canvas { width: 1fr; height: 4; }"

    def compose(self) -> ComposeResult:
        yield Canvas(speeds, panel="left")
        yield Canvas(speeds, panel="right")

    def panel(self, name: str) -> Canvas:
        return self.query_one(f"#{name}", Canvas)


def patched(canvas: Canvas, scene: Scene, place: Offset = PLACE, inks: Mapping[Ink, Style] = INKS) -> str:
    frame = Frame()
    canvas.patch(scene, inks, place, frame)
    return frame.text()


def text_of(canvas: Canvas) -> list[str]:
    return [strip.text.rstrip() for strip in canvas.render_lines(Region(0, 0, *canvas.size))]


async def test_only_the_changed_cells_are_patched_at_the_panels_place() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)):
        right = app.panel("right")
        right.show(Scene(), INKS)
        patch = patched(right, Scene(speed=7), Offset(10, 2))
        assert patch.startswith("\x1b[4;17H")
        assert patch.endswith("7\x1b[m")
        assert patched(right, Scene(speed=7), Offset(10, 2)) == ""


async def test_what_was_patched_is_what_textual_shows_from_then_on() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        await pilot.pause()
        patched(left, Scene(speed=7))
        assert text_of(left)[:2] == ["top", "speed 7"]


async def test_after_a_change_of_size_or_inks_textual_draws() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        await pilot.resize_terminal(30, 6)
        assert patched(left, Scene()) == "", "the new size was drawn as it came"
        assert patched(left, Scene(speed=7), inks={**INKS}) == "", "other inks concern all rows"
        assert text_of(left)[1] == "speed 7"


async def test_panels_are_in_the_open_until_something_lies_over_them() -> None:
    app = Panels()
    async with app.run_test(size=(90, 20), notifications=True) as pilot:
        screen = app.screen
        assert uncovered(screen) == {app.panel("left"): Offset(0, 0), app.panel("right"): Offset(45, 0)}
        app.notify("at the bottom, which only the right one reaches", timeout=60)
        app.panel("right").styles.height = 20
        await pilot.pause()
        assert uncovered(screen) == {app.panel("left"): Offset(0, 0)}


async def test_a_hidden_panel_is_not_in_the_open() -> None:
    app = Panels()
    async with app.run_test(size=(90, 20)) as pilot:
        app.panel("left").display = False
        await pilot.pause()
        assert list(uncovered(app.screen)) == [app.panel("right")]


async def test_a_page_over_the_screen_shows_the_newest_rows_behind_it() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        patched(left, Scene(speed=7))
        await app.push_screen(ModalScreen())
        await pilot.pause()
        assert "speed 7" in "".join(strip.text for strip in app.screen._compositor.render_strips())


def counted(scene: Scene, width: int, height: int) -> Rows:
    del width
    body: Rows = [((f"row {int(scene.speed) + y}", "good"),) for y in range(height - 2)]
    return [(("top", "plain"),), *body, (("bottom", "plain"),)]


class Page(App[None]):
    def compose(self) -> ComposeResult:
        yield Canvas(counted, panel="left")


@pytest.mark.parametrize("moved", [1, 3, 9, -2])
async def test_a_panel_as_wide_as_the_screen_scrolls_in_the_terminal(moved: int) -> None:
    app = Page()
    async with app.run_test(size=(40, 12)) as pilot:
        page = app.query_one(Canvas)
        page.styles.height = 12
        await pilot.pause()
        page.show(Scene(speed=10), INKS)
        terminal = pyte.Screen(40, 12)
        stream = pyte.Stream(terminal)
        stream.feed("\r\n".join(text_of(page)))
        patch = patched(page, Scene(speed=10 + moved))
        stream.feed(patch)
        assert [line.rstrip() for line in terminal.display] == text_of(page)
        assert ("\n" in patch) == (moved in (1, 3)), "only what moved up a little can be scrolled"


async def test_a_panel_beside_others_never_scrolls() -> None:
    app = Panels()
    async with app.run_test(size=(20, 12)) as pilot:
        left = app.panel("left")
        left._draw_panel = counted
        left.styles.height = 12
        await pilot.pause()
        left.show(Scene(speed=10), INKS)
        assert "\n" not in patched(left, Scene(speed=11))
