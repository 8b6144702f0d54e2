"""One line at the foot of the screen for the words to be found."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from dynatui.screen.pages.page import Modal


class SearchScreen(Modal[str | None]):
    """Gives back the words, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, before: str) -> None:
        super().__init__()
        self._input = Input(before, placeholder="words in the text; enter finds, esc goes back", compact=True)
        self._input.cursor_blink = False

    def compose(self) -> ComposeResult:
        """The sign that opened it, and the line."""
        with Horizontal(id="search"):
            yield Static("/", markup=False)
            yield self._input

    def on_mount(self) -> None:
        """What is typed goes into the line."""
        self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Gives back what was typed."""
        self.dismiss(event.value)
