"""What the user types: the prompt in progress, to be changed and run again, and words to be found."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static, TextArea

from dynatui.clean import clean
from dynatui.screen.pages.page import Modal


class EditScreen(Modal[str | None]):
    """Gives back the new prompt, cleaned as it was shown, or None: control characters cannot be shown or typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+r,ctrl+s,f5", "run", "run it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, prompt: str, *, losing: bool = False) -> None:
        """Takes the prompt as it is, and whether the run in progress is lost when another is run."""
        super().__init__()
        self._prompt = prompt
        self._losing = losing
        self._shown = clean(prompt)
        self._area = TextArea(self._shown, soft_wrap=True, show_cursor=True)
        self._area.cursor_blink = False

    def compose(self) -> ComposeResult:
        """A line of help over the text."""
        loses = " and ends this run, which is not recorded" if self._losing else ""
        does = f"ctrl+r runs it{loses}, esc leaves it as it was"
        help_line = Text.assemble(("Edit the prompt   ", "bold"), (does, "dim"))
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


class SearchScreen(Modal[str | None]):
    """One line at the foot of the screen; gives back the words, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "leave it", show=False, priority=True),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, before: str, asked: str) -> None:
        """Takes what the line begins with, and what is shown in it while it is empty."""
        super().__init__()
        self._input = Input(before, placeholder=f"{asked}, esc goes back", compact=True)
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
