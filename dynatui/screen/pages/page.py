"""Pages over the main screen: text, editor, search line, themes, break conditions, and the palette of commands."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from rich.console import RenderableType
from rich.segment import Segment
from rich.text import Text
from textual import events, work
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.errors import NoWidget
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static, TextArea

from dynatui.clean import clean
from dynatui.keymap import Key, Keymap, Mode
from dynatui.render.ink import ASCII
from dynatui.screen.protocol import Screen
from dynatui.sources.source import BREAKS, EXPLANATIONS, Controls
from dynatui.terminal.driver import cap_of

_QUITS = "leave"
T = TypeVar("T")


def holds(text: str, words: str) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words.casefold().split())


def _in_ascii(app: App[Any]) -> bool:
    return cast(Screen, app).scene.symbols == "ascii"


class Modal(ModalScreen[T]):
    """A page that only closes itself: a key press that is still queued when it closes does not close the page below."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "app.leave", "quit", show=False, priority=True)]

    def on_mount(self) -> None:
        self.set_class(_in_ascii(self.app), "in-ascii")

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Closes the page as in Textual, but does nothing while another page is in front or if this page is closed."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class _PageText(Static):
    def render_line(self, y: int) -> Strip:
        """Draws the line, in ASCII if the panels are drawn in ASCII."""
        line = super().render_line(y)
        if not _in_ascii(self.app):
            return line
        spans = (Segment(text.translate(ASCII), style, control) for text, style, control in line)
        return Strip(spans, line.cell_length)


