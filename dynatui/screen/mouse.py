"""Actions of clicks and drags on panels, except on tabs and footer; each of these actions also has a key."""

from dataclasses import dataclass
from typing import Any

from textual.errors import NoWidget
from textual.events import MouseEvent
from textual.screen import Screen as TextualScreen

from decoder.knobs import KnobName
from dynatui.keymap import CURSOR, PANELS, Mode, PanelName
from dynatui.render import drawer, race, sliders, timeline
from dynatui.render.ink import inside
from dynatui.screen.commands import knobs, time, view
from dynatui.screen.protocol import Screen
from dynatui.screen.widgets.canvas import Canvas

_PANELS: dict[str, PanelName] = {
    **{name: name for name in PANELS if name != "curves"},
    **dict.fromkeys(("acceptance", "depth"), "curves"),
    "side": "work",
}
_DRAGGED = frozenset(("knobs", "drawer", "timeline", "text"))
"""Widgets on which a drag repeats the click at each cell; on other widgets, a second click would undo the first."""


@dataclass(frozen=True)
class Press:
    panel: str
    at: tuple[int, int]
    """Column and row of the cell in the panel, from 0."""
    size: tuple[int, int]

    @property
    def on_title(self) -> bool:
        return self.panel in _PANELS and self.at[1] == 0 and inside(self.size) != self.size


def press_at(screen: TextualScreen[Any], event: MouseEvent) -> Press | None:
    try:
        widget, region = screen.get_widget_at(event.screen_x, event.screen_y)
    except NoWidget:  # the terminal has shrunk since the event
        return None
    if not isinstance(widget, Canvas):
        return None
    at = event.screen_x - region.x, event.screen_y - region.y
    return Press(widget.id or "", at, (region.width, region.height))


def drag(screen: Screen, press: Press) -> None:
    if press.panel in _DRAGGED and not press.on_title:
        click(screen, press)


def click(screen: Screen, press: Press) -> None:
    (x, y), size = press.at, press.size
    if press.on_title:
        view.panel(screen, _PANELS[press.panel])
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
            if (place := screen.text_panel.token_at(x, y)) is not None:
                mode: Mode = "search" if screen.scene.mode == "search" else "inspect"
                view.look_at_token(screen, place, mode=mode, panel="text")
        case chosen if chosen in _PANELS:
            view.panel(screen, _PANELS[chosen])
            if chosen == "race" and (method := race.lane_at(screen.scene, size, y)) is not None:
                screen.watch_method(method)
    screen.draw(everything=True)


def wheel(screen: Screen, lines: int) -> None:
    """Moves the text cursor by three lines per step of the wheel; if there is no cursor, a step up places one."""
    if screen.scene.mode in CURSOR:
        view.cursor_line(screen, 3 * lines)
    elif lines < 0:
        view.inspect(screen)


def _turned(screen: Screen, hit: tuple[KnobName, float] | None) -> None:
    if hit and screen.knob_editor:
        screen.change_view(slider=hit[0])
        knobs.turn_to(screen, *hit)
