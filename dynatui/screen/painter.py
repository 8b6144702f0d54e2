"""What both apps draw with: scenes onto the canvases that are due, their cells onto the terminal.

Canvases that nothing covers are patched past Textual's compositor; the others are left to it. Knows no panel by name.
"""

import os
from collections.abc import Callable, Mapping

from rich.style import Style
from textual.app import App

from decoder.errors import quoted, require
from dynatui.render.ink import Ink
from dynatui.render.palette import THEME, palette
from dynatui.render.scene import Scene
from dynatui.screen.widgets.canvas import Canvas, uncovered
from dynatui.screen.widgets.wire import SYNC_END, SYNC_START, Frame
from dynatui.session import View
from dynatui.terminal.output import Output

FPS, FPS_OVER_SSH = 10, 5
TOGETHER_S = 0.3
"""Least time between two pictures of all panels: terminals behind slow lines pay for each."""


class Painter:
    """Draws an app's canvases, and none while the output is busy.

    All that tells figures is drawn from one scene at one time, so that no two panels ever show different rounds; only
    text flows from frame to frame.
    """

    def __init__(self, output: Output | None) -> None:
        self.output = output or Output()
        self.all_due = False
        """Whether all canvases are to be drawn at the next frame, due or not."""
        self.inks: Mapping[Ink, Style] = {}
        self._canvases: list[Canvas] = []
        """Of the main screen, which keeps them for good."""
        self._drawn = float("-inf")
        """When all of them were drawn."""

    def update_inks(self, app: App[None], *, color: bool) -> None:
        """Takes the inks from the theme of an app that runs."""
        self.inks = palette(app.theme_variables, color=color)

    def draw(self, app: App[None], scene_of: Callable[[Canvas], Scene], now: float, *, everything: bool) -> None:
        """Hands the canvases their scenes, all of them when it is time, and none while the output is busy."""
        self.all_due |= everything or now - self._drawn >= TOGETHER_S
        if self.output.busy:
            return
        everything, self.all_due = self.all_due, False
        self._drawn = now if everything else self._drawn
        screen, frame = app.screen_stack[0], Frame()
        places = uncovered(screen) if app.screen is screen else {}
        self._canvases = self._canvases or list(screen.query(Canvas))
        for canvas in self._canvases:
            if everything or canvas.flowing:
                if canvas in places:
                    canvas.patch(scene_of(canvas), self.inks, places[canvas], frame)
                else:
                    canvas.show(scene_of(canvas), self.inks)
        self._send(app, frame.text())

    def _send(self, app: App[None], frame: str) -> None:
        """Writes past the compositor; a terminal that can shows all of a frame at once."""
        driver = app._driver  # noqa: SLF001 - Textual has no other way to write what it has not composed
        if frame and driver is not None:
            driver.write(f"{SYNC_START}{frame}{SYNC_END}" if app._sync_available else frame)  # noqa: SLF001 - the same


def in_color(view: View) -> bool:
    """Whether a screen has colours."""
    return view.color and "NO_COLOR" not in os.environ


def frames_per_second(view: View) -> int:
    """As asked for, or what the way to the terminal suggests."""
    return view.fps or (FPS_OVER_SSH if "SSH_CONNECTION" in os.environ else FPS)


def set_theme(app: App[None], theme: str | None, *, color: bool) -> None:
    """Gives an app its theme.

    Raises:
        ConfigError: There is no theme of that name.
    """
    if THEME.name not in app.available_themes:
        app.register_theme(THEME)
    names = sorted(app.available_themes)
    require(theme is None or theme in names, f"theme is {quoted(theme)}; give one of {', '.join(names)}")
    app.theme = (theme or THEME.name) if color else "ansi-dark"
