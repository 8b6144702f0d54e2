"""A list of all themes at the side of the screen: applies the theme under the cursor, and keeps it on enter.

Knows only names of themes, and a function that shows a theme by its name.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static

from dynatui.screen.pages.page import Modal


class ThemeScreen(Modal[str | None]):
    """Returns the chosen theme's name, or None to restore the previous one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
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
