"""What a click does, panel by panel; the keys can do all of it too."""

from typing import Any

from textual.errors import NoWidget
from textual.events import MouseEvent
from textual.screen import Screen as TextualScreen

from decoder.knobs import KnobName
from dynatui.keymap import CURSOR, Mode
from dynatui.render import drawer, sliders, status, timeline
from dynatui.screen.commands import knobs, time, view
from dynatui.screen.protocol import Screen
from dynatui.screen.widgets.canvas import Canvas


def panel_at(screen: TextualScreen[Any], event: MouseEvent) -> tuple[str, tuple[int, int], tuple[int, int]] | None:
    """The panel that is pressed, or dragged over: its name, the cell and its size; None elsewhere."""
    try:
        widget, region = screen.get_widget_at(event.screen_x, event.screen_y)
    except NoWidget:  # the terminal has become smaller since
        return None
    if not isinstance(widget, Canvas):
        return None
    at = event.screen_x - region.x, event.screen_y - region.y
    return widget.id or "", at, (region.width, region.height)


def click(screen: Screen, panel: str, at: tuple[int, int], size: tuple[int, int]) -> None:
    """A press, or a drag, on a cell of a panel of a size."""
    x, y = at
    match panel:
        case "knobs":
            _turned(screen, sliders.hit(screen.scene, *size, x, y))
        case "drawer":
            _turned(screen, drawer.hit(screen.scene, *size, x, y))
        case "timeline":
            if (rounds := timeline.hit(screen.scene, size[0], x)) is not None:
                time.scrub_to(screen, rounds)
        case "text":
            _inspected(screen, screen.text_panel.token_at(x, y))
        case "acceptance" | "depth":
            view.panel(screen, "curves")
        case "tabs":
            if tab := status.tab_at(screen.scene, size[0], x):
                view.panel(screen, tab)
        case "tree" | "race" | "work" | "whatif" | "prompts" | "log" | "sampling":
            view.panel(screen, panel)
    screen.draw(everything=True)


def wheel(screen: Screen, lines: int) -> None:
    """The cursor in the text, three lines at a time."""
    if screen.scene.mode in CURSOR:
        view.cursor_line(screen, 3 * lines)
    elif lines < 0:
        view.inspect(screen)


def _turned(screen: Screen, hit: tuple[KnobName, float] | None) -> None:
    if hit and screen.knob_editor:
        screen.change_view(slider=hit[0])
        knobs.turn_to(screen, *hit)


def _inspected(screen: Screen, place: int | None) -> None:
    if place is not None:
        mode: Mode = "search" if screen.scene.mode == "search" else "inspect"
        view.look_at_token(screen, place, mode=mode, panel="text")