class Page(Modal[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space", "dismiss", "close", show=False),
        Binding("j", "scroll(1)", "down", show=False),
        Binding("k", "scroll(-1)", "up", show=False),
        Binding("g", "scroll_to(0)", "beginning", show=False),
        Binding("G", "scroll_to(1)", "end", show=False),
    ]

    def __init__(self, keys: Keymap, opened_by: str, page: Callable[[], RenderableType], mode: Mode = "watch") -> None:
        """`page` returns the content; the key of the action `opened_by`, which opened the page, also closes it."""
        super().__init__()
        self.keys = keys
        self._page = page
        self._opened_by = opened_by
        self._mode = mode
        self._static = _PageText(markup=False)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            yield self._static

    def on_mount(self) -> None:
        self.show()

    def show(self) -> None:
        self._static.update(self._page())

    def on_key(self, event: events.Key) -> None:
        action = self.keys.action_for(cap_of(event), self._mode)
        if action == _QUITS:
            event.stop()
            self.app.call_later(self.app.run_action, _QUITS)
        elif action == self._opened_by:
            event.stop()
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self._scroller.scroll_relative(y=lines, animate=False)

    def action_scroll_to(self, share: int) -> None:
        self._scroller.scroll_to(y=share * self._scroller.max_scroll_y, animate=False)

    @property
    def _scroller(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)


class TextPage(Page):
    def __init__(self, keys: Keymap, opened_by: str, title: str, text: str) -> None:
        page = Text.assemble((f"{title}\n\n", "bold"), clean(text), ("\n\nesc goes back", "dim"))
        super().__init__(keys, opened_by, lambda: page)


class EditScreen(Modal[str | None]):
    """Returns the prompt after editing, or None if cancelled; an edited prompt has no control characters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+r,ctrl+s,f5", "run", "run it", show=False, priority=True),
    ]

    def __init__(self, prompt: str, *, losing: bool = False) -> None:
        """`losing`: whether the run in progress would be lost."""
        super().__init__()
        self._prompt = prompt
        self._losing = losing
        self._clean_prompt = clean(prompt)
        self._area = TextArea(self._clean_prompt, soft_wrap=True, show_cursor=True)
        self._area.cursor_blink = False

    def compose(self) -> ComposeResult:
        loses = " and ends this run, which is not recorded" if self._losing else ""
        key_help = f"ctrl+r runs the prompt{loses}, esc discards the changes"
        help_line = Text.assemble(("Edit the prompt   ", "bold"), (key_help, "dim"))
        with Vertical(classes="page editor"):
            yield Static(help_line, markup=False)
            yield self._area

    def on_mount(self) -> None:
        self._area.move_cursor(self._area.document.end)
        self._area.focus()

    def action_run(self) -> None:
        """Returns the edited text; if it is unchanged, the original prompt, which may have control characters."""
        text = self._area.text
        self.dismiss(self._prompt if text == self._clean_prompt else text)


class SearchScreen(Modal[str | None]):
    """Returns the typed words, or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "leave it", show=False, priority=True)]

    def __init__(self, before: str, placeholder: str) -> None:
        super().__init__()
        self._input = Input(before, placeholder=f"{placeholder}, esc goes back", compact=True)
        self._input.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Horizontal(id="search"):
            yield Static("/", markup=False)
            yield self._input

    def on_mount(self) -> None:
        self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class ThemeScreen(Modal[str | None]):
    """Returns the name of the chosen theme, or None to restore the previous theme."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
    ]

    def __init__(self, names: Sequence[str], current: str, show: Callable[[str], None]) -> None:
        super().__init__()
        self._names, self._current, self._show = names, current, show
        self._list = OptionList(*names, markup=False, compact=True)

    def compose(self) -> ComposeResult:
        with Vertical(classes="page themes"):
            yield Static(Text.assemble(("Theme\n", "bold"), ("enter keeps it, esc goes back", "dim")), markup=False)
            yield self._list

    def on_mount(self) -> None:
        self._list.highlighted = self._names.index(self._current)
        self._list.focus()

    def action_move(self, step: int) -> None:
        if step > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self.is_active:
            self._show(self._names[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])


_STEP = 0.05


class BreakScreen(Page):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "limit(-1)", "x down", show=False),
        Binding("right,equals_sign", "limit(1)", "x up", show=False),
        *(Binding(str(number), f"switch({number})", "switch", show=False) for number in range(1, len(BREAKS) + 1)),
    ]

    def __init__(self, keys: Keymap, controls: Controls) -> None:
        super().__init__(keys, "breaks", self._conditions)
        self._controls = controls

    def action_switch(self, number: int) -> None:
        self._controls.break_on(self._controls.conditions.toggled(BREAKS[number - 1]))
        self.show()

    def action_limit(self, steps: int) -> None:
        self._controls.break_on(self._controls.conditions.moved(steps * _STEP))
        self.show()

    def _conditions(self) -> Text:
        conditions = self._controls.conditions
        page = Text.assemble(("Pause automatically when …\n\n", "bold"))
        for number, name in enumerate(BREAKS, 1):
            on = name in conditions.on
            page.append(f" {number} ", "bold")
            page.append("[x] " if on else "[ ] ")
            page.append(f"{conditions.label(name)}\n", "bold" if on else "")
            page.append(f"       {EXPLANATIONS[name]}\n", "dim")
        goes_on = f"{self.keys.cap('pause')} resumes after a pause"
        page.append(f"\n1 to {len(BREAKS)} switch conditions, ← → change x, esc goes back, {goes_on}", "dim")
        return page


_BY_MEANING = 2.0
"""Score per letter of a match in help or synonyms: less than for adjacent letters of the title, more than for
scattered letters of the title."""


class KeyCommands(Provider):
    async def discover(self) -> Hits:
        for title, help_text, callback, _ in self.app.get_system_commands(self.screen):
            _, key_cap = self._line(title)
            yield DiscoveryHit(_with_key(Content(title), key_cap), callback, text=title, help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, help_text, callback, _ in self.app.get_system_commands(self.screen):
            key, key_cap = self._line(title)
            score = matcher.match(title)
            if holds(f"{title} {help_text} {key.also}", query):
                score = max(score, _BY_MEANING * len(query))
            if score > 0:
                yield Hit(score, _with_key(matcher.highlight(title), key_cap), callback, text=title, help=help_text)

    def _line(self, title: str) -> tuple[Key, str]:
        commands = cast("Screen", self.app).scene.keys.commands
        return next((key, key.shown_for(action)) for name, action, key in commands if name == title)


def _with_key(title: Content, key_cap: str) -> Content:
    return title.append(Content(f"   {key_cap}").stylize("bold"))


class Commands(CommandList):
    """Textual's list of commands, which ignores a click on a row that no longer exists."""

    def on_click(self, event: events.Click) -> None:
        if event.style.meta.get("option", -1) >= self.option_count:
            event.prevent_default()


class Palette(CommandPalette, Modal[None]):
    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield Commands() if isinstance(widget, CommandList) else widget

    def get_widget_at(self, x: int, y: int) -> tuple[Widget, Region]:
        """The widget at a position; the palette itself if there is none, as after a shrink of the list."""
        try:
            return super().get_widget_at(x, y)
        except NoWidget:
            return self, self.region

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001 - Textual cancels this group
    async def _gather_commands(self, search_value: str) -> None:
        """Does nothing after the palette is closed."""
        if self.query(CommandList):
            await cast("Any", CommandPalette._gather_commands).__wrapped__(self, search_value)  # noqa: SLF001
