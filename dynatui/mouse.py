"""What a click does, panel by panel; the keys can do all of it too."""

from typing import TYPE_CHECKING

from dynatui.commands import text, time
from dynatui.render import drawer, sliders, status, timeline

if TYPE_CHECKING:
    from dynatui.app import DynaApp


def click(app: "DynaApp", panel: str, at: tuple[int, int], size: tuple[int, int]) -> None:
    """A press, or a drag, on a cell of a panel of a size."""
    x, y = at
    match panel:
        case "knobs" | "drawer":
            hit = (sliders.hit if panel == "knobs" else drawer.hit)(app.scene, *size, x, y)
            if hit and app.desk:
                app.look(slider=hit[0])
                app.desk.set(*hit, app.gaze.work.state)
                app.draw(everything=True)
        case "timeline":
            rounds = timeline.hit(app.scene, size[0], x)
            if rounds is not None:
                time.scrub_to(app, rounds)
        case "tabs":
            tab = status.tab_at(app.scene, size[0], x)
            if tab:
                text.panel(app, tab)
        case "text":
            place = app.text_panel.token_at(x, y)
            if place is not None:
                app.gaze.hold()
                app.look(mode="inspect", cursor=place, panel="text")
        case "tree" | "race" | "work" | "whatif" | "prompts" | "log":
            text.panel(app, panel)
        case "acceptance" | "depth":
            text.panel(app, "curves")


def wheel(app: "DynaApp", lines: int) -> None:
    """The cursor in the text, three lines at a time."""
    if app.scene.mode == "inspect":
        text.cursor_line(app, 3 * lines)
    elif lines < 0:
        text.inspect(app)
