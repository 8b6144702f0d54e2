"""Two recordings side by side, played in lockstep: the same panels for both, and a table of their figures.

An app of its own: it has no engine, nothing to steer and one mode. `Lockstep` plays, `dynatui.render` draws.
"""

import signal
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from dynatui.keymap import ALWAYS, SIDE_BY_SIDE, PanelName
from dynatui.render import cards, curves, status, tree, versus
from dynatui.render.ink import Rows
from dynatui.render.scene import Scale, Scene
from dynatui.render.text import TextPanel
from dynatui.screen.pages.help import compare_help
from dynatui.screen.terminal_app import TerminalApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import Symbols, View
from dynatui.sources.playback import Lockstep
from dynatui.state.timeline import Place
from dynatui.terminal.driver import bound
from dynatui.terminal.output import Output
from dynatui.terminal.shutdown import Shutdown

_TALL, _TALLEST = 30, 50
"""Heights from which two panels, and all three, stand above each other."""
_FLAT = 16
"""Lower than this, the table has no frame."""
_WIDE = 166
"""Width from which both columns have room for whole cards."""
_SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)


def panels(height: int, chosen: PanelName) -> tuple[PanelName, ...]:
    """The panels of a column that a terminal of some height has room for."""
    if height >= _TALLEST:
        return ALWAYS
    if height >= _TALL:
        return ("text", "tree" if chosen == "text" else chosen)
    return (chosen,)


class CompareApp(TerminalApp, inherit_bindings=False):
    """Two recordings in two columns."""

    CSS_PATH = "compare.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(cap, f"press({cap!r})", show=False, priority=action == "leave")
        for key in SIDE_BY_SIDE.keys
        for cap, action in zip(key.caps, key.actions, strict=True)
    ]

    def __init__(
        self,
        lockstep: Lockstep,
        view: View | None = None,
        *,
        ticking: bool = True,
        clock: Callable[[], float] = time.monotonic,
        output: Output | None = None,
        shutdown: Shutdown | None = None,
    ) -> None:
        view = view or View()
        super().__init__(view, ticking=ticking, clock=clock, output=output, shutdown=shutdown)
        self.lockstep = lockstep
        self.chosen: PanelName = "text"
        self.symbols = view.symbols
        self.keys = view.keys
        for cap in {cap for key in view.keys.side_by_side.keys for cap in key.caps}:
            self.bind(bound(cap), f"press({cap!r})", show=False)
        self._states = lockstep.states()

    def compose(self) -> ComposeResult:
        """Both columns; `_arrange` hides what has no room."""
        yield Canvas(self._moment, panel="moment")
        with Container(id="columns"):
            for side, letter in enumerate(versus.LETTERS):
                with Container(classes="column"):
                    yield Canvas(partial(self._heading, side), panel=f"{letter}-heading", classes="heading")
                    yield Canvas(cards.cards, panel=f"{letter}-cards", classes="cards")
                    yield Canvas(TextPanel(), panel=f"{letter}-text", flowing=True, classes="text")
                    yield Canvas(tree.tree, panel=f"{letter}-tree", classes="tree")
                    yield Canvas(curves.acceptance, panel=f"{letter}-curves", classes="curves")
        yield Canvas(lambda _, width, height: versus.table(self._states, (width, height)), panel="table")
        yield Canvas(self._keys, panel="keys")

    def on_mount(self) -> None:
        """Starts the timer."""
        self.begin(lambda: self.set_interval(1 / self._fps, self.tick))
        self._arrange()
        self.tick()

    def on_resize(self) -> None:
        """Shows the panels that there is room for now, once the app knows its new size: it hears of it after this."""
        self.screen.refresh()  # after a suspension, which ends in this event too, all of it is gone
        self.call_later(self._arrange)

    def tick(self) -> None:
        """Plays on, and draws the panels that are due; ends when the terminal is closed."""
        if self.output.lost:
            self.leave(128 + signal.SIGHUP)
            return
        self.lockstep.advance(self._clock())
        self.draw()

    def draw(self, *, everything: bool = False) -> None:
        """Hands each panel the scene of its recording."""
        self._states = self.lockstep.states()
        left, right = (curves.scale_of(Scene(state)) for state in self._states)
        scenes = [self._scene(side, left.joined(right)) for side in range(len(versus.LETTERS))]

        def scene_of(canvas: Canvas) -> Scene:
            return scenes[(canvas.id or "").startswith(versus.LETTERS[1])]

        self.paint(scene_of, self._clock(), everything=everything)

    async def action_press(self, cap: str) -> None:
        """Does what the key map says of a key, and shows it."""
        if action := self.keys.action_for(cap, "compare"):
            await self.run_action(action)
            self.draw(everything=True)

    def action_pause(self) -> None:
        """Pauses or plays; from the end it begins again."""
        if self.lockstep.ended and not self.lockstep.paused:
            self.lockstep.seek(0.0)
        else:
            self.lockstep.paused = not self.lockstep.paused

    def action_speed(self, direction: int) -> None:
        """Doubles or halves the speed."""
        self.lockstep.set_speed(self.lockstep.speed * 2.0**direction)

    def action_step(self, rounds: int) -> None:
        """Pauses some rounds farther."""
        self.lockstep.paused = True
        self.lockstep.step(rounds)

    def action_seek(self, share: float) -> None:
        """Goes to a share of the run."""
        self.lockstep.seek(share * self.lockstep.seconds)

    def action_go(self, step: int) -> None:
        """Goes to another pair of runs."""
        self.lockstep.go(step)

    def action_panel(self, name: PanelName) -> None:
        """Chooses what a column shows."""
        self.chosen = name
        self._arrange()

    def action_symbols(self) -> None:
        """The next set of symbols."""
        self.symbols = _SYMBOLS[(_SYMBOLS.index(self.symbols) + 1) % len(_SYMBOLS)]

    def action_help(self) -> None:
        """Opens the page of keys."""
        self.push_screen(compare_help(self.keys))

    def _scene(self, side: int, scale: Scale) -> Scene:
        recording, state = self.lockstep.sides[side], self._states[side]
        return Scene(
            state=state,
            symbols=self.symbols,
            keys=self.keys,
            speed=self.lockstep.speed,
            paused=self.lockstep.paused,
            replaying=True,
            place=Place(state.rounds, recording.rounds, self.lockstep.played_s),
            scale=scale,
        )

    def _moment(self, _scene: Scene, width: int, _height: int) -> Rows:
        both = self.lockstep
        now = versus.Moment(
            both.played_s, both.seconds, both.number + 1, both.pairs, both.speed, both.paused, both.ended
        )
        return [versus.moment(now, width)]

    def _heading(self, side: int, scene: Scene, width: int, _height: int) -> Rows:
        return [versus.heading(side, self.lockstep.sides[side].name, scene.state, width)]

    def _keys(self, scene: Scene, width: int, _height: int) -> Rows:
        return [status.keys(self.keys.side_by_side.keys, width, in_words=scene.symbols == "ascii")]

    def _arrange(self) -> None:
        width, height = self.size
        screen = self.screen_stack[0]
        screen.set_class(width >= _WIDE, "wide")
        screen.set_class(height < _FLAT, "flat")
        shown = panels(height, self.chosen)
        for canvas in screen.query(Canvas):
            _, _, panel = (canvas.id or "").partition("-")
            if panel in ALWAYS:
                canvas.display = panel in shown
        self.call_after_refresh(self.draw, everything=True)
