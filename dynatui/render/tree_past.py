"""Dimmed trees of rounds before the shown round, in the rows below the shown tree.

A tree is shown as a whole, as its accepted path, or not at all, since any other part would look like another tree.
"""

from collections.abc import Sequence
from itertools import takewhile

from decoder.analysis.metrics import drafted_nodes
from decoder.events import Round
from dynatui.number_format import nth
from dynatui.render.ink import Ink, Row, Rows, best, fit, joined
from dynatui.render.rounds import is_drafted
from dynatui.render.tree_levels import LEAST_COLUMNS
from dynatui.render.tree_rows import Drawing, drawn_path, drawn_tree
from dynatui.render.tree_title import titles

MOST = 3
"""Largest number of earlier rounds whose trees are shown."""
_GAP, _RULE = "  ", "── "
_INKS: dict[Ink, Ink] = {"accepted": "good", "frame": "frame"}


def past_trees(events: Sequence[Round], width: int, height: int) -> Rows:
    """The first trees that fit, at most three: side by side in a wide panel, otherwise one below the other.

    Empty if no tree fits or no round has a draft.
    """
    if not any(map(drafted_nodes, events)):
        return []
    cells = (width - (MOST - 1) * len(_GAP)) // MOST
    if cells < LEAST_COLUMNS:
        return [row for tree in _stacked(events, width, height) for row in tree]
    trees = [tree for [tree] in takewhile(bool, (_stacked([event], cells, height) for event in events))]
    rows = max(map(len, trees), default=0)
    padded = [[fit(row, cells) for row in [*tree, *[()] * (rows - len(tree))]] for tree in trees]
    return [joined(beside, ((_GAP, "plain"),)) for beside in zip(*padded, strict=True)]


def _stacked(events: Sequence[Round], width: int, height: int) -> list[Rows]:
    """Accepted paths of as many rounds as fit, one below another; if rows remain, the first rounds get whole trees."""
    pictures, free = list[Rows](), height
    for event in events:
        path = _headed(event, drawn_path(event, width, free), width)
        if not 0 < len(path) <= free:
            break
        pictures.append(path)
        free -= len(path)
    for place, path in enumerate(pictures):
        room = free + len(path)
        tree = _headed(events[place], drawn_tree(events[place], width, room), width)
        if not 0 < len(tree) <= room:
            break
        pictures[place], free = tree, room - len(tree)
    return pictures


def _headed(event: Round, drawing: Drawing, width: int) -> Rows:
    """The tree, with a heading in place of the root, since the root is already text; empty if nodes were omitted."""
    if drawing.left_out:
        return []
    name = f"round {nth(event.round)}"
    title = best(width - len(_RULE), *(words for words in titles(event) if words.startswith(name)), name)
    heading: Row = ((_RULE, "frame"), (title, "plain"), (f" {'─' * width}", "frame"))
    rows = drawing.rows if is_drafted(event, 0) else drawing.rows[1:]
    return [fit(heading, width), *(tuple((text, _INKS.get(ink, "dim")) for text, ink in row) for row in rows)]
