"""Pages for typed text: the editor of the prompt, and the line for words to search."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static, TextArea

from dynatui.clean import clean
from dynatui.screen.pages.page import Modal


class EditScreen(Modal[str | None]):
    """Returns the new prompt, without control characters, or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+r,ctrl+s,f5", "run", "run it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, prompt: str, *, losing: bool = False) -> None:
        """`losing`: the run in progress would be lost."""
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
        """An unchanged text gives the prompt as it was before cleaning."""
        text = self._area.text
        self.dismiss(self._prompt if text == self._clean_prompt else text)


class SearchScreen(Modal[str | None]):
    """Returns the typed words, or None if cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

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
