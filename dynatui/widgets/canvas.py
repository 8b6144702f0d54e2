"""One panel: asks a pure function for its rows and redraws those that changed."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from dynatui.render.ink import Ink, Row, Rows, in_ascii
from dynatui.render.scene import Scene

Painter: TypeAlias = Callable[[Scene, int, int], Rows]
"""Draws a scene in a width and a height."""


class Canvas(Widget):
    """Shows what its painter makes of the newest scene; knows nothing of what it shows."""

    def __init__(self, painter: Painter, *, every_s: float, panel: str) -> None:
        super().__init__(id=panel)
        self.every_s = every_s
        """Least time between two redraws: terminals behind slow lines pay for each."""
        self._painter = painter
        self._scene = Scene()
        self._rows: Rows = []
        self._styles: Mapping[Ink, Style] = {}

    def show(self, scene: Scene, styles: Mapping[Ink, Style]) -> None:
        """Takes a new scene and redraws the rows that differ."""
        self._scene = scene
        if styles is not self._styles:
            self._styles, self._rows = styles, []
        if not self.display or not self.size:
            return
        before, width = self._rows, self.size.width
        rows = self._painter(scene, width, self.size.height)
        self._rows = in_ascii(rows) if scene.symbols == "ascii" else rows
        if len(before) != len(self._rows):
            self.refresh()
            return
        changed = [Region(0, y, width, 1) for y, row in enumerate(self._rows) if row != before[y]]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        """Draws again for the new size."""
        self._rows = []
        self.show(self._scene, self._styles)

    def render_line(self, y: int) -> Strip:
        """One row as Textual wants it."""
        row: Row = self._rows[y] if y < len(self._rows) else ()
        segments = [Segment(text, self._styles.get(ink)) for text, ink in row if text]
        return Strip(segments).adjust_cell_length(self.size.width).apply_style(self.rich_style)
