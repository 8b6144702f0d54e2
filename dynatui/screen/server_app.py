"""The app that watches a server: a timer applies new events to the state and draws the panels. Loads no models."""

from collections.abc import Callable
from typing import Literal, TypeAlias, Unpack

from textual.app import ComposeResult
from textual.containers import Container

from decoder.errors import DecoderError
from dynatui.render import server as panels
from dynatui.render import status
from dynatui.render.ink import Rows
from dynatui.render.server import ServerView, Size
from dynatui.render.server_load import loads, speedups
from dynatui.screen.canvas import Canvas
from dynatui.screen.mouse import in_line
from dynatui.screen.pages.help import server_help
from dynatui.screen.panel_app import PanelApp, Surroundings, style_sheets
from dynatui.session import View
from dynatui.sources.server import ServerSource
from dynatui.state.server_state import ServerState, fold

_LOW = 16
"""Height of the terminal, in rows, below which note and cards have one line each and nothing is below the charts."""
_NARROW = 60
"""Width of the terminal, in cells, below which there is one chart, not two, with one panel under it."""
_WIDE = 110
"""Least width of the terminal, in cells, at which a third panel fits under the charts."""
_TALL = 24
"""Least height of the terminal, in rows, at which the note has `_FOUND` lines if there are findings."""
_FOUND = 4

Below: TypeAlias = Literal["totals", "loads", "speedups"]
_NEXT: dict[Below, Below] = {"totals": "loads", "loads": "speedups", "speedups": "totals"}
DrawSized: TypeAlias = Callable[[ServerState, ServerView, Size], Rows]


def _totals(state: ServerState, _look: ServerView, size: Size) -> Rows:
    return panels.answer(state, size) if state.request or state.answer else panels.totals(state, size)


class ServerApp(PanelApp):
    CSS_PATH = style_sheets("server.tcss")

    def __init__(self, source: ServerSource, view: View | None = None, **surroundings: Unpack[Surroundings]) -> None:
        super().__init__(view or View(), "attach", **surroundings)
        self.source = source
        self.state = ServerState()
        self.frozen_state: ServerState | None = None
        """The shown state while the view is paused, else None."""
        self.below: Below = "totals"
        """The chosen right panel under the charts; from `_WIDE` cells on, the totals are shown as well."""
        self.failure: DecoderError | None = None
        """Error of the source, which the caller of the app raises."""

    def compose(self) -> ComposeResult:
        yield Canvas(lambda _, width, __: [panels.status(self.shown, self.look, width)], panel="status")
        yield self._sized("note", panels.note)
        yield Canvas(lambda _, width, height: panels.cards(self.shown, width, height), panel="cards")
        with Container(id="charts"):
            yield self._sized("lengths", panels.lengths)
            yield self._sized("speeds", panels.speeds)
        with Container(id="below"):
            yield self._sized("positions", lambda state, _, size: panels.positions(state, size))
            yield self._sized("totals", _totals)
            yield self._sized("loads", self._by_load)
        yield Canvas(status.footer, panel="footer", action_at=in_line(status.footer_action))

    @property
    def shown(self) -> ServerState:
        return self.frozen_state or self.state

    @property
    def look(self) -> ServerView:
        return ServerView(
            paused=self.frozen_state is not None,
            recording=self.source.recording,
            replaying=not self.source.live,
            ended=self.source.ended,
            symbols=self.scene.symbols,
        )

    def on_mount(self) -> None:
        self.source.start()

    def advance(self, now: float) -> None:
        del now
        before = self._needs
        try:
            self.state = fold(self.source.take(), self.state)
        except DecoderError as error:
            self.failure = error
            self.leave(error.exit_code)
        if self._needs != before:
            self.rearrange()

    def leave(self, code: int) -> None:
        self.source.stop()
        super().leave(code)

    def action_pause(self) -> None:
        self.frozen_state = self.state if self.frozen_state is None else None
        self.source.set_paused(paused=self.frozen_state is not None)
        self.rearrange()

    def action_loads(self) -> None:
        self.below = _NEXT[self.below]
        self.rearrange()

    def _by_load(self, state: ServerState, look: ServerView, size: Size) -> Rows:
        return speedups(state, size, look.symbols) if self.below == "speedups" else loads(state, size)

    def action_help(self) -> None:
        self.push_screen(server_help(self.scene.keys))

    def _sized(self, panel: str, draw_sized: DrawSized) -> Canvas:
        return Canvas(lambda _, width, height: draw_sized(self.shown, self.look, (width, height)), panel=panel)

    @property
    def _needs(self) -> tuple[bool, bool]:
        """(whether there are findings, whether there are figures by load): both change the layout."""
        return bool(self.shown.findings), bool(self.shown.course.by_load)

    def arrange(self) -> None:
        (width, height), (found, loads_known) = self.size, self._needs
        screen = self.screen_stack[0]
        screen.set_class(height < _LOW, "low")
        screen.query_one("#note").styles.height = _FOUND if found and height >= _TALL else None
        screen.query_one("#below").display = height >= _LOW
        screen.query_one("#speeds").display = width >= _NARROW
        by_load, wide = self.below != "totals", width >= _WIDE
        screen.query_one("#loads").display = (loads_known or by_load) if wide else by_load and width >= _NARROW
        screen.query_one("#totals").display = wide or (not by_load and width >= _NARROW)
