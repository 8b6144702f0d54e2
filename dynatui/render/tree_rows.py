"""The rows of a round's tree: labels in the cells of the layout, and on the right the probability of each row's path.

The root has the first row, which also names the figures of the labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from decoder.events import Round
from dynatui.render import rounds
from dynatui.render.ink import Ink, Row, Rows, Span, bar, best, fit, width_of
from dynatui.render.tree_labels import LEAST_CELLS, FigureName, Labels, kept_ink, labels, percent
from dynatui.render.tree_layout import Arrow, Layout, Line, PlacedRow, Slot, laid_out
from dynatui.render.tree_levels import Look
from dynatui.state.tokens import repeated_length

Sign: TypeAlias = FigureName | Literal["x2", "path", "bar", "arrow"]

_PATH = 6
"""The column with the probability of a row's path."""
_BAR = 10
"""The bar to the right of the labels, with a gap of two cells."""
_SECOND = 5
_ROOMY, _MEDIUM, _CLOSE = 16, 13, 11
"""Least width of a label with this spacing."""
_NOTE = "  last token"
_LEAST_COPY = 4
"""Least number of repeated tokens at which a repetition is marked."""


class Drawing(NamedTuple):
    rows: Rows
    signs: frozenset[Sign]
    left_out: int
    """Nodes that had no room."""


@dataclass(frozen=True)
class _Tree:
    event: Round
    labels: Labels
    layout: Layout
    paths: Sequence[float]
    room: int

    @property
    def tells_path(self) -> bool:
        return self.layout.look.aside in (_PATH, _PATH + _BAR)


