"""Textual's command palette, made to bear a terminal that shrinks and keys that close it while it opens."""

from typing import Any, cast

from textual import work
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.errors import NoWidget
from textual.geometry import Region
from textual.widget import Widget


class Palette(CommandPalette):
    """Closes when it is clicked beside, wherever that is."""

    _asked_to_close = False

    def dismiss(self, result: None = None) -> AwaitComplete:
        """See Textual's; nothing the second time, as of any page of ours."""
        if self._asked_to_close:
            return AwaitComplete()
        self._asked_to_close = True
        return super().dismiss(result)

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
