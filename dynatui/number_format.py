"""Numbers as text, for the screen and the exit summary. Independent of the width of panels."""

import math
from collections.abc import Sequence


def short(value: float | None, digits: int = 2) -> str:
    """A number such as 0.71, 3.41 or 664; a dash for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:.3g}" if abs(value) >= 1e6 else f"{value:.0f}"
    return f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"


def ms(seconds: float | None, digits: int = 2) -> str:
    return short(None if seconds is None else 1000 * seconds, digits)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """A number and its noun, such as 1 token or 2 tokens."""
    return f"{number} {noun}{ending * (number != 1)}"


def count(number: float | None) -> str:
    """A number such as 1,234, or 1.23e+12 if it is long; a dash for None."""
    return "-" if number is None else f"{number:,.0f}" if number < 1e10 else f"{number:.3g}"


def size(count: int) -> str:
    """A number of bytes with a unit, such as 1.5 GiB."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    if count >= 10 * 2**20:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**10:.0f} KiB" if count >= 2**10 else f"{count} bytes"


def nth(number: int) -> int:
    """The number under which a round is shown, from 1, for its number in events, from 0."""
    return number + 1


def memory_by_rank(peaks: Sequence[int]) -> str:
    return f"peak memory by process: {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB"
