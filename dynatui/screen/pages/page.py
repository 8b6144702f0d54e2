"""Pages over the main screen: the usual keys close a page; the keys of vim and less also scroll it.

A page uses only these keys of the key map: the key that opened the page, and the keys that quit the program.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.clean import clean
from dynatui.keymap import Keymap, Mode
from dynatui.terminal.driver import cap_of

_QUITS = "leave"
T = TypeVar("T")


def holds(text: str, words: str) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words.casefold().split())


class Modal(ModalScreen[T]):
    """A page that can dismiss only itself, however many keys are queued."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """As in Textual, but without effect while another page is in front or after this page is closed."""
        return super().dismiss(result) if self.is_active else AwaitComplete()


class Page(Modal[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space", "dismiss", "close", show=False),
        Binding("ctrl+c", "app.leave", "quit", show=False, priority=True),
        Binding("j", "scroll(1)", "down", show=False),
        Binding("k", "scroll(-1)", "up", show=False),
        Binding("g", "scroll_to(0)", "beginning", show=False),
        Binding("G", "scroll_to(1)", "end", show=False),
    ]

    def __init__(self, keys: Keymap, opened_by: str, page: Callable[[], RenderableType], mode: Mode = "watch") -> None:
        """`page` makes the content; the key of the action `opened_by` closes it again."""
        super().__init__()
        self.keys = keys
        self._page = page
        self._opened_by = opened_by
        self._mode = mode
        self._static = Static(markup=False)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="page"):
            yield self._static

    def on_mount(self) -> None:
        self.show()

    def show(self) -> None:
        self._static.update(self._page())

    def on_key(self, event: events.Key) -> None:
        action = self.keys.action_for(cap_of(event), self._mode)
        if action == _QUITS:
            event.stop()
            self.app.call_later(self.app.run_action, _QUITS)
        elif action == self._opened_by:
            event.stop()
            self.dismiss()

    def action_scroll(self, lines: int) -> None:
        self._scroller.scroll_relative(y=lines, animate=False)

    def action_scroll_to(self, share: int) -> None:
        self._scroller.scroll_to(y=share * self._scroller.max_scroll_y, animate=False)

    @property
    def _scroller(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)


class TextPage(Page):
    def __init__(self, keys: Keymap, opened_by: str, title: str, text: str) -> None:
        page = Text.assemble((f"{title}\n\n", "bold"), clean(text), ("\n\nesc goes back", "dim"))
        super().__init__(keys, opened_by, lambda: page)
