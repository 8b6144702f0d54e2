"""The page of break conditions: when one holds, decoding pauses. Digit keys switch conditions on and off."""

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from dynatui.keymap import Keymap
from dynatui.screen.pages.page import Page
from dynatui.sources.breakpoints import BREAKS, EXPLANATIONS
from dynatui.sources.source import Controls

_STEP = 0.05


class BreakScreen(Page):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "limit(-1)", "x down", show=False),
        Binding("right,equals_sign", "limit(1)", "x up", show=False),
        *(Binding(str(number), f"switch({number})", "switch", show=False) for number in range(1, len(BREAKS) + 1)),
    ]

    def __init__(self, keys: Keymap, controls: Controls) -> None:
        super().__init__(keys, "breaks", self._conditions)
        self._controls = controls

    def action_switch(self, number: int) -> None:
        self._controls.break_on(self._controls.conditions.toggled(BREAKS[number - 1]))
        self.show()

    def action_limit(self, steps: int) -> None:
        self._controls.break_on(self._controls.conditions.moved(steps * _STEP))
        self.show()

    def _conditions(self) -> Text:
        conditions = self._controls.conditions
        page = Text.assemble(("Pause automatically when …\n\n", "bold"))
        for number, name in enumerate(BREAKS, 1):
            on = name in conditions.on
            page.append(f" {number} ", "bold")
            page.append("[x] " if on else "[ ] ")
            page.append(f"{conditions.label(name)}\n", "bold" if on else "")
            page.append(f"       {EXPLANATIONS[name]}\n", "dim")
        goes_on = f"{self.keys.cap('pause')} resumes after a pause"
        page.append(f"\n1 to {len(BREAKS)} switch conditions, ← → change x, esc goes back, {goes_on}", "dim")
        return page
