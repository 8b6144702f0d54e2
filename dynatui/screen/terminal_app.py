"""What both apps are: they hand scenes to the canvases that are due, and end within the deadline of the shutdown.

Canvases that nothing covers are patched past Textual's compositor; the others are left to it. Knows no panel by name.
"""

import asyncio
import os
import time
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
from dynatui.terminal.driver import TerminalDriver
from dynatui.terminal.output import Output
from dynatui.terminal.shutdown import Shutdown

FPS, FPS_OVER_SSH = 10, 5
TOGETHER_S = 0.3
"""Least time between two pictures of all panels: terminals behind slow lines pay for each."""


class TerminalApp(App[None], inherit_bindings=False):
    """Draws its canvases, and none while the output is busy.

    All that tells figures is drawn from one scene at one time, so that no two panels ever show different rounds; only
    text flows from frame to frame.
    """

    def __init__(
        self,
        view: View,
        *,
        ticking: bool = True,
        clock: Callable[[], float] = time.monotonic,
        output: Output | None = None,
        shutdown: Shutdown | None = None,
    ) -> None:
        self._color = view.color and "NO_COLOR" not in os.environ
        super().__init__(driver_class=TerminalDriver, ansi_color=None if self._color else True)
        self.animation_level = "none"
        self.set_theme(view.theme)
        self.output = output or Output()
        self.shutdown = shutdown or Shutdown(self.output)
        self.leave_keys = view.keys.all_for("leave")
        self._fps = view.fps or (FPS_OVER_SSH if "SSH_CONNECTION" in os.environ else FPS)
        self._ticking = ticking
        self._clock = clock
        self._all_due = False
        """Whether all canvases are to be drawn at the next frame, due or not."""
        self._inks: Mapping[Ink, Style] = {}
        self._canvases: list[Canvas] = []
        """Of the main screen, which keeps them for good."""
        self._drawn = float("-inf")
        """When all of them were drawn."""

    def set_theme(self, theme: str | None) -> None:
        """Gives the app its theme; without colours there is only one.

        Raises:
            ConfigError: There is no theme of that name.
        """
        if THEME.name not in self.available_themes:
            self.register_theme(THEME)
        names = sorted(self.available_themes)
        require(theme is None or theme in names, f"theme is {quoted(theme)}; give one of {', '.join(names)}", "theme")
        self.theme = (theme or THEME.name) if self._color else "ansi-dark"

    def _take_inks(self, _theme: object = None) -> None:
        """Takes the inks from the theme of the app, once the style sheet is that theme's."""
        self._inks = palette(self.theme_variables, color=self._color)

    def begin(self, tick: Callable[[], object]) -> None:
        """Takes the inks, and lets the app tick and be asked to leave, unless a test does both."""
        self._take_inks()
        self.theme_changed_signal.subscribe(self, self._take_inks)
        if self._ticking:
            loop = asyncio.get_running_loop()
            self.shutdown.ready(lambda code: loop.call_soon_threadsafe(self.leave, code))
            tick()

    def leave(self, code: int) -> None:
        """Ends the app."""
        self.shutdown.begin(code)
        self.exit(return_code=code)

    def action_leave(self) -> None:
        """Quits."""
        self.leave(0)

    def action_redraw(self) -> None:
        """Draws every panel anew and sends every cell."""
        for canvas in self.screen_stack[0].query(Canvas):
            canvas.redraw()
        self.screen.refresh()

    def paint(self, scene_of: Callable[[Canvas], Scene], now: float, *, everything: bool) -> None:
        """Hands the canvases their scenes, all of them when it is time, and none while the output is busy."""
        self._all_due |= everything or now - self._drawn >= TOGETHER_S
        if self.output.busy:
            return
        everything, self._all_due = self._all_due, False
        self._drawn = now if everything else self._drawn
        screen, frame = self.screen_stack[0], Frame()
        places = uncovered(screen) if self.screen is screen else {}
        self._canvases = self._canvases or list(screen.query(Canvas))
        for canvas in self._canvases:
            if everything or canvas.flowing:
                if canvas in places:
                    canvas.patch(scene_of(canvas), self._inks, places[canvas], frame)
                else:
                    canvas.show(scene_of(canvas), self._inks)
        if (changes := frame.text()) and self._driver is not None:  # past the compositor, all at once where possible
            self._driver.write(f"{SYNC_START}{changes}{SYNC_END}" if self._sync_available else changes)
