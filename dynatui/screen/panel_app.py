"""Base class of the three apps: canvases, ticks, frames, keys and exit. Independent of individual panels."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, TypedDict

import rich
from rich.console import RenderableType
from rich.style import Style
from rich.traceback import Traceback
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.binding import Binding, BindingType
from textual.screen import Screen

from decoder.errors import quoted, require
from dynatui.keymap import KEYMAP, Mode
from dynatui.render.ink import Ink
from dynatui.render.palette import THEME, palette
from dynatui.render.scene import Meters, Scene
from dynatui.screen.canvas import Canvas, color_system, uncovered
from dynatui.screen.wire import SYNC_END, SYNC_START, Frame, Shown, cell_style, parts
from dynatui.session import View
from dynatui.terminal.driver import TerminalApp, TerminalDriver, bound
from dynatui.terminal.output import Output
from dynatui.terminal.shutdown import Shutdown

_WINDOW = 5
_NEWS_S = 1.0
"""Least time, in seconds, between readings of the meters, since drawing them has a cost."""
_SLOW_SHARE = 0.25
"""The connection to the terminal counts as slow if at more than this share of ticks a frame is still in transit."""


class FrameMeter:
    """Rates over the last `_WINDOW` readings; the attributes `frames` and `late` count since the start."""

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._readings = deque[tuple[float, float, int, int, int]](maxlen=_WINDOW + 1)
        """(time, CPU seconds of the thread, bytes sent, frames, late ticks), totals since the start."""
        self._meters = Meters(fps)
        self.frames = 0
        self.late = 0
        """Number of ticks at which the previous frame was still in transit to the terminal."""

    def meters(self, now: float, *, cpu_s: float, sent_bytes: int) -> Meters:
        readings = self._readings
        if readings and now - readings[-1][0] < _NEWS_S:
            return self._meters
        readings.append((now, cpu_s, sent_bytes, self.frames, self.late))
        passed_s, cpu_s, *counts = (new - old for new, old in zip(readings[-1], readings[0], strict=True))
        if passed_s > 0:
            sent, frames, late = (count / passed_s for count in counts)
            slow = late > _SLOW_SHARE * self._fps
            self._meters = Meters(frames if slow else self._fps, slow, cpu_s / passed_s, sent)
        return self._meters


FPS, FPS_OVER_SSH = 10, 5
TOGETHER_S = 0.3
"""Least time, in seconds, between two drawings of all panels, unless a key or an event requires one earlier."""
HUNG_UP = 128 + signal.SIGHUP
_BEFORE_WIDGETS = frozenset(("ctrl+c", "q", "tab", "shift+tab"))


class Surroundings(TypedDict, total=False):
    ticking: bool
    """Whether the app ticks by itself; tests call `tick` instead."""
    clock: Callable[[], float]
    output: Output | None
    shutdown: Shutdown | None


def style_sheets(file_name: str) -> list[str | PurePath]:
    return [Path(__file__).with_name(name) for name in ("panels.tcss", file_name)]


class PanelApp(TerminalApp, inherit_bindings=False):
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
        self._frame_meter = FrameMeter(self._fps)
        self._ticking = ticking
        self._clock = clock
        self._all_due = False
        """Whether the next frame draws all canvases."""
        self._shown: Shown | None = None
        """Contents of the terminal's screen; None if unknown."""
        self._whole_due = False
        """Whether the next frame must contain all widgets of Textual's screen."""
        self._missed = False
        """Whether something remains to be drawn once the terminal has read the last frame."""
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
        """Rearranges the canvases after this event, since Textual updates the app's size only after the event."""
        self._shown = None  # this event may end a suspension, during which the terminal may have been cleared
        self.screen.refresh()
        self.call_later(self.rearrange)

    def rearrange(self) -> None:
        self.arrange()
        self.call_after_refresh(self.draw, everything=True)

    def tick(self) -> None:
        self.advance(self._clock())
        self.draw()

    async def _run_ticks(self) -> None:
        """Ticks at the frame rate, without a Textual timer, each tick of which would cost as much as half a frame."""
        now, tick_s = asyncio.get_running_loop().time, 1 / self._fps
        due = now()
        while True:
            due = max(due + tick_s, now() + tick_s / 2)  # at least half a tick is left for keys
            await asyncio.sleep(due - now())
            if self.is_running:  # while the app closes, its canvases are removed one by one
                self._timed_tick()

    def _timed_tick(self) -> None:
        """A tick that reads all events, but draws only if the terminal has read the last frame."""
        now, meter = self._clock(), self._frame_meter
        if self.output.lost:
            self.leave(HUNG_UP)
            return
        self.advance(now)
        meters = meter.meters(now, cpu_s=time.thread_time(), sent_bytes=self.output.sent_bytes)
        self.scene = replace(self.scene, meters=meters)
        if self.output.busy:
            meter.late += 1
            self._missed = True
        else:
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
        """None stands for the default theme; raises a ConfigError for an unknown theme."""
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
        self._shown = None
        self.output.forget_answers()
        for canvas in self.screen_stack[0].query(Canvas):
            canvas.redraw()
        self.screen.refresh()

    def paint(self, scene_of: Callable[[Canvas], Scene], now: float, *, everything: bool) -> None:
        """Draws the flowing canvases and, if they are due, all others; draws nothing while the output is busy."""
        self._all_due |= everything or now - self._drawn_at >= TOGETHER_S
        self._missed = self.output.busy
        if self._missed:
            return
        screen, frame = self.screen_stack[0], self._new_frame()
        self._canvases = self._canvases or list(screen.query(Canvas))
        places = uncovered(screen) if self.screen is screen and not self._whole_due else {}
        for canvas in self._canvases:
            if not (self._all_due or canvas.flowing):
                continue
            if canvas in places:
                canvas.patch(scene_of(canvas), self._inks, places[canvas], frame)
            else:
                canvas.show(scene_of(canvas), self._inks)
        self._drawn_at = now if self._all_due else self._drawn_at
        self._all_due = False
        self._send(frame)

    def on_answered(self) -> None:
        """Draws what has changed while the terminal read the last frame, so that a slow connection is never idle."""
        if self._missed and not self.output.busy:
            self.draw()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Sends what Textual has drawn as a frame of changed cells; if the output is busy, the next frame sends it."""
        if self.is_headless or not isinstance(renderable, ChopsUpdate | LayoutUpdate):
            super()._display(screen, renderable)
        elif self.output.busy:
            self._whole_due = self._missed = True
        elif self.is_running and not self._batch_count:
            self._send(self._new_frame(), renderable)

    def _new_frame(self) -> Frame:
        if self._shown is not None and (self._shown.width, self._shown.height) == self.size:
            return Frame(self._shown)
        self._shown, self._whole_due = Shown(self.size, erases=self.output.erases_in_color), True
        frame = Frame(self._shown)
        frame.clear(cell_style(self.screen_stack[0].rich_style, color_system(self.console)))
        return frame

    def _send(self, frame: Frame, update: RenderableType | None = None) -> None:
        """Sends the frame, with what Textual has drawn, as one synchronised update that the terminal is to answer."""
        if self._whole_due:
            self._whole_due, behind = False, self._background_screens
            update = self.screen._compositor.render_update(full=True, screen_stack=behind)  # noqa: SLF001 - of all widgets
        if isinstance(update, ChopsUpdate | LayoutUpdate):
            for column, line, row in parts(update, color_system(self.console)):
                frame.put(row, column, line)
        changes = frame.text()
        if not changes or self._driver is None:
            return
        if len(self.screen_stack) > 1:  # input methods open their windows at the terminal's cursor, though it is hidden
            x, y = self.screen.outer_size.clamp_offset(self.cursor_position)
            changes += f"\x1b[{y + 1};{x + 1}H"
        self._frame_meter.frames += 1
        framed = f"{SYNC_START}{changes}{SYNC_END}" if self._sync_available else changes
        self._driver.write(f"{framed}{self.output.question()}")
