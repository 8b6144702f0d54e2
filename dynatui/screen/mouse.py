"""Actions of clicks on panels; each of these actions also has a key."""

from collections.abc import Callable

from textual.geometry import Offset, Size

from decoder.knobs import KnobName
from dynatui.keymap import PanelName
from dynatui.render import race, status
from dynatui.render.ink import inside
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.canvas import ActionAt


def chooses(panel: PanelName, within: ActionAt = lambda *_: "") -> ActionAt:
    """A click chooses the panel, unless it is below the panel's title and has another action there."""

    def action(scene: Scene, size: Size, at: Offset) -> str:
        on_title = at.y == 0 and inside(size) != size
        return (not on_title and within(scene, size, at)) or f"panel({panel!r})"

    return action


def in_line(action: Callable[[Scene, int, int], str]) -> ActionAt:
    """Clicks on a panel of one line; `action` takes the panel's width and the clicked column."""
    return lambda scene, size, at: action(scene, size.width, at.x)


def slides(hit: Callable[[Scene, int, int, int, int], tuple[KnobName, float] | None]) -> ActionAt:
    def action(scene: Scene, size: Size, at: Offset) -> str:
        found = hit(scene, *size, *at)
        return f"turn_to{found}" if found else ""

    return action


def moment(scene: Scene, width: int, column: int) -> str:
    rounds = status.round_at(scene, width, column)
    return "" if rounds is None else f"scrub_to({rounds})"


def lane(scene: Scene, size: Size, at: Offset) -> str:
    method = race.lane_at(scene, size, at.y)
    return "" if method is None else f"lane({method!r})"


def token(panel: TextPanel) -> ActionAt:
    def action(_scene: Scene, _size: Size, at: Offset) -> str:
        place = panel.token_at(*at)
        return "" if place is None else f"token({place})"

    return action
