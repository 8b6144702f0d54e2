"""The app of the monitor: on a timer, updates the state from new records and draws panels; runs commands of keys."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container

from decoder.session.steering import StageName
from dynatui.clean import clean_line
from dynatui.keymap import PanelName
from dynatui.render import (  # fmt: skip
    cards,
    curves,
    drawer,
    guide,
    inspect,
    log,
    prompts,
    race,
    sampling,
    sliders,
    status,
    tree,
    what_if,
    work,
)
from dynatui.render.layout import LAYOUTS, Layout, arranged, layout, shared_place
from dynatui.render.text import TextPanel
from dynatui.screen import commands, mouse
from dynatui.screen.canvas import Canvas
from dynatui.screen.commands import view
from dynatui.screen.film import Screenplay
from dynatui.screen.pages.page import Choice, ChoiceScreen, ResultPage, result_text
from dynatui.screen.panel_app import PanelApp, Surroundings, style_sheets
from dynatui.screen.protocol import Aside
from dynatui.screen.scene_builder import EventReader, SceneBuilder, Source
from dynatui.session import View
from dynatui.sources.engine import EngineSource
from dynatui.state.session_log import SessionLog

_NOTE_S = 6.0
HELD_S: Mapping[StageName, float] = {"drafted": 1.0, "verified": 1.0, "committed": 1.2}
_UNTIL_HELD = len(HELD_S) + 1
"""Number of steps from the start to the first stage of the second round."""
_LOW = 40
"""Height of the terminal, in rows, below which the curves and race panels shrink in favour of the text panel."""
_TALL, _BROAD = 45, 160
"""The race panel has further rows in a terminal of `_TALL` rows, or of `_BROAD` columns and more than `_LOW` rows."""
_HIGH: Mapping[Layout, int] = {"roomy": 0, "full": 0, "tabbed": 28, "small": 16, "line": 0}
"""Least height of the terminal, in rows, at which the race panel has further rows on the first page of a layout."""
_MOST_KNOB_ROWS = 6
"""Largest height of the knobs panel, in rows; one row less in a terminal of fewer than `_LOW` rows."""
_FLAT = 20
"""Height of the terminal, in rows, below which a race of over `_FEW` methods gets no extra row on the first page."""
_FEW = 4
"""Largest number of methods in the race for which the text panel keeps its usual height."""


class Tour:
    """Shows the second round of the watched method with a pause at each stage of the round."""

    def __init__(self, source: EngineSource) -> None:
        self.running = True
        self._source = source
        self._stage: StageName | None = None
        self._since = 0.0
        source.set_paused(paused=True)
        for _ in range(_UNTIL_HELD):
            source.step()

    def tick(self, now: float) -> None:
        if not self.running:
            return
        if not self._source.paused:
            self.running = False
            return
        stage = self._source.stage
        if stage is None:
            return
        if stage.name != self._stage:
            self._stage, self._since = stage.name, now
        elif now - self._since >= HELD_S[stage.name]:
            if stage.name == "committed":
                self.end()
            else:
                self._source.step()

    def end(self) -> None:
        if self.running:
            self.running = False
            self._source.set_paused(paused=False)


class DynaApp(PanelApp):
    CSS_PATH = style_sheets("dynatui.tcss")

    def __init__(
        self,
        source: Source,
        view: View | None = None,
        *,
        command_line: Callable[[], str] = lambda: "",
        **surroundings: Unpack[Surroundings],
    ) -> None:
        view = view or View()
        super().__init__(view, "watch", **surroundings)
        self.source = source
        self.event_reader = EventReader(source)
        self.viewpoint = self.event_reader.viewpoint
        self.knob_editor = self.event_reader.knob_editor
        self.text_panel = TextPanel()
        self.aside = Aside(self.call_later)
        self.command_line = command_line
        self.written_paths: list[Path] = []
        """Recordings and exports that the session has written."""
        self._scene_builder = SceneBuilder(source, self.event_reader)
        self._room: Layout = "full"
        self._shared: PanelName = "race"
        self._visible: frozenset[str] = frozenset()
        self._note_until = 0.0
        self._told = 0
        """Number of the last run whose result page was shown."""
        self._tour = Tour(source.controls) if view.tour and source.controls else None

    @property
    def session_log(self) -> SessionLog:
        return self.event_reader.session_log

    def compose(self) -> ComposeResult:
        yield Canvas(status.status, panel="status")
        yield Canvas(status.essentials, panel="essentials", flowing=True)
        yield Canvas(cards.cards, panel="cards")
        yield Canvas(status.tabs, panel="tabs", action_at=mouse.in_line(status.tab_action))
        with Container(id="main"):
            with Container(id="left"):
                on_text = mouse.chooses("text", mouse.token(self.text_panel))
                yield Canvas(self.text_panel, panel="text", flowing=True, action_at=on_text, dragged=True)
                yield Canvas(inspect.inspect, panel="inspect")
                yield Canvas(race.race, panel="race", action_at=mouse.chooses("race", mouse.lane))
                yield Canvas(work.work, panel="work", action_at=mouse.chooses("work"))
                yield Canvas(what_if.whatif, panel="whatif", action_at=mouse.chooses("whatif"))
                yield Canvas(prompts.prompts, panel="prompts", action_at=mouse.chooses("prompts"))
                yield Canvas(log.log, panel="log", action_at=mouse.chooses("log"))
                yield Canvas(sampling.sampling, panel="sampling", action_at=mouse.chooses("sampling"))
                yield Canvas(drawer.drawer, panel="drawer", action_at=mouse.slides(drawer.hit), dragged=True)
            yield Canvas(tree.tree, panel="tree", action_at=mouse.chooses("tree"))
            with Container(id="column"):
                yield Canvas(work.work, panel="side", action_at=mouse.chooses("work"))
                yield Canvas(guide.guide, panel="guide")
        with Container(id="curves"):
            yield Canvas(curves.acceptance, panel="acceptance", action_at=mouse.chooses("curves"))
            yield Canvas(curves.depth, panel="depth", action_at=mouse.chooses("curves"))
        yield Canvas(curves.trends, panel="trends")
        yield Canvas(status.timeline, panel="timeline", action_at=mouse.in_line(mouse.moment), dragged=True)
        yield Canvas(sliders.knobs, panel="knobs", action_at=mouse.slides(sliders.hit), dragged=True)
        yield Canvas(status.footer, panel="footer", action_at=mouse.in_line(status.footer_action))

    def on_mount(self) -> None:
        self.source.start()

    def advance(self, now: float) -> None:
        self.source.advance(now)
        self.read_events()

    def read_events(self) -> None:
        news = self.event_reader.read()
        self._all_due |= news.important or (news.any and self.source.paused)
        if news.failed:
            self.viewpoint.follow()
            self.scene = replace(self.scene, panel="text", mode="watch", cursor=None, maximised=False)

    def draw(self, *, everything: bool = False) -> None:
        now, stage = self._clock(), self.scene.stage
        if self._tour:
            self._guide(self._tour, now)
        self._update_scene(now)
        self.arrange()
        stepped = self.scene.stage is not stage
        self.paint(lambda _: self.scene, now, everything=everything or stepped)
        self._tell_result()

    def _tell_result(self) -> None:
        """Shows the result page once a live run is over, unless the user views another page, mode or round."""
        state = self.viewpoint.newest
        watching = self.viewpoint.live and self.scene.mode == "watch" and len(self.screen_stack) == 1
        if not (state.over and watching and self.source.controls) or state.number == self._told:
            return
        self._told = state.number
        page = partial(result_text, self, state, self.size.width)
        self.push_screen(ResultPage(self.scene.keys, page, self.act))

    def _guide(self, tour: Tour, now: float) -> None:
        """Advances the tour; in a layout with only one panel at a time, shows the tree panel until the tour is over."""
        state = self.viewpoint.work.state
        if state.failure:
            tour.end()
        tour.tick(now)
        one_at_a_time = self._room not in ("roomy", "full")
        panel: PanelName = "tree" if tour.running and self.scene.stage and one_at_a_time else self.scene.panel
        if not tour.running:
            self._tour, self._all_due = None, True
            panel = "text" if one_at_a_time else panel
        self.scene = replace(self.scene, touring=tour.running, panel=panel)

    def change_view(self, **changes: Any) -> None:
        self.scene = replace(self.scene, **changes)
        self._shared = shared_place(self.scene.panel, self._shared)
        self._update_scene(self._clock())
        self.rearrange()
        self.draw(everything=True)

    def watch_method(self, method: str) -> None:
        self.viewpoint.choose(method)
        if self.source.controls is not None:
            self.source.controls.watch(method)
        if self.scene.cursor is None or not self.viewpoint.whole.lane.tokens:
            self.change_view(cursor=None)
        else:
            view.look_at_token(self, self.scene.cursor)

    def show_note(self, note: str) -> None:
        self._note_until = self._clock() + _NOTE_S
        self.change_view(note=clean_line(note))

    def screenplay(self) -> Screenplay:
        canvases = self.screen_stack[0].query(Canvas)
        return Screenplay([canvas.still() for canvas in canvases if canvas.region.area], self.size, self.scene)

    def remember_file(self, path: Path | None) -> None:
        if path is not None and path not in self.written_paths:
            self.written_paths.append(path)

    def action_theme(self) -> None:
        if not self._color:
            self.show_note("colours are off")
            return
        before = self.theme

        def keep(chosen: str | None) -> None:
            self.set_theme(chosen or before)
            if chosen:
                self.show_note(f"theme {chosen}; --theme {chosen} starts with it")

        themes = [Choice(name, Text(name)) for name in sorted(self.available_themes)]
        self.push_screen(ChoiceScreen("Theme", themes, before, self.set_theme), keep)

    def action_command_palette(self) -> None:
        lines, actions = list[Choice](), dict[str, str]()
        for title, action, key in self.scene.keys.commands:
            cap, effect = (key.shown_for(action), "bold"), (f"\n{key.help}", "dim")
            lines.append(Choice(title, Text.assemble(f"{title}   ", cap, effect), key.also))
            actions[title] = action

        def run(chosen: str | None) -> None:
            if chosen:
                self.call_later(self.act, actions[chosen])

        self.push_screen(ChoiceScreen("Commands", lines), run)

    async def act(self, action: str | None) -> None:
        """Runs the action of a key; while the tour pauses, every action except `leave` only ends the tour."""
        if self._tour and self.scene.held_stage and action != "leave":
            self._tour.end()
            return
        command = commands.find(action) if action else None
        if command:
            command(self)
        elif action:
            await self.run_action(action)

    async def on_mouse_scroll_up(self) -> None:
        await self.act("wheel(-1)")

    async def on_mouse_scroll_down(self) -> None:
        await self.act("wheel(1)")

    def _update_scene(self, now: float) -> None:
        note = self.scene.note if now < self._note_until else ""
        scene = replace(self.scene, note=note)
        self.scene = self._scene_builder.scene(scene, now, visible=self._visible)

    def leave(self, code: int) -> None:
        """Ends the app and the source; if the run has failed, the exit code of the failure replaces a `code` of 0."""
        failure = self.viewpoint.work.state.failure
        super().leave(code or (failure.exit_code if failure else 0))
        self.source.stop()

    def arrange(self) -> None:
        width, height = self.size
        room = layout(width, height)
        visible = arranged(room, self.scene, self._shared)
        screen = self.screen_stack[0]
        screen.set_class(len(self.viewpoint.state.race.tallies) > _FEW, "crowded")
        large = room in ("roomy", "full")
        screen.set_class(room == "full" and height < _LOW, "low")
        screen.set_class(large and (height >= _TALL or (width >= _BROAD and height > _LOW)), "tall")
        screen.set_class(room in ("tabbed", "small") and {"text", "tree"} <= visible, "first")
        screen.set_class(height >= _HIGH[room], "high")
        screen.set_class(height < _FLAT, "flat")
        screen.set_class(not self.viewpoint.state.lane.changes, "still")
        knobs = screen.query_one("#knobs").styles
        if large:
            knobs.height = sliders.height_for(self.scene, width, _MOST_KNOB_ROWS - (height < _LOW))
        else:
            knobs.clear_rule("height")
        if (room, visible) == (self._room, self._visible):
            return
        self._room, self._visible = room, visible
        screen.set_class(self.scene.maximised, "alone")
        screen.set_class(self.scene.panel == "tree", "on-tree")
        for name in LAYOUTS:
            screen.set_class(name == room, name)
        for widget in screen.query("Canvas, Container"):
            widget.display = widget.id in visible
