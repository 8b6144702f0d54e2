"""Which panels a terminal has room for; the style sheet says where they are.

- roomy: everything, and a column of its own that tells how to read the screen or why a token is where it is.
- full: text, tree and curves side by side; race, work, what if, prompts and log share one place.
- tabbed: one panel at a time under a line of tabs, with cards, trends and sliders.
- small: one panel at a time, and the most needed figures on one line.
- line: one line with the essentials; what rows are left over show the end of the text.
"""

from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["roomy", "full", "tabbed", "small", "line"]

_LEAST: dict[Layout, tuple[int, int]] = {
    "roomy": (160, 50),
    "full": (110, 34),
    "tabbed": (60, 18),
    "small": (40, 10),
    "line": (0, 0),
}
LAYOUTS: tuple[Layout, ...] = tuple(_LEAST)
"""The richest first."""


def layout(width: int, height: int) -> Layout:
    """The richest layout that fits."""
    return next((name for name, (w, h) in _LEAST.items() if width >= w and height >= h), "line")


def least(name: Layout) -> str:
    """The smallest terminal that has room for a layout, as it is written."""
    width, height = _LEAST[name]
    return f"{width}x{height}"
