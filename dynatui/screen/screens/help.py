"""Every key, what the panels mean and every figure with its formula, on a page over the main screen."""

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from decoder.metrics import FIGURES
from dynatui.keymap import GROUPS, Key, Mode
from dynatui.render.guide import GUIDE
from dynatui.render.status import caps

_KEYS = 15
"""Cells for the keys of a line."""
_STRONG, _FAINT, _HEADING = Style(bold=True), Style(dim=True), Style(bold=True, underline=True)
_DOING: dict[Mode, str] = {"watch": "watching", "inspect": "inspecting", "knobs": "all knobs are open"}


class HelpScreen(ModalScreen[None]):
    """Closed by any of the keys that people try."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,escape,enter,space", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def compose(self) -> ComposeResult:
        """One page of text."""
        with VerticalScroll(id="help"):
            yield Static(help_page(), markup=False)


def help_page() -> Text:
    """All of it, as one text."""
    page = Text()
    page.append("Keys", _STRONG)
    page.append("   ? or esc goes back, the arrow keys scroll\n", _FAINT)
    for group in GROUPS:
        page.append(f"\n{group.title}\n", _HEADING)
        for key in group.keys:
            page.append(f"{caps(key):>{_KEYS}}  ", _STRONG)
            page.append(f"{key.help}")
            page.append(f"{_where(key)}\n", _FAINT)
    page.append("\nWhat you see\n", _HEADING)
    for term, meaning in GUIDE:
        page.append(f"\n{term}  ", _STRONG)
        page.append(f"{meaning}\n")
    page.append("\nEvery figure\n", _HEADING)
    page.append("as it is called here and in JSON, its formula, and what other engines call it\n\n", _FAINT)
    for figure in FIGURES:
        page.append(f"{figure.label}", _STRONG)
        page.append(f"  {figure.key}" if figure.key != figure.label else "", _FAINT)
        page.append(f"  = {figure.formula}")
        page.append(f"  elsewhere: {figure.elsewhere}\n" if figure.elsewhere else "\n", _FAINT)
    return page


def _where(key: Key) -> str:
    """The modes in which a key means this, where these are few."""
    return "" if "watch" in key.modes else f"  (while {', '.join(_DOING[mode] for mode in key.modes)})"
