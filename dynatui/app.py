"""The app: reads new records on a timer, folds them, and hands each panel what it shows; turns keys into commands.

All drawing is in `dynatui.render`, all decoding behind `dynatui.sources`. `tick` is the only thing that moves, so a
test that calls it needs no clock.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from decoder.config import DynaTree, KnobName, require
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Knobs, Run
from dynatui import terminal
from dynatui.keymap import KEYMAP, KNOB_STEPS, TABS
from dynatui.playback import TraceSource
from dynatui.recording import Recorder
from dynatui.render import cards, curves, guide, race, sliders, status, tree
from dynatui.render.ink import Ink
from dynatui.render.layout import LAYOUTS, layout
from dynatui.render.palette import THEME, palette
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screens.help import HelpScreen
from dynatui.session import Session, View
from dynatui.sources import EngineSource, Source, load_engine
from dynatui.state import Failure, RunState, apply
from dynatui.widgets.canvas import Canvas

_FPS, _FPS_OVER_SSH = 10, 5
_WAIT_S = 2.0
_FAULT = 1
"""Textual's exit code after an exception."""
_FEW = 4
"""Methods that the race has room for without taking some from the text."""


class DynaApp(App[None]):
    """The terminal monitor."""

    CSS_PATH = "dynatui.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(cap, action, key.label, show=False, priority=action == "leave")
        for key in KEYMAP
        for cap, action in zip(key.caps, key.actions, strict=True)
    ]

    def __init__(
        self,
        source: Source,
        view: View | None = None,
        *,
        ticking: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        view = view or View()
        self._color = "NO_COLOR" not in os.environ
        super().__init__(ansi_color=None if self._color else True)
        self.animation_level = "none"
        self.register_theme(THEME)
        self.theme = self._known(view.theme or THEME.name) if self._color else "ansi-dark"
        self.source = source
        self.state = RunState()
        self.frozen = False
        self.tab = "text"
        self.wanted: dict[KnobName, float] = {}
        self._symbols = view.symbols
        self._fps = view.fps or (_FPS_OVER_SSH if "SSH_CONNECTION" in os.environ else _FPS)
        self._ticking = ticking
        self._clock = clock
        self._cursor = 0
        self._shown = self.state
        self._drawn: dict[str, float] = {}
        self._styles: Mapping[Ink, Style] = {}

    def compose(self) -> ComposeResult:
        """All panels; the style sheet hides what has no room."""
        yield Canvas(status.status, every_s=0.0, panel="status")
        yield Canvas(cards.cards, every_s=0.25, panel="cards")
        yield Canvas(status.tabs, every_s=0.0, panel="tabs")
        with Container(id="main"):
            with Container(id="left"):
                yield Canvas(TextPanel(), every_s=0.0, panel="text")
                yield Canvas(race.race, every_s=0.25, panel="race")
            yield Canvas(tree.tree, every_s=0.25, panel="tree")
            yield Canvas(guide.guide, every_s=0.25, panel="guide")
        with Container(id="curves"):
            yield Canvas(curves.acceptance, every_s=0.2, panel="acceptance")
            yield Canvas(curves.depth, every_s=0.2, panel="depth")
        yield Canvas(curves.trends, every_s=0.25, panel="trends")
        yield Canvas(sliders.knobs, every_s=0.1, panel="knobs")
        yield Canvas(status.footer, every_s=0.0, panel="footer")

    def on_mount(self) -> None:
        """Starts the work and the timer."""
        self._styles = palette(self.theme_variables, color=self._color)
        self._arrange()
        self.source.start()
        if self._ticking:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._signalled, number)
            self.set_interval(1 / self._fps, self.tick)
        self.tick()

    def on_resize(self) -> None:
        """Chooses the layout for the new size."""
        self._arrange()
        self.call_after_refresh(self.draw, everything=True)

    def tick(self) -> None:
        """Takes in what is new, and draws the panels that are due."""
        self.source.advance(self._clock())
        records = self.source.records
        while self._cursor < len(records):
            record = records[self._cursor]
            self._cursor += 1
            if isinstance(record, Failure):
                self.frozen = False
                self.action_tab("text")
            elif isinstance(record, Run):
                self.wanted = {}
                del records[: self._cursor - 1]  # runs that are over: a monitor may be left on for days
                self._cursor = 1
            elif isinstance(record, Knob) and record.source == "user":
                self.wanted.pop(record.name, None)
            self.state = apply(self.state, record)
        self._arrange()
        self.draw()

    def draw(self, *, everything: bool = False) -> None:
        """Hands the scene to each panel whose time has come."""
        now = self._clock()
        if not self.frozen:
            self._shown = self.state
        scene = self.scene()
        for canvas in self.screen_stack[0].query(Canvas):
            name = canvas.id or ""
            if everything or now - self._drawn.get(name, -1e9) >= canvas.every_s:
                self._drawn[name] = now
                canvas.show(scene, self._styles)

    def scene(self) -> Scene:
        """What the panels are drawn from."""
        return Scene(
            state=self._shown,
            tab=self.tab,
            symbols=self._symbols,
            speed=self.source.speed,
            frozen=self.frozen,
            paused=self.source.paused,
            recording=self.source.recording,
            replaying=not self.source.steerable,
            wanted=tuple(self.wanted.items()),
        )

    def action_turn(self, name: KnobName, direction: int) -> None:
        """Turns a knob by one step from where it is, or from where it is about to be."""
        knobs = self.state.knobs
        if knobs is None or not self.source.steerable:
            return
        current = self.wanted.get(name, float(getattr(knobs, name)))
        value = self._within_bounds(knobs, name, current + direction * KNOB_STEPS[name])
        if value != current:
            self._turn(name, value)

    def action_history(self) -> None:
        """Switches history on or off."""
        current = self.wanted.get("history", self.state.history)
        if current is not None and self.source.steerable:
            self._turn("history", float(not current))

    def action_freeze(self) -> None:
        """Holds the picture, or brings it up to date."""
        self.frozen = not self.frozen
        self.draw(everything=True)

    def action_pause(self) -> None:
        """Holds decoding, or goes on."""
        self.source.set_paused(paused=not self.source.paused)
        self.draw(everything=True)

    def action_speed(self, direction: int) -> None:
        """Doubles or halves the speed of the show."""
        self.source.set_speed(self.source.speed * 2.0**direction)
        self.draw(everything=True)

    def action_next_prompt(self) -> None:
        """Goes to the next prompt."""
        self.source.go(1)

    def action_restart(self) -> None:
        """Begins the prompt again."""
        self.source.go(0)

    def action_tab(self, name: str) -> None:
        """Shows another panel where panels share a place."""
        self.tab = name
        self._arrange()
        self.call_after_refresh(self.draw, everything=True)

    def action_help(self) -> None:
        """Opens the help page."""
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        """Quits; after an error, with its exit code."""
        self.source.stop()
        failure = self.state.failure
        self.exit(return_code=failure.exit_code if failure else 0)

    def _signalled(self, number: int) -> None:
        self.source.stop()
        self.exit(return_code=128 + number)

    def _turn(self, name: KnobName, value: float) -> None:
        self.wanted[name] = value
        self.source.turn(name, value)
        self.draw(everything=True)

    def _within_bounds(self, in_force: Knobs, name: KnobName, value: float) -> float:
        try:
            highest = int(self.state.parameter("d_max", DynaTree.d_max))
            parameters = DynaTree(d_max=highest, d0=in_force.d0, tau_h=in_force.tau_h, tau_l=in_force.tau_l)
        except ConfigError:
            return value  # the engine has its own bounds
        for other, wanted in self.wanted.items():
            parameters = parameters.turned(other, wanted)
        return parameters.turned(name, value).knob(name)

    def _known(self, theme: str) -> str:
        names = sorted(self.available_themes)
        require(theme in names, f"theme is {theme!r}; give one of {', '.join(names)}")
        return theme

    def _arrange(self) -> None:
        width, height = self.size
        room = layout(width, height)
        screen = self.screen_stack[0]
        screen.set_class(height < 4, "tiny")
        screen.set_class(len(self.state.race.tallies) > _FEW, "crowded")
        for known in LAYOUTS:
            screen.set_class(known == room, known)
        for tab in TABS:
            screen.set_class(tab == self.tab, f"on-{tab}")


def watch(session: Session) -> int:
    """Runs the live app; the exit code."""
    terminal.quieten()
    recorder = Recorder(session.record) if session.record else None
    return _show(EngineSource(session, load_engine(session), recorder), session.view)


def replay(path: Path, runs: list[Event], view: View) -> int:
    """Plays a recording; the exit code."""
    del path
    return _show(TraceSource(runs, view.speed), view)


def _show(source: Source, view: View) -> int:
    """Runs the app on a source; afterwards the terminal is as it was, and the work is over or left behind."""
    if not view.color:
        os.environ["NO_COLOR"] = "1"  # where Textual looks for it
    log = terminal.log_path()
    logging.basicConfig(filename=log)
    with terminal.screen_only(log):
        app = DynaApp(source, view)
        app.run(mouse=False)  # so that the terminal can still select and copy
    ended = source.close(_WAIT_S)
    code = app.return_code or 0
    if code == _FAULT:
        sys.stderr.write(f"dynatui stopped because of a fault of its own; please report what {log} says\n")
    if not ended:
        # A thread that loads a model cannot be interrupted, and Python's way out could hang or abort in native code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
