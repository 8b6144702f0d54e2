"""Figures as the screen and the exit summary write them. Knows no unit and no width."""

import math
from collections.abc import Sequence


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


def count(number: float | None) -> str:
    """A number of things, in full as far as that is short: 1,234 and 1.23e+12; a dash for what is not known."""
    return "-" if number is None else f"{number:,.0f}" if number < 1e10 else f"{number:.3g}"


def nth(number: int) -> int:
    """A round as people count them, from 1; events count from 0."""
    return number + 1


def memory_by_rank(peaks: Sequence[int]) -> str:
    """The most memory that each process of a target had in use, of bytes."""
    return f"most memory in use by process: {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB"
