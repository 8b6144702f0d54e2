"""What lies over the main screen and closes itself, never another page, however many quick keys ask for it."""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

T = TypeVar("T")


class Modal(ModalScreen[T]):
    """Textual's, which closes whatever page is in front by then."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """See Textual's; nothing when another page is in front, or this one is closed already."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
