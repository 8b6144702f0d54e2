"""A page of text over the main screen, closed by any of the keys that people try."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.clean import clean


class PageScreen(ModalScreen[None]):
    """A title and a text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space,y", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._page = Text.assemble((f"{title}\n\n", "bold"), clean(text), ("\n\nesc goes back", "dim"))

    def compose(self) -> ComposeResult:
        """One page."""
        with VerticalScroll(classes="page"):
            yield Static(self._page, markup=False)
