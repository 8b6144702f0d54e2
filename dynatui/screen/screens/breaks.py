"""When decoding shall pause by itself: a list of conditions, switched by their numbers."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.sources.breaks import BREAKS, EXPLANATIONS
from dynatui.sources.source import Controls

_STEP = 0.05


class BreakScreen(ModalScreen[None]):
    """Conditions take effect at once; closing the page only closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space,B", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
        Binding("left,minus", "limit(-1)", "x down", show=False),
        Binding("right,equals_sign", "limit(1)", "x up", show=False),
        *(Binding(str(number), f"switch({number})", "switch", show=False) for number in range(1, len(BREAKS) + 1)),
    ]

    def __init__(self, controls: Controls) -> None:
        super().__init__()
        self._controls = controls
        self._page = Static(self._text(), markup=False)

    def compose(self) -> ComposeResult:
        """One page."""
        with VerticalScroll(classes="page"):
            yield self._page

    def action_switch(self, number: int) -> None:
        """Switches a condition."""
        self._controls.break_on(self._controls.conditions.toggled(BREAKS[number - 1]))
        self._page.update(self._text())

    def action_limit(self, steps: int) -> None:
        """Moves the x of "acceptance under x"."""
        self._controls.break_on(self._controls.conditions.moved(steps * _STEP))
        self._page.update(self._text())

    def _text(self) -> Text:
        conditions = self._controls.conditions
        page = Text.assemble(("Pause by itself when …\n\n", "bold"))
        for number, name in enumerate(BREAKS, 1):
            on = name in conditions.on
            page.append(f" {number} ", "bold")
            page.append("[x] " if on else "[ ] ")
            page.append(f"{conditions.label(name)}\n", "bold" if on else "")
            page.append(f"       {EXPLANATIONS[name]}\n", "dim")
        page.append("\n1 to 5 switch, ← → move x, esc goes back, P goes on after a pause", "dim")
        return page
