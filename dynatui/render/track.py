"""The track of a slider: where a value is drawn, and, the other way round, which value a click asks for."""

import math
from dataclasses import dataclass

from decoder.knobs import KNOB_DIGITS, KnobInfo
from dynatui.render.ink import Ink, Row, merged, share


@dataclass(frozen=True)
class Track:
    """A scale of `low` to `high` on cells from `x` on."""

    x: int
    cells: int
    low: float
    high: float

    def cell(self, value: float) -> int:
        """The cell, counted from the track's first, that shows a value."""
        return round(share(value - self.low, self.high - self.low) * (self.cells - 1))

    def asked(self, x: int, info: KnobInfo) -> float | None:
        """The value, in whole steps of its knob, that a click at column `x` asks for; None beside the track."""
        if not self.x <= x < self.x + self.cells:
            return None
        exact = self.low + (self.high - self.low) * (x - self.x) / max(1, self.cells - 1)
        stepped = round(exact / info.step) * info.step if math.isfinite(exact) else self.low
        return round(min(self.high, max(self.low, stepped)), KNOB_DIGITS)

    def drawn(self, value: float, *, wanted: float | None, start: float | None, ends: tuple[float, float]) -> Row:
        """The value in force as ●, a pending one as ○, ┼ where the run began, and the bounds of the moment."""
        if self.cells < 1:
            return ()
        first, last = self.cell(ends[0]), self.cell(ends[1])
        cells: list[tuple[str, Ink]] = [
            ("─", "bar") if first <= place <= last else ("·", "frame") for place in range(self.cells)
        ]
        if start is not None:
            cells[self.cell(start)] = ("┼", "dim")
        cells[self.cell(value)] = ("●", "strong")
        if wanted is not None:
            cells[self.cell(wanted)] = ("○", "warn")
        return merged(cells)
