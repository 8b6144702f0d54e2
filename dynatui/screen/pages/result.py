"""The page at the end of a run: the result of every method, and the keys for what can be done next."""

from collections.abc import Callable

from rich.text import Text
from textual import events

from dynatui.clean import clean_line
from dynatui.keymap import Keymap
from dynatui.result import heading, result, settings
from dynatui.screen.pages.page import Page
from dynatui.screen.protocol import Screen
from dynatui.state.run_state import RunState
from dynatui.terminal.driver import cap_of

_OF_PAGE = frozenset(
    ("escape", "enter", "space", "j", "k", "g", "G", "up", "down", "home", "end", "pageup", "pagedown")
)
_WIDEST, _SHARE, _EDGE = 84, 0.96, 6
"""As in the style sheet: largest width of the page, in cells and as a share of the screen, and width of both edges."""


class ResultPage(Page):
    """Some keys only scroll or close the page; any other key closes the page and has its usual effect."""

    def __init__(self, keys: Keymap, page: Callable[[], Text], act: Callable[[str], object]) -> None:
        super().__init__(keys, "", page)
        self._act = act

    def on_key(self, event: events.Key) -> None:
        cap = cap_of(event)
        action = self.keys.action_for(cap, self._mode)
        if cap in _OF_PAGE or action is None:
            return
        event.stop()
        event.prevent_default()
        self.dismiss()
        self.app.call_later(self._act, action)


def result_text(screen: Screen, state: RunState, width: int) -> Text:
    """`width`: width of the screen, in cells."""
    inner = min(_WIDEST, int(_SHARE * width)) - _EDGE
    head, *rows = result(state.race, inner)
    title, pair = heading(state.race)
    page = Text.assemble((f"{title.capitalize()}\n\n", "bold"), (f"{head}\n", "dim"), "\n".join(rows), f"\n\n{pair}\n")
    page.append("".join(f"{line}\n" for line in settings(state.lanes)))
    cap, recorded, command = screen.scene.keys.cap, screen.source.recorded, screen.command_line()
    page.append(f"\n{cap('prompt(1)')} runs the prompts again   {cap('prompt(0)')} the last one   {cap('leave')} quits")
    keeps = "" if recorded else f"   {cap('record')} records the last text"
    page.append(f"\nesc goes back to the panels{keeps}")
    if recorded:
        page.append(f"\n\nRecorded: dynatui replay {clean_line(str(recorded))}", "dim")
    if command:
        all_of_it = "" if recorded else " (--record FILE records it)"
        page.append(f"\n\nThe same run again{all_of_it}: {clean_line(command)}", "dim")
    return page
