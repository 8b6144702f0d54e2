"""The prompt in progress, to be changed and run again.

The editor shows and gives back cleaned text: a terminal cannot show control characters, nor can they be typed.
"""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static, TextArea

from dynatui.clean import clean
from dynatui.screen.pages.page import Modal


class EditScreen(Modal[str | None]):
    """Gives back the new prompt, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+r,ctrl+s,f5", "run", "run it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, prompt: str) -> None:
        super().__init__()
        self._prompt = prompt
        self._shown = clean(prompt)
        self._area = TextArea(self._shown, soft_wrap=True, show_cursor=True)
        self._area.cursor_blink = False

    def compose(self) -> ComposeResult:
        """A line of help over the text."""
        help_line = Text.assemble(("Edit the prompt   ", "bold"), ("ctrl+r runs it, esc leaves it as it was", "dim"))
        with Vertical(classes="page editor"):
            yield Static(help_line, markup=False)
            yield self._area

    def on_mount(self) -> None:
        """The cursor stands where one goes on writing."""
        self._area.move_cursor(self._area.document.end)
        self._area.focus()

    def action_run(self) -> None:
        """Gives back the text; unchanged, the prompt as it was before cleaning."""
        text = self._area.text
        self.dismiss(self._prompt if text == self._shown else text)
