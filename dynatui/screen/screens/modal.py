"""What lies over the main screen and is closed once, however many quick keys ask for it."""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

T = TypeVar("T")


class Modal(ModalScreen[T]):
    """Textual's, which fails where a second key closes it before it is gone."""

    _asked_to_close = False

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """See Textual's; nothing the second time."""
        if self._asked_to_close:
            return AwaitComplete()
        self._asked_to_close = True
        return super().dismiss(result)
