"""What a click does, panel by panel; the keys can do all of it too."""

from typing import TYPE_CHECKING

from textual.errors import NoWidget
from textual.events import MouseEvent

from decoder.knobs import KnobName
from dynatui.keymap import CURSOR
from dynatui.keys import Mode
from dynatui.render import drawer, sliders, status, timeline
from dynatui.screen.commands import text, time
from dynatui.screen.widgets.canvas import Canvas

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp


def pressed(app: "DynaApp", event: MouseEvent) -> None:
    """A press, or a drag, anywhere on the main screen."""
    if len(app.screen_stack) > 1:
        return
    try:
        widget, region = app.screen.get_widget_at(event.screen_x, event.screen_y)
    except NoWidget:  # the terminal has become smaller since
        return
    if isinstance(widget, Canvas):
        at = event.screen_x - region.x, event.screen_y - region.y
        click(app, widget.id or "", at, (region.width, region.height))


def click(app: "DynaApp", panel: str, at: tuple[int, int], size: tuple[int, int]) -> None:
    """A press, or a drag, on a cell of a panel of a size."""
    x, y = at
    match panel:
        case "knobs":
            _turned(app, sliders.hit(app.scene, *size, x, y))
        case "drawer":
            _turned(app, drawer.hit(app.scene, *size, x, y))
        case "timeline":
            _looked_at(app, timeline.hit(app.scene, size[0], x))
        case "text":
            _inspected(app, app.text_panel.token_at(x, y))
        case "acceptance" | "depth":
            text.panel(app, "curves")
        case "tabs":
            tab = status.tab_at(app.scene, size[0], x)
            if tab:
                text.panel(app, tab)
        case "tree" | "race" | "work" | "whatif" | "prompts" | "log":
            text.panel(app, panel)


def wheel(app: "DynaApp", lines: int) -> None:
    """The cursor in the text, three lines at a time."""
    if app.scene.mode in CURSOR:
        text.cursor_line(app, 3 * lines)
    elif lines < 0:
        text.inspect(app)


def _turned(app: "DynaApp", hit: tuple[KnobName, float] | None) -> None:
    if hit and app.desk:
        app.look(slider=hit[0])
        app.desk.set({hit[0]: hit[1]}, app.gaze.newest)
        app.draw(everything=True)


def _looked_at(app: "DynaApp", rounds: int | None) -> None:
    if rounds is not None:
        time.scrub_to(app, rounds)


def _inspected(app: "DynaApp", place: int | None) -> None:
    if place is not None:
        app.gaze.hold()
        mode: Mode = "search" if app.scene.mode == "search" else "inspect"
        app.look(mode=mode, cursor=place, panel="text")
