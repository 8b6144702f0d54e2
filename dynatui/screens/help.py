"""Every key and what the panels mean, on a page over the main screen."""

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.keymap import KEYMAP
from dynatui.render.guide import GUIDE


class HelpScreen(ModalScreen[None]):
    """Closed by any of the keys that people try."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,escape,enter,space", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def compose(self) -> ComposeResult:
        """One page of text."""
        with VerticalScroll(id="help"):
            yield Static(self._page(), markup=False)

    def _page(self) -> Text:
        strong = Style(bold=True)
        page = Text()
        page.append("Keys", strong)
        page.append("   ? or esc goes back, the arrow keys scroll\n\n", Style(dim=True))
        for key in KEYMAP:
            page.append(f"{key.shown:>9}  ", strong)
            page.append(f"{key.help}\n", Style())
        page.append("\nWhat you see\n\n", strong)
        for term, meaning, _ in GUIDE:
            page.append(f"{term}  ", strong)
            page.append(f"{meaning}\n", Style())
        return page
