"""Base class of the three apps: canvases, ticks at an adaptive frame rate, keys, exit; knows no panel by name."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import ClassVar, TypedDict

import rich
from rich.style import Style
from rich.traceback import Traceback
from textual.app import App
from textual.binding import Binding, BindingType

from decoder.errors import quoted, require
from dynatui.keymap import KEYMAP, Mode
from dynatui.render.ink import Ink
from dynatui.render.palette import THEME, palette
from dynatui.render.scene import Meters, Scene
from dynatui.screen.widgets.canvas import Canvas, uncovered
from dynatui.screen.widgets.wire import SYNC_END, SYNC_START, Frame
from dynatui.session import View
from dynatui.terminal.driver import TerminalDriver, bound
from dynatui.terminal.output import Output
from dynatui.terminal.shutdown import Shutdown

_MOST_SKIPPED = 16
_LATE_FRAMES = 2
"""Successive late frames after which the rate is halved."""
_RECOVERY_S, _LONGEST_RECOVERY_S = 3.0, 30.0
"""Seconds without a late frame after which the rate is doubled; halving the rate doubles them, up to the maximum."""
_WINDOW_S = 5.0
_NEWS_S = 1.0
"""Least seconds between updates of the meters, since drawing them has a cost."""


class FrameRate:
    def __init__(self, fps: float) -> None:
        self._tick_s = 1 / fps
        self._skip = 1
        """Ticks per frame."""
        self._late = 0
        self._waiting = False
        self._drawn_at = float("-inf")
        self._kept_up_since: float | None = None
        self._recovery_s = _RECOVERY_S
        self._readings: deque[tuple[float, float, int]] = deque()
        """Time, CPU seconds of the thread, bytes sent."""
        self._meters = Meters(fps)
        self._metered_at = float("-inf")

    def due(self, now: float, *, busy: bool) -> bool:
        """Whether to draw a frame at this tick; `busy` says whether the last frame is still being sent."""
        if self._kept_up_since is None:
            self._kept_up_since = now
        if now - self._drawn_at < (self._skip - 0.5) * self._tick_s:
            return False
        if busy:
            self._wait(now)
            return False
        self._late = self._late if self._waiting else 0
        self._waiting = False
        self._speed_up(now)
        self._drawn_at = now
        return True

    def meters(self, now: float, *, cpu_s: float, sent_bytes: int) -> Meters:
        """Mean cost of the screen over the last seconds; `cpu_s` and `sent_bytes` are totals since the start."""
        readings = self._readings
        readings.append((now, cpu_s, sent_bytes))
        while now - readings[0][0] > _WINDOW_S:
            readings.popleft()
        if now - self._metered_at >= _NEWS_S:
            self._metered_at = now
            first_s, first_cpu_s, first_bytes = readings[0]
            passed_s = now - first_s
            costs = ((cpu_s - first_cpu_s) / passed_s, (sent_bytes - first_bytes) / passed_s) if passed_s > 0 else ()
            self._meters = Meters(1 / (self._tick_s * self._skip), self._skip > 1, *costs)
        return self._meters

    def _wait(self, now: float) -> None:
        self._kept_up_since = now
        if self._waiting:
            return
        self._waiting = True
        self._late += 1
        if self._late >= _LATE_FRAMES and self._skip < _MOST_SKIPPED:
            self._skip *= 2
            self._late = 0
            self._recovery_s = min(_LONGEST_RECOVERY_S, 2 * self._recovery_s)

    def _speed_up(self, now: float) -> None:
        if self._kept_up_since is None or now - self._kept_up_since < self._recovery_s:
            return
        self._kept_up_since = now
        if self._skip > 1:
            self._skip //= 2
        else:
            self._recovery_s = _RECOVERY_S


FPS, FPS_OVER_SSH = 10, 5
TOGETHER_S = 0.3
"""Least time between two drawings of all panels, since each of them sends bytes, perhaps over a slow line."""
HUNG_UP = 128 + signal.SIGHUP
_BEFORE_WIDGETS = frozenset(("ctrl+c", "q", "tab", "shift+tab"))


class Surroundings(TypedDict, total=False):
    ticking: bool
    """Tests call `tick` instead."""
    clock: Callable[[], float]
    output: Output | None
    shutdown: Shutdown | None


def style_sheets(file_name: str) -> list[str | PurePath]:
    return [Path(__file__).with_name(name) for name in ("panels.tcss", file_name)]


class PanelApp(App[None], inherit_bindings=False):
    """Canvases with figures are drawn together, so that no two show different rounds; text is drawn at every frame."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(bound(cap), f"press({cap!r})", show=False, priority=cap in _BEFORE_WIDGETS)
        for cap in dict.fromkeys(cap for key in KEYMAP.every for cap in key.caps)
    ]

    def __init__(
        self,
        view: View,
        mode: Mode,
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
        self.scene = Scene(mode=mode, symbols=view.symbols, keys=view.keys)
        usual, now = ({cap for key in keys.every for cap in key.caps} for keys in (KEYMAP, view.keys))
        for cap in now - usual:
            self.bind(bound(cap), f"press({cap!r})", show=False)
        self.output = output or Output()
        self.shutdown = shutdown or Shutdown(self.output)
        self.leave_keys = view.keys.all_for("leave")
        self._fps = view.fps or (FPS_OVER_SSH if "SSH_CONNECTION" in os.environ else FPS)
        self._frame_rate = FrameRate(self._fps)
        self._ticking = ticking
        self._clock = clock
        self._all_due = False
        """Even canvases that are not due."""
        self._inks: Mapping[Ink, Style] = {}
        self._canvases: list[Canvas] = []
        self._drawn_at = float("-inf")

    def advance(self, now: float) -> None: ...

    def arrange(self) -> None: ...

    def draw(self, *, everything: bool = False) -> None:
        self.paint(lambda _: self.scene, self._clock(), everything=everything)

    def on_mount(self) -> None:
        self._take_inks()
        self.theme_changed_signal.subscribe(self, self._take_inks)
        self.rearrange()
        if self._ticking:
            loop = asyncio.get_running_loop()
            self.shutdown.ready(lambda code: loop.call_soon_threadsafe(self.leave, code))
            self.run_worker(self._run_ticks(), exit_on_error=True)
        self.tick()

    def on_resize(self) -> None:
        """Rearranges the canvases after this event, since the app's size is updated only then."""
        self.screen.refresh()  # this event may end a suspension, during which the terminal may have been cleared
        self.call_later(self.rearrange)

    def rearrange(self) -> None:
        self.arrange()
        self.call_after_refresh(self.draw, everything=True)

    def tick(self) -> None:
        self.advance(self._clock())
        self.draw()

    async def _run_ticks(self) -> None:
        """Ticks at the frame rate, without a timer of Textual, which would cost as much as half a frame."""
        now, tick_s = asyncio.get_running_loop().time, 1 / self._fps
        due = now()
        while True:
            due = max(due + tick_s, now() + tick_s / 2)  # at least half a tick is left for keys
            await asyncio.sleep(due - now())
            if self.is_running:  # while the app is closed, its canvases go one by one
                self._timed_tick()

    def _timed_tick(self) -> None:
        """A tick that reads all events, but draws only if the last frame has been sent."""
        now = self._clock()
        if self.output.lost:
            self.leave(HUNG_UP)
            return
        self.advance(now)
        meters = self._frame_rate.meters(now, cpu_s=time.thread_time(), sent_bytes=self.output.sent_bytes)
        self.scene = replace(self.scene, meters=meters)
        if self._frame_rate.due(now, busy=self.output.busy):
            self.draw()

    async def action_press(self, cap: str) -> None:
        if not self.shutdown.begun:
            await self.act(self.scene.keys.action_for(cap, self.scene.mode))

    async def on_canvas_pressed(self, message: Canvas.Pressed) -> None:
        if not self.shutdown.begun:
            await self.act(message.action)

    async def act(self, action: str | None) -> None:
        if action:
            await self.run_action(action)
            self.draw(everything=True)

    def set_theme(self, theme: str | None) -> None:
        """None is the default theme; raises a ConfigError for an unknown one."""
        if THEME.name not in self.available_themes:
            self.register_theme(THEME)
        names = sorted(self.available_themes)
        require(theme is None or theme in names, f"theme is {quoted(theme)}; give one of {', '.join(names)}", "theme")
        self.theme = (theme or THEME.name) if self._color else "ansi-dark"

    def _take_inks(self, _theme: object = None) -> None:
        self._inks = palette(self.theme_variables, color=self._color)

    def _fatal_error(self) -> None:
        """Ends the app after a bug; the traceback shows no values of variables, which may be private or long."""
        self._exit_renderables.append(Traceback(suppress=[rich]))
        self._close_messages_no_wait()

    def leave(self, code: int) -> None:
        self.shutdown.begin(code)
        self.exit(return_code=code)

    def action_leave(self) -> None:
        self.leave(0)

    def action_symbols(self) -> None:
        self.scene = replace(self.scene, symbols=self.scene.next_symbols)

    def action_redraw(self) -> None:
        for canvas in self.screen_stack[0].query(Canvas):
            canvas.redraw()
        self.screen.refresh()

    def paint(self, scene_of: Callable[[Canvas], Scene], now: float, *, everything: bool) -> None:
        """Draws flowing canvases always, all other canvases when they are due, and nothing while the output is busy."""
        self._all_due |= everything or now - self._drawn_at >= TOGETHER_S
        if self.output.busy:
            return
        everything, self._all_due = self._all_due, False
        self._drawn_at = now if everything else self._drawn_at
        screen, frame = self.screen_stack[0], Frame()
        places = uncovered(screen) if self.screen is screen else {}
        self._canvases = self._canvases or list(screen.query(Canvas))
        for canvas in self._canvases:
            if everything or canvas.flowing:
                if canvas in places:
                    canvas.patch(scene_of(canvas), self._inks, places[canvas], frame)
                else:
                    canvas.show(scene_of(canvas), self._inks)
        # Textual's compositor is bypassed, so that all changes are one synchronised update.
        if (changes := frame.text()) and self._driver is not None:
            self._driver.write(f"{SYNC_START}{changes}{SYNC_END}" if self._sync_available else changes)