def drawn_tree(
    event: Round, width: int, height: int, text: Sequence[int] = (), *, marked: int | None = None
) -> Drawing:
    """`text` holds the tokens before the round."""
    paths, most = rounds.path_logprobs(event), height * max(1, width // LEAST_CELLS)
    candidates = rounds.ranked(event, paths)[: max(1, most)]
    names = labels(event, candidates, marked)
    layout = _layout(names, candidates, (width, height))
    copies = {} if rounds.is_drawn(event) else _copies(event, paths, layout.shown, text)
    if copies:
        names = replace(names, copies=copies)
        layout = _layout(names, candidates, (width, height))
    tree = _Tree(event, names, layout, paths, width - layout.look.aside)
    rows, left_out = _inked(tree), len(event.tokens) - len(layout.shown)
    if left_out:
        note = best(width, *(f"+ {left_out}{words}" for words in (" more nodes", " more", "")))
        rows.append(((note, "dim"),))
    return Drawing(rows[: max(0, height)], _signs(tree), left_out)


def drawn_path(event: Round, width: int, height: int) -> Drawing:
    """Without a note that nodes are omitted."""
    path = list(dict.fromkeys((0, *event.accepted)))
    nodes = path[: max(1, height * max(1, width // LEAST_CELLS))]
    names = labels(event, nodes, None)
    layout = _layout(names, nodes, (width, height + 1))
    tree = _Tree(event, names, layout, rounds.path_logprobs(event), width - layout.look.aside)
    return Drawing(_inked(tree)[: max(0, height)], _signs(tree), len(path) - len(layout.shown))


def _layout(names: Labels, candidates: Sequence[int], size: tuple[int, int]) -> Layout:
    event, cells = names.event, {node: names.cells(node) for node in candidates}
    return laid_out(event.parents, candidates, event.accepted, cells, _looks(names), size)


def _signs(tree: _Tree) -> frozenset[Sign]:
    present: Mapping[Sign, object] = {
        **dict.fromkeys(tree.labels.figure_names[-tree.layout.look.figures :], True),
        "x2": tree.labels.times,
        "path": tree.tells_path,
        "bar": tree.layout.look.aside >= _BAR,
        "arrow": any(isinstance(placed[-1], Arrow) for placed in tree.layout.rows),
    }
    return frozenset(sign for sign, is_present in present.items() if is_present)


def _copies(event: Round, paths: Sequence[float], shown: frozenset[int], text: Sequence[int]) -> dict[int, int]:
    """Repeated tokens of each shown leaf whose improbable path occurs in the text; `auto` keeps such paths."""
    copies = {}
    for leaf in shown.difference(event.parents):
        path = [node for node in rounds.path_to(event, leaf) if rounds.is_drafted(event, node)]
        if _LEAST_COPY <= len(path) <= len(text) and rounds.probability(paths[leaf]) < rounds.LEAST_SHOWN:
            length = repeated_length(text, [event.tokens[node] for node in path])
            if length >= len(path):
                copies[leaf] = length
    return copies


def _looks(names: Labels) -> list[Look]:
    """From the richest to the narrowest."""
    one_level = max(names.event.parents) <= 0 and not rounds.is_drafted(names.event, 0)
    asides = (_BAR,) if names.tells_kept or one_level else (_PATH + _BAR, _PATH)
    times = max(map(len, names.times.values()), default=0)
    several = len(names.figure_names) - 1
    rich = [
        Look(1 + second, second * _SECOND, _ROOMY + times + second * _SECOND, gap=2, lead=1, aside=aside)
        for second in range(several, -1, -1)
        for aside in asides
    ]
    return [
        *rich,
        Look(1, 0, _ROOMY + times, gap=1, lead=1, aside=asides[-1]),
        Look(1, 0, _MEDIUM + times, gap=1, lead=1),
        Look(1, 0, _CLOSE + times, gap=1, lead=0),
    ]


def _inked(tree: _Tree) -> Rows:
    root, figures = _heading(tree)
    edge = tree.room if tree.labels.copies else max(tree.layout.end, width_of(root) + width_of(figures))
    path = "path".rjust(_PATH) if tree.tells_path and figures else ""
    first: Row = (*fit(root, edge - width_of(figures)), *figures, (path, "dim"))
    return [first, *(_row(tree, placed, edge) for placed in tree.layout.rows[1:])]


def _heading(tree: _Tree) -> tuple[Row, Row]:
    root = tree.labels.label(0, min(tree.room, tree.labels.cells(0)), 1)
    noted: Row = root if rounds.is_drafted(tree.event, 0) else (*root, (_NOTE, "dim"))
    names = ", ".join(tree.labels.figure_names[-tree.layout.look.figures :])
    figures: Row = ((f"  %: {names}", "dim"),) if len(tree.layout.shown) > 1 else ()
    wordings: Sequence[tuple[Row, Row]] = (noted, figures), (root, figures), (root, ())
    return next((pair for pair in wordings if sum(map(width_of, pair)) <= tree.room), wordings[-1])


def _row(tree: _Tree, placed: PlacedRow, edge: int) -> Row:
    spans, used, names, look = list[Span](), 0, tree.labels, tree.layout.look
    for part in placed:
        if isinstance(part, Slot):
            cells = edge - used if part.node in names.copies else part.cells
            spans += names.label(part.node, cells, look.figures)
            used += cells
        else:
            ink: Ink = "frame" if isinstance(part, Line) else "dim"
            spans.append((part.text, "accepted" if part.node in names.accepted else ink))
            used += len(part.text)
    if look.aside and isinstance(placed[-1], Slot):
        spans += [(" " * (edge - used), "plain"), *_aside(tree, placed[-1].node)]
    return tuple(spans)


def _aside(tree: _Tree, node: int) -> Row:
    """Probability of the path to the node; in a sampled tree, that it is kept."""
    is_sampled = tree.labels.tells_kept
    chance = tree.labels.chances[node] if is_sampled else rounds.probability(tree.paths[node])
    ink: Ink = kept_ink(chance) if is_sampled else "good" if node in tree.labels.accepted else "bar"
    path: Row = ((f"{percent(chance):>{_PATH}}", "dim"),) if tree.tells_path else ()
    bars: Row = (("  ", "plain"), (bar(chance, _BAR - 2), ink)) if tree.layout.look.aside >= _BAR else ()
    return (*path, *bars)
