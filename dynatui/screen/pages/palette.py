"""Textual's command palette, made safe for a terminal that shrinks and for keys that close it while it opens."""

from typing import Any, cast

from textual import events, work
from textual.app import ComposeResult
from textual.command import CommandList, CommandPalette
from textual.errors import NoWidget
from textual.geometry import Region
from textual.widget import Widget

from dynatui.screen.pages.page import Modal


class Commands(CommandList):
    """Textual's, which fails at a click on a row that is gone when the click comes to it."""

    def on_click(self, event: events.Click) -> None:
        """Lets clicks pass on rows that are there."""
        if event.style.meta.get("option", -1) >= self.option_count:
            event.prevent_default()


class Palette(CommandPalette, Modal[None]):
    """Closes when it is clicked beside, wherever that is."""

    def compose(self) -> ComposeResult:
        """See Textual's, with a list of our own."""
        for widget in super().compose():
            yield Commands() if isinstance(widget, CommandList) else widget

    def get_widget_at(self, x: int, y: int) -> tuple[Widget, Region]:
        """What is there; where there is nothing any more, the palette itself."""
        try:
            return super().get_widget_at(x, y)
        except NoWidget:
            return self, self.region

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001 - cancelled by this name
    async def _gather_commands(self, search_value: str) -> None:
        """See Textual's, which fails where it begins after the palette was closed: then there is no list to fill."""
        if self.query(CommandList):
            await cast("Any", CommandPalette._gather_commands).__wrapped__(self, search_value)  # noqa: SLF001
