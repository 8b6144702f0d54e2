"""Pages over the main screen: text, editor, search line, list to choose from, break conditions, and result of a run."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from rich.console import RenderableType
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from dynatui.clean import clean, clean_line
from dynatui.keymap import Keymap, Mode
from dynatui.render.ink import ASCII
from dynatui.result import heading, result, settings
from dynatui.screen.protocol import Screen
from dynatui.sources.engine import EngineSource
from dynatui.sources.source import BREAKS, EXPLANATIONS
from dynatui.state.run_state import RunState
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


class Choice(NamedTuple):
    name: str
    line: Text
    also: str = ""
    """Further words by which the line is found."""


class ChoiceScreen(Modal[str | None]):
    """A list whose lines are found by typed words. Returns the name of the chosen line, or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        *(Binding(key, f"move({key!r})", key, show=False) for key in ("up", "down", "pageup", "pagedown")),
    ]

    def __init__(
        self, title: str, choices: Sequence[Choice], current: str = "", show: Callable[[str], None] | None = None
    ) -> None:
        """`show`: called with the name of each line that the cursor comes to."""
        super().__init__()
        self._title, self._choices, self._current, self._show = title, choices, current, show
        self._input = Input(placeholder="words of a line; enter takes it, esc goes back", compact=True)
        self._input.cursor_blink = False
        self._list = OptionList(markup=False, compact=True)
        self._list.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="page choice"):
            yield Static(Text(self._title, "bold"), markup=False)
            yield self._input
            yield self._list

    def on_mount(self) -> None:
        self._find("")
        self._input.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._find(event.value)

    def on_input_submitted(self) -> None:
        if option := self._list.highlighted_option:
            self.dismiss(option.id)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self.is_active and self._show and event.option_id:
            self._show(event.option_id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_move(self, key: str) -> None:
        actions = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}
        getattr(self._list, f"action_{actions[key]}")()

    def _find(self, words: str) -> None:
        """Lists the lines that contain all these words; lines whose names contain them come first."""
        found = [each for each in self._choices if holds(f"{each.line.plain} {each.also}", words)]
        found.sort(key=lambda each: not holds(each.name, words))
        names = [each.name for each in found]
        self._list.set_options(Option(each.line, each.name) for each in found)
        self._list.highlighted = names.index(self._current) if self._current in names else 0 if names else None


_STEP = 0.05


class BreakScreen(Page):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "limit(-1)", "x down", show=False),
        Binding("right,equals_sign", "limit(1)", "x up", show=False),
        *(Binding(str(number), f"switch({number})", "switch", show=False) for number in range(1, len(BREAKS) + 1)),
    ]

    def __init__(self, keys: Keymap, controls: EngineSource) -> None:
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


_OF_PAGE = frozenset(
    ("escape", "enter", "space", "j", "k", "g", "G", "up", "down", "home", "end", "pageup", "pagedown")
)
_WIDEST, _SHARE, _EDGE = 84, 0.96, 6
"""As in the style sheet: largest width of the page, in cells and as a share of the screen, and width of both edges."""


class ResultPage(Page):
    """Some keys only scroll or close the page; any other key closes the page and has its usual effect."""

    def __init__(self, keys: Keymap, page: Callable[[], Text], act: Callable[[str], object]) -> None:
        super().__init__(keys, "", page)
        self._act = act

    def on_key(self, event: events.Key) -> None:
        cap = cap_of(event)
        action = self.keys.action_for(cap, self._mode)
        if cap in _OF_PAGE or action is None:
            return
        event.stop()
        event.prevent_default()
        self.dismiss()
        self.app.call_later(self._act, action)


def result_text(screen: Screen, state: RunState, width: int) -> Text:
    """Text of the result page: the table, the settings, and keys; `width`: width of the screen, in cells."""
    inner = min(_WIDEST, int(_SHARE * width)) - _EDGE
    head, *rows = result(state.race, inner)
    title, pair = heading(state.race)
    page = Text.assemble((f"{title.capitalize()}\n\n", "bold"), (f"{head}\n", "dim"), "\n".join(rows), f"\n\n{pair}\n")
    page.append("".join(f"{line}\n" for line in settings(state.lanes)))
    cap, recorded, command = screen.scene.keys.cap, screen.source.recorded, screen.command_line()
    page.append(f"\n{cap('prompt(1)')} runs the prompts again   {cap('prompt(0)')} the last one   {cap('leave')} quits")
    keeps = "" if recorded else f"   {cap('record')} records the last text"
    page.append(f"\nesc goes back to the panels{keeps}")
    if recorded:
        page.append(f"\n\nRecorded: dynatui replay {clean_line(str(recorded))}", "dim")
    if command:
        all_of_it = "" if recorded else " (--record FILE records it)"
        page.append(f"\n\nThe same run again{all_of_it}: {clean_line(command)}", "dim")
    return page
