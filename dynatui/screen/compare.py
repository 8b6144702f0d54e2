"""The app that plays two recordings side by side, in lockstep."""

from dataclasses import replace
from functools import partial
from typing import Unpack

from textual.app import ComposeResult
from textual.containers import Container

from dynatui.keymap import ALWAYS, PanelName
from dynatui.render import cards, curves, status, tree, versus
from dynatui.render.ink import Rows
from dynatui.render.scene import Scale, Scene
from dynatui.render.text import TextPanel
from dynatui.screen.canvas import Canvas
from dynatui.screen.mouse import in_line
from dynatui.screen.pages.help import compare_help
from dynatui.screen.panel_app import PanelApp, Surroundings, style_sheets
from dynatui.session import View
from dynatui.sources.playback import Lockstep
from dynatui.state.timeline import TimelinePosition

_TALL, _TALLEST = 30, 50
_FLAT = 16
"""Height of the terminal, in rows, below which the table has no frame."""
_WIDE = 166
"""Least width of the terminal, in cells, at which the cards of both columns have a title and a note."""


def panels(height: int, chosen: PanelName) -> tuple[PanelName, ...]:
    if height >= _TALLEST:
        return ALWAYS
    if height >= _TALL:
        return ("text", "tree" if chosen == "text" else chosen)
    return (chosen,)


class CompareApp(PanelApp):
    CSS_PATH = style_sheets("compare.tcss")

    def __init__(self, lockstep: Lockstep, view: View | None = None, **surroundings: Unpack[Surroundings]) -> None:
        super().__init__(view or View(), "compare", **surroundings)
        self.lockstep = lockstep
        self.chosen: PanelName = "text"
        self._states = lockstep.states()

    def compose(self) -> ComposeResult:
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
        yield Canvas(status.footer, panel="footer", action_at=in_line(status.footer_action))

    def advance(self, now: float) -> None:
        self.lockstep.advance(now)

    def draw(self, *, everything: bool = False) -> None:
        self._states = self.lockstep.states()
        left, right = (curves.scale_of(Scene(state)) for state in self._states)
        scenes = [self._scene(side, left.joined(right)) for side in range(len(versus.LETTERS))]

        def scene_of(canvas: Canvas) -> Scene:
            return scenes[(canvas.id or "").startswith(versus.LETTERS[1])]

        self.paint(scene_of, self._clock(), everything=everything)

    def action_pause(self) -> None:
        """Pauses or resumes the playback; at the end, starts it again from the beginning."""
        if self.lockstep.ended and not self.lockstep.paused:
            self.lockstep.seek(0.0)
        else:
            self.lockstep.paused = not self.lockstep.paused

    def action_speed(self, direction: int) -> None:
        self.lockstep.set_speed(self.lockstep.speed * 2.0**direction)

    def action_step(self, rounds: int) -> None:
        self.lockstep.paused = True
        self.lockstep.step(rounds)

    def action_seek(self, share: float) -> None:
        self.lockstep.seek(share * self.lockstep.seconds)

    def action_go(self, step: int) -> None:
        self.lockstep.go(step)

    def action_panel(self, name: PanelName) -> None:
        self.chosen = name
        self.rearrange()

    def action_help(self) -> None:
        self.push_screen(compare_help(self.scene.keys))

    def _scene(self, side: int, scale: Scale) -> Scene:
        recording, state = self.lockstep.sides[side], self._states[side]
        return replace(
            self.scene,
            state=state,
            speed=self.lockstep.speed,
            paused=self.lockstep.paused,
            replaying=True,
            place=TimelinePosition(state.rounds, recording.rounds, self.lockstep.played_s),
            scale=scale,
        )

    def _moment(self, _scene: Scene, width: int, _height: int) -> Rows:
        both = self.lockstep
        place = both.played_s, both.seconds, both.number + 1, both.pairs
        return [versus.moment(versus.VersusView(*place, both.speed, both.paused, both.ended), width)]

    def _heading(self, side: int, scene: Scene, width: int, _height: int) -> Rows:
        return [versus.heading(side, self.lockstep.sides[side].name, scene.state, width)]

    def arrange(self) -> None:
        width, height = self.size
        screen = self.screen_stack[0]
        screen.set_class(width >= _WIDE, "wide")
        screen.set_class(height < _FLAT, "flat")
        visible = panels(height, self.chosen)
        for canvas in screen.query(Canvas):
            _, _, panel = (canvas.id or "").partition("-")
            if panel in ALWAYS:
                canvas.display = panel in visible
