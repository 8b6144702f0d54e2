"""Actions of clicks and drags by panel; keys can do all of them too."""

from dataclasses import dataclass
from typing import Any

from textual.errors import NoWidget
from textual.events import MouseEvent
from textual.screen import Screen as TextualScreen

from decoder.knobs import KnobName
from dynatui.keymap import CURSOR, PANELS, Mode, PanelName
from dynatui.render import drawer, race, sliders, status, timeline
from dynatui.render.ink import Row, inside
from dynatui.screen.commands import knobs, time, view
from dynatui.screen.protocol import Screen
from dynatui.screen.widgets.canvas import Canvas

_PANELS: dict[str, PanelName] = {
    **{name: name for name in PANELS if name != "curves"},
    **dict.fromkeys(("acceptance", "depth"), "curves"),
    "side": "work",
}
"""The panel that a click chooses, by the name of the widget."""
_DRAGGED = frozenset(("knobs", "drawer", "timeline", "text"))
"""Widgets on which a drag follows the pointer; elsewhere it would undo the click."""


@dataclass(frozen=True)
class Press:
    """A clicked cell of a panel, or one under a drag."""

    panel: str
    """The name of its widget."""
    at: tuple[int, int]
    """Column and row in it."""
    size: tuple[int, int]
    top: Row
    """The shown first row of the panel."""

    @property
    def on_title(self) -> bool:
        """Whether it is on the title of a framed panel."""
        return self.panel in _PANELS and self.at[1] == 0 and inside(self.size) != self.size


def press_at(screen: TextualScreen[Any], event: MouseEvent) -> Press | None:
    """The cell under the pointer; None outside of panels."""
    try:
        widget, region = screen.get_widget_at(event.screen_x, event.screen_y)
    except NoWidget:  # the terminal has become smaller since
        return None
    if not isinstance(widget, Canvas):
        return None
    at = event.screen_x - region.x, event.screen_y - region.y
    return Press(widget.id or "", at, (region.width, region.height), widget.top)


def drag(screen: Screen, press: Press) -> None:
    """The pointer moves over a cell while its button is down."""
    if press.panel in _DRAGGED and not press.on_title:
        click(screen, press)


def click(screen: Screen, press: Press) -> None:
    """What a press on a cell does."""
    (x, y), size = press.at, press.size
    if press.on_title:
        view.panel(screen, status.named_at(press.top, x) or _PANELS[press.panel])
        return
    match press.panel:
        case "knobs":
            _turned(screen, sliders.hit(screen.scene, *size, x, y))
        case "drawer":
            _turned(screen, drawer.hit(screen.scene, *size, x, y))
        case "timeline":
            if (rounds := timeline.hit(screen.scene, size[0], x)) is not None:
                time.scrub_to(screen, rounds)
        case "text":
            _inspected(screen, screen.text_panel.token_at(x, y))
        case "tabs":
            if tab := status.tab_at(screen.scene, size[0], x):
                view.panel(screen, tab)
        case chosen if chosen in _PANELS:
            view.panel(screen, _PANELS[chosen])
            _watched(screen, race.lane_at(screen.scene, size, y) if chosen == "race" else None)
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


def _watched(screen: Screen, method: str | None) -> None:
    if method is not None:
        screen.watch_method(method)


def _inspected(screen: Screen, place: int | None) -> None:
    if place is not None:
        mode: Mode = "search" if screen.scene.mode == "search" else "inspect"
        view.look_at_token(screen, place, mode=mode, panel="text")
