"""How to read the screen, for terminals that have the room."""

from dynatui.render.ink import Ink, Rows, frame, inside
from dynatui.render.scene import Scene
from dynatui.render.text import Wrapped

GUIDE: tuple[tuple[str, str, Ink], ...] = (
    ("Round", "The draft grows a tree of guesses, the target checks all of them in one pass, the accepted path and one "
     "token of the target's own become text.", "strong"),
    ("L-bar", "Tokens per round: what one pass of the target yields. 1 is decoding without a draft. Loops inflate it, "
     "so the share of distinct 8-grams stands beside it.", "strong"),
    ("Depth acceptance", "Accepted depth over the depth of the tree. History aims at a fixed value of it.", "strong"),
    ("τh", "Where the draft's best guess is at least this sure, it gets one child only.", "strong"),
    ("τl", "Where it is less sure than this, three children; in between, two.", "strong"),
    ("D0", "Every likely branch may grow this deep; only very likely ones go deeper.", "strong"),
    ("History", "Accepts much: deeper trees, lower τh. Accepts little: the other way.", "strong"),
    ("Race", "All methods decode the same prompt, each for the same time. ar is plain decoding, linear a single "
     "chain of guesses, fixed a tree of fixed shape.", "strong"),
)  # fmt: skip


def guide(_scene: Scene, width: int, height: int) -> Rows:
    """The terms of the screen in plain words."""
    inner, room = inside((width, height))
    pages = [_page(inner, gap) for gap in ("\n\n", "\n")]
    airy = len(pages[0]) - 2 <= room
    return frame((("How to read this", "title"),), pages[not airy], (width, height))


def _page(width: int, gap: str) -> Rows:
    page = Wrapped(width)
    for term, meaning, ink in GUIDE:
        page.add(f"{term}  ", ink)
        page.add(f"{meaning}{gap}", "dim")
    return page.rows
