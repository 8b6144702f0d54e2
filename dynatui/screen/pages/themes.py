"""All themes, in a list at the side: the one under the cursor is seen on the screen at once, and kept by enter.

Knows the names of themes only; the function that shows one is given.
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
    """Returns the chosen theme; None: the previous theme comes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
    ]

    def __init__(self, names: Sequence[str], current: str, show: Callable[[str], None]) -> None:
        """Takes the names of all themes, the one in use, and the function that shows a theme."""
        super().__init__()
        self._names, self._current, self._show = names, current, show
        self._list = OptionList(*names, markup=False, compact=True)

    def compose(self) -> ComposeResult:
        """A line of help over the list."""
        with Vertical(classes="page themes"):
            yield Static(Text.assemble(("Theme\n", "bold"), ("enter keeps it, esc goes back", "dim")), markup=False)
            yield self._list

    def on_mount(self) -> None:
        """The cursor stands on the theme in use."""
        self._list.highlighted = self._names.index(self._current)
        self._list.focus()

    def action_move(self, step: int) -> None:
        """Moves the cursor, by vim's keys."""
        if step > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Shows the theme under the cursor."""
        if self.is_active:
            self._show(self._names[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Keeps it."""
        self.dismiss(self._names[event.option_index])
