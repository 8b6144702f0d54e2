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

MOST = 15
_TOGETHER = 3
"""Number of trees that stand side by side in a wide panel; in a narrow panel, at least their paths are shown first."""
_GAP, _RULE = "  ", "── "
_INKS: dict[Ink, Ink] = {"accepted": "good", "frame": "frame"}


def past_trees(events: Sequence[Round], width: int, height: int) -> Rows:
    """In rows of three in a wide panel; empty if no tree fits or no round has a draft."""
    if not any(map(drafted_nodes, events)):
        return []
    cells = (width - (_TOGETHER - 1) * len(_GAP)) // _TOGETHER
    if cells < LEAST_COLUMNS:
        return [row for tree in _below(events, width, height) for row in tree]
    rows: Rows = []
    for place in range(0, len(events), _TOGETHER):
        abreast = _abreast(events[place : place + _TOGETHER], cells, height - len(rows))
        rows += abreast
        if not abreast:
            break
    return rows


def _abreast(events: Sequence[Round], cells: int, height: int) -> Rows:
    trees = [tree for [tree] in takewhile(bool, (_stacked([event], cells, height) for event in events))]
    rows = max(map(len, trees), default=0)
    padded = [[fit(row, cells) for row in [*tree, *[()] * (rows - len(tree))]] for tree in trees]
    return [joined(beside, ((_GAP, "plain"),)) for beside in zip(*padded, strict=True)]


def _below(events: Sequence[Round], width: int, height: int) -> list[Rows]:
    pictures = _stacked(events[:_TOGETHER], width, height)
    free = height - sum(map(len, pictures))
    for event in events[len(pictures) :]:
        tree = _headed(event, drawn_tree(event, width, free), width)
        if not 0 < len(tree) <= free:
            break
        pictures.append(tree)
        free -= len(tree)
    return pictures


def _stacked(events: Sequence[Round], width: int, height: int) -> list[Rows]:
    """Accepted paths of as many rounds as fit; if rows remain, the first rounds get whole trees."""
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
    """A heading replaces the root, which is already text; empty if nodes were omitted."""
    if drawing.left_out:
        return []
    name = f"round {nth(event.round)}"
    title = best(width - len(_RULE), *(words for words in titles(event) if words.startswith(name)), name)
    heading: Row = ((_RULE, "frame"), (title, "plain"), (f" {'─' * width}", "frame"))
    rows = drawing.rows if is_drafted(event, 0) else drawing.rows[1:]
    return [fit(heading, width), *(tuple((text, _INKS.get(ink, "dim")) for text, ink in row) for row in rows)]
