"""Which panels a terminal has room for; the style sheet says where they are."""

from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["roomy", "full", "tabbed", "small"]

LAYOUTS: tuple[Layout, ...] = ("roomy", "full", "tabbed", "small")
"""Everything and a guide; everything; one panel at a time; one panel and the most needed lines."""
_LEAST: dict[Layout, tuple[int, int]] = {"roomy": (160, 50), "full": (110, 34), "tabbed": (60, 18)}


def layout(width: int, height: int) -> Layout:
    """The richest layout that fits."""
    return next((name for name, (w, h) in _LEAST.items() if width >= w and height >= h), "small")
