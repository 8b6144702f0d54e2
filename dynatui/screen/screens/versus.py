"""The keys of two recordings side by side, and the page that explains them."""

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.keymap import SIDE_BY_SIDE
from dynatui.render.status import caps

ABOUT = (
    "Both are shown after the same decode time of their watched method, the first of the run: neither pauses, nor the "
    "speed of the show, nor other methods of the race count. So the one with more text is the faster one. Runs are "
    "paired in the order of the files: first with first, second with second."
)


class KeysScreen(ModalScreen[None]):
    """The keys and what is compared; closed by any of the keys that people try."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,escape,enter,space", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def compose(self) -> ComposeResult:
        """One page of text."""
        page = Text()
        for key in SIDE_BY_SIDE.keys:
            page.append(f"{caps(key):>15}  ", Style(bold=True))
            page.append(f"{key.help}\n")
        page.append(f"\n{ABOUT}")
        with VerticalScroll(id="page"):
            yield Static(page, markup=False)
