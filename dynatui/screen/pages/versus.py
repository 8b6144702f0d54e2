"""The keys of two recordings side by side, and the page that explains what is compared."""

from rich.console import Group as Lines
from rich.text import Text

from dynatui.keys import Keymap
from dynatui.screen.pages.help import keys_of
from dynatui.screen.pages.page import Page

ABOUT = (
    "Both are shown after the same decode time of their watched method, the first of the run: neither pauses, nor the "
    "speed of the show, nor other methods of the race count. So the one with more text is the faster one. Runs are "
    "paired in the order of the files: first with first, second with second."
)


class KeysScreen(Page):
    """The keys and what is compared."""

    def __init__(self, keys: Keymap) -> None:
        super().__init__(keys, "help", lambda: Lines(keys_of(keys.side_by_side), Text(f"\n{ABOUT}")), "compare")
