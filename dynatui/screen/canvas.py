"""The widget of a panel: a pure function draws the panel's rows, and only changed rows are sent to the terminal.

If no other widget covers the panel, the app writes the changed cells (`patch`); otherwise Textual draws the panel
(`render_lines`). The two ways may alternate.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual.events import MouseDown, MouseMove
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from dynatui.render.ink import Ink, Row, Rows, fit, in_ascii, width_of
from dynatui.render.scene import Scene
from dynatui.screen.wire import CellStyle, Frame, cell_style, in_looks

DrawPanel: TypeAlias = Callable[[Scene, int, int], Rows]
ActionAt: TypeAlias = Callable[[Scene, Size, Offset], str]
"""(scene, size of the panel, clicked cell) -> action of the click; empty if there is none."""


@dataclass(frozen=True)
class Still:
    draw: DrawPanel
    region: Region
    looks: Mapping[Ink, CellStyle]


class Canvas(Widget):
    class Pressed(Message):
        """A click on a part of the panel that has an action."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(
        self,
        draw_panel: DrawPanel,
        *,
        panel: str,
        flowing: bool = False,
        classes: str | None = None,
        action_at: ActionAt = lambda *_: "",
        dragged: bool = False,
    ) -> None:
        super().__init__(id=panel, classes=classes)
        self._action_at = action_at
        self._dragged = dragged
        """Whether a drag repeats the click at each cell; on other panels, a second click would undo the first."""
        self.flowing = flowing
        """Whether the canvas is drawn at every frame; other canvases are drawn less often, all in the same frame."""
        self._draw_panel = draw_panel
        self._scene = Scene()
        self._drawn_rows: Rows = []
        """Rows of the panel before they were cut or filled to the width."""
        self._rows: Rows = []
        self._drawn_size: Size | None = None
        """Size of `_rows`; Textual may request rows of a new size before its resize event. None: redraw the rows."""
        self._inks: Mapping[Ink, Style] = {}
        self._styles: dict[Ink, Style] = {}
        """Style of each ink on this panel's background, after the app's filters."""
        self._looks: dict[Ink, CellStyle] = {}

    def on_mouse_down(self, event: MouseDown) -> None:
        if action := self._action_at(self._scene, self.size, event.offset):
            self.post_message(self.Pressed(action))

    def on_mouse_move(self, event: MouseMove) -> None:
        if event.button and self._dragged and (action := self._action_at(self._scene, self.size, event.offset)):
            self.post_message(self.Pressed(action))

    def show(self, scene: Scene, inks: Mapping[Ink, Style]) -> None:
        for y in self._changes(scene, inks):
            self.refresh(Region(0, y, self.size.width, 1))

    def patch(self, scene: Scene, inks: Mapping[Ink, Style], place: Offset, frame: Frame) -> None:
        for y in self._changes(scene, inks):
            frame.put(in_looks(self._rows[y], self._looks_of_inks()), place.x, place.y + y)

    def still(self) -> Still:
        """The panel for a film, in true colour, since the film's player may have more colours than this terminal."""
        looks = {ink: cell_style(self._style(ink), ColorSystem.TRUECOLOR) for ink in self._inks}
        return Still(self._draw_panel, self.region, looks)

    def redraw(self) -> None:
        self._forget()
        self.show(self._scene, self._inks)

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget()

    def render_line(self, y: int) -> Strip:
        if self._drawn_size != self.size:
            self._draw()
        row: Row = self._rows[y] if y < len(self._rows) else ((" " * self.size.width, "plain"),)
        return Strip([Segment(text, self._style(ink)) for text, ink in row if text], self.size.width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Rows for Textual's compositor, not from Textual's cache of lines, which lacks the rows written by `patch`."""
        left, right = crop.column_span
        return [self.render_line(y).crop(left, right) for y in crop.line_range]

    def _changes(self, scene: Scene, inks: Mapping[Ink, Style]) -> Iterator[int]:
        """Draws the scene; yields the indices of changed rows; none at a new size: Textual sends all rows."""
        if inks is not self._inks or scene.symbols != self._scene.symbols:
            self._inks = inks
            self._forget()
        self._scene = scene
        if not self.display or not self.size.area:
            return
        before, size = self._rows, self._drawn_size
        self._draw()
        if size != self.size or len(before) != len(self._rows):
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            if old is not new:
                yield y

    def _draw(self) -> None:
        """Draws the scene at the present size; unchanged rows stay the same objects."""
        before = list(zip(self._drawn_rows, self._rows, strict=True)) if self._drawn_size == self.size else []
        self._drawn_rows, self._drawn_size = self._draw_panel(self._scene, *self.size), self.size
        self._rows = [
            before[y][1] if y < len(before) and before[y][0] == row else fitted(row, self.size.width, self._scene)
            for y, row in enumerate(self._drawn_rows)
        ]

    def _forget(self) -> None:
        self._drawn_size, self._styles, self._looks = None, {}, {}

    def _style(self, ink: Ink) -> Style:
        style = self._styles.get(ink)
        if style is None:
            strip = Strip([Segment("x", self._inks.get(ink))]).apply_style(self.rich_style)
            for line_filter in self.get_line_filters():
                strip = strip.apply_filter(line_filter, self.background_colors[1])
            style = self._styles[ink] = next(iter(strip)).style or Style()
        return style

    def _looks_of_inks(self) -> Mapping[Ink, CellStyle]:
        if not self._looks:
            colors = color_system(self.app.console)
            self._looks = {ink: cell_style(self._style(ink), colors) for ink in self._inks}
        return self._looks


def color_system(console: Console) -> ColorSystem:
    name = console.color_system
    return COLOR_SYSTEMS[name] if name else ColorSystem.TRUECOLOR  # as in Textual


def fitted(row: Row, width: int, scene: Scene) -> Row:
    """The row, cut or filled to `width` cells, in the scene's symbols."""
    row = in_ascii([row])[0] if scene.symbols == "ascii" else row
    return row if width_of(row) == width else fit(row, width)


def uncovered(screen: Screen[Any]) -> dict[Widget, Offset]:
    """Screen positions of the canvases that no other widget covers; only these canvases may be patched."""
    regions = screen._compositor.visible_widgets  # noqa: SLF001 - only Textual's compositor knows which widgets overlap
    canvases = [widget for widget in regions if isinstance(widget, Canvas)]
    around = {ancestor for canvas in canvases for ancestor in canvas.ancestors}
    areas = {widget: region.intersection(clip) for widget, (region, clip) in regions.items() if widget not in around}
    return {
        canvas: areas[canvas].offset
        for canvas in canvases
        if areas[canvas].size == canvas.size
        and not any(canvas is not neighbour and area.overlaps(areas[canvas]) for neighbour, area in areas.items())
    }
