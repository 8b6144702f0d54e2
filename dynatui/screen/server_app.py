"""The app that watches a server: reads new events on a timer, folds them, and hands its panels what they show.

An app of its own: it has no engine, nothing to steer and one mode. `dynatui.sources.server` asks the server, and
`dynatui.render.server` draws it.
"""

import signal
import time
from collections.abc import Callable
from typing import ClassVar, TypeAlias, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from decoder.errors import DecoderError
from dynatui.keymap import ATTACHED
from dynatui.render import server as panels
from dynatui.render import server_answer, server_draft, status
from dynatui.render.ink import Rows
from dynatui.render.scene import Scene
from dynatui.render.server import Look, Size
from dynatui.screen.pages.help import server_help
from dynatui.screen.terminal_app import TerminalApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import Symbols, View
from dynatui.sources.server import ServerSource
from dynatui.state.server_state import ServerState, fold
from dynatui.terminal.driver import bound
from dynatui.terminal.output import Output
from dynatui.terminal.shutdown import Shutdown

_SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)
_LOW = 16
"""Lower than this, notes and cards have a line each, and there is nothing below the curves."""
_NARROW = 60
"""Narrower than this, one chart and one panel below it."""

DrawSized: TypeAlias = Callable[[ServerState, Look, Size], Rows]


def _totals(state: ServerState, _look: Look, size: Size) -> Rows:
    """What was counted, unless there is a request of ours."""
    return server_answer.answer(state, size) if state.asked or state.answer else panels.totals(state, size)


def _positions(state: ServerState, _look: Look, size: Size) -> Rows:
    """What was accepted at each place, unless the server tells only how it drafts."""
    reading = state.reading
    if reading is not None and reading.drafting is not None and not reading.session.acceptance_by_position:
        return server_draft.drafting(reading.drafting, size)
    return panels.positions(state, size)


class ServerApp(TerminalApp, inherit_bindings=False):
    """A server, or a recording of one."""

    CSS_PATH = "server.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(cap, f"press({cap!r})", show=False, priority=action == "leave")
        for key in ATTACHED.keys
        for cap, action in zip(key.caps, key.actions, strict=True)
    ]

    def __init__(
        self,
        source: ServerSource,
        view: View | None = None,
        *,
        ticking: bool = True,
        clock: Callable[[], float] = time.monotonic,
        output: Output | None = None,
        shutdown: Shutdown | None = None,
    ) -> None:
        view = view or View()
        super().__init__(view, ticking=ticking, clock=clock, output=output, shutdown=shutdown)
        self.source = source
        self.keys = view.keys
        self.symbols = view.symbols
        self.state = ServerState()
        """What is known."""
        self.held: ServerState | None = None
        """What is shown while the view is paused."""
        self.failure: DecoderError | None = None
        """What ended the work, for whoever started the app."""
        for cap in {cap for key in view.keys.attached.keys for cap in key.caps}:
            self.bind(bound(cap), f"press({cap!r})", show=False)

    def compose(self) -> ComposeResult:
        """All panels; `_arrange` hides what has no room."""
        yield Canvas(lambda _, width, __: [panels.status(self.shown, self.look, width)], panel="status")
        yield self._sized("note", panels.note)
        yield Canvas(lambda _, width, height: panels.cards(self.shown, width, height), panel="cards")
        with Container(id="charts"):
            yield self._sized("lengths", panels.lengths)
            yield self._sized("speeds", panels.speeds)
        with Container(id="below"):
            yield self._sized("positions", _positions)
            yield self._sized("totals", _totals)
        yield Canvas(self._keys, panel="keys")

    @property
    def shown(self) -> ServerState:
        """What the panels draw."""
        return self.held or self.state

    @property
    def look(self) -> Look:
        """How they draw it."""
        return Look(
            paused=self.held is not None,
            recording=self.source.recording,
            replaying=not self.source.live,
            ended=self.source.ended,
            symbols=self.symbols,
        )

    def on_mount(self) -> None:
        """Starts the work and the timer."""
        self.source.start()
        self.begin(lambda: self.set_interval(1 / self._fps, self.tick))
        self._arrange()
        self.tick()

    def on_resize(self) -> None:
        """Shows the panels that there is room for now, once the app knows its new size: it hears of it after this."""
        self.screen.refresh()  # after a suspension, which ends in this event too, all of it is gone
        self.call_later(self._arrange)

    def tick(self) -> None:
        """Takes in what is new and draws it; ends when the terminal is closed, or the work has failed."""
        if self.output.lost:
            self.leave(128 + signal.SIGHUP)
            return
        try:
            self.state = fold(self.source.take(), self.state)
        except DecoderError as error:
            self.failure = error
            self.leave(error.exit_code)
            return
        self.draw()

    def draw(self, *, everything: bool = False) -> None:
        """Draws the panels when their time has come."""
        scene = Scene(symbols=self.symbols, keys=self.keys)
        self.paint(lambda _: scene, self._clock(), everything=everything)

    def leave(self, code: int) -> None:
        """Ends work and app."""
        self.source.stop()
        super().leave(code)

    async def action_press(self, cap: str) -> None:
        """Does what the key map says of a key, and shows it."""
        if action := self.keys.action_for(cap, "attach"):
            await self.run_action(action)
            self.draw(everything=True)

    def action_pause(self) -> None:
        """Holds the view, or goes on; a recording stands still meanwhile."""
        self.held = self.state if self.held is None else None
        self.source.paused = self.held is not None

    def action_symbols(self) -> None:
        """The next set of symbols."""
        self.symbols = _SYMBOLS[(_SYMBOLS.index(self.symbols) + 1) % len(_SYMBOLS)]

    def action_help(self) -> None:
        """Opens the page of keys."""
        self.push_screen(server_help(self.keys))

    def _sized(self, panel: str, drawn: DrawSized) -> Canvas:
        return Canvas(lambda _, width, height: drawn(self.shown, self.look, (width, height)), panel=panel)

    def _keys(self, scene: Scene, width: int, _height: int) -> Rows:
        return [status.keys(self.keys.attached.keys, width, in_words=scene.symbols == "ascii")]

    def _arrange(self) -> None:
        width, height = self.size
        screen = self.screen_stack[0]
        screen.set_class(height < _LOW, "low")
        screen.query_one("#below").display = height >= _LOW
        for panel in ("#speeds", "#totals"):
            screen.query_one(panel).display = width >= _NARROW
        self.call_after_refresh(self.draw, everything=True)
