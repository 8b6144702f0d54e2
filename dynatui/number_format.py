"""Figures as the screen and the exit summary write them. Knows no unit and no width."""

import math


def short(value: float | None, digits: int = 2) -> str:
    """A figure as people write it: .71, 3.41, 664; a dash for what cannot be known."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:.3g}" if abs(value) >= 1e6 else f"{value:.0f}"
    written = f"{value:.{digits}f}"
    return written[1:] if written.startswith("0.") else written


def percent(value: float | None) -> str:
    """A share as a percentage."""
    return "-" if value is None else f"{100 * value:.0f}%"
