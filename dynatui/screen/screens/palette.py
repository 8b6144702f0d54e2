"""Textual's command palette, made to bear a terminal that shrinks while it is open."""

from textual.command import CommandPalette
from textual.errors import NoWidget
from textual.geometry import Region
from textual.widget import Widget


class Palette(CommandPalette):
    """Closes when it is clicked beside, wherever that is."""

    def get_widget_at(self, x: int, y: int) -> tuple[Widget, Region]:
        """What is there; where there is nothing any more, the palette itself."""
        try:
            return super().get_widget_at(x, y)
        except NoWidget:
            return self, self.region
