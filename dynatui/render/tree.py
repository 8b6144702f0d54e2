"""The draft tree of a round, or the tree's attention mask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile, zip_longest
from typing import Literal, NamedTuple, TypeAlias

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, LOST, Limit, Round
from decoder.session.steering import StageName
from dynatui.number_format import nth, short
from dynatui.render import rounds
from dynatui.render.guide import caption
from dynatui.render.ink import (
    Ink,
    Row,
    Rows,
    Span,
    bar,
    best,
    best_row,
    column,
    fit,
    frame,
    inside,
    joined,
    merged,
    titled,
    width_of,
    wrapped,
)
from dynatui.render.rounds import is_drafted, mark, piece_text
from dynatui.render.scene import Scene
from dynatui.render.tree_layout import (
    LEAST_CELLS,
    LEAST_COLUMNS,
    Arrow,
    FigureName,
    LabelLine,
    Labels,
    LabelStyle,
    PlacedRow,
    Slot,
    TreeLayout,
    kept_ink,
    labels,
    laid_out,
)
from dynatui.render.words import shape_sentence, shape_written
from dynatui.state.tokens import repeated_length

Sign: TypeAlias = FigureName | Literal["x2", "path", "arrow"]

_PATH = 6
"""Width in cells of the column with the probability of a row's path."""
_BAR = 10
"""Width in cells of the bar to the right of the labels, including a gap of two cells."""
_SECOND = 5
_ROOMY, _MEDIUM, _CLOSE = 16, 13, 11
"""Least width of a label for each spacing, in cells."""
_ROOT_NOTE = "  last token"
_LEAST_COPY = 4
"""Least number of repeated tokens at which a repetition is marked."""


class Drawing(NamedTuple):
    rows: Rows
    signs: frozenset[Sign]
    left_out: int


@dataclass(frozen=True)
class _Tree:
    labels: Labels
    layout: TreeLayout
    paths: Sequence[float]
    room: int

    @property
    def tells_path(self) -> bool:
        return self.layout.look.aside in (_PATH, _PATH + _BAR)

    @property
    def figure_names(self) -> Sequence[FigureName]:
        return self.labels.figure_names[-self.layout.look.figures :]


def drawn_tree(
    event: Round, width: int, height: int, text: Sequence[int] = (), *, marked: int | None = None
) -> Drawing:
    """The tree of a round, in at most `height` rows; `text`: the tokens before the round, to mark repetitions."""
    paths, most = rounds.path_logprobs(event), height * max(1, width // LEAST_CELLS)
    candidates = rounds.ranked(event, paths)[: max(1, most)]
    tree = _laid_out(labels(event, candidates, marked), paths, (width, height))
    if copies := {} if rounds.is_drawn(event) else _copies(event, paths, tree.layout.shown, text):
        tree = _laid_out(replace(tree.labels, copies=copies), paths, (width, height))
    rows, left_out = _inked(tree), len(event.tokens) - len(tree.layout.shown)
    if left_out:
        rows.append(((best(width, f"+ {left_out} more nodes", f"+ {left_out}"), "dim"),))
    return Drawing(rows[: max(0, height)], _signs(tree), left_out)


def drawn_path(event: Round, width: int, height: int) -> Drawing:
    """Only the root and the accepted path, without a note on omitted nodes."""
    path = list(dict.fromkeys((0, *event.accepted)))
    nodes = path[: max(1, height * max(1, width // LEAST_CELLS))]
    tree = _laid_out(labels(event, nodes, None), rounds.path_logprobs(event), (width, height + 1))
    rows = _inked(tree)
    return Drawing(
        rows[: max(0, height)], _signs(tree), len(path) - len(tree.layout.shown) + max(0, len(rows) - height)
    )


def _laid_out(names: Labels, paths: Sequence[float], size: tuple[int, int]) -> _Tree:
    event, cells = names.event, {node: names.cells(node) for node in names.names}
    layout = laid_out(event.parents, list(names.names), event.accepted, cells, _looks(names), size)
    return _Tree(names, layout, paths, size[0] - layout.look.aside)


def _signs(tree: _Tree) -> frozenset[Sign]:
    present: Mapping[Sign, object] = {
        **dict.fromkeys(tree.figure_names, True),
        "x2": tree.labels.times,
        "path": tree.tells_path,
        "arrow": any(isinstance(placed[-1], Arrow) for placed in tree.layout.rows),
    }
    return frozenset(sign for sign, is_present in present.items() if is_present)


def _copies(event: Round, paths: Sequence[float], shown: frozenset[int], text: Sequence[int]) -> dict[int, int]:
    """For leaves whose improbable path repeats earlier text, number of repeated tokens; `auto` drafts such paths."""
    copies = {}
    for leaf in shown.difference(event.parents):
        path = [node for node in rounds.path_to(event, leaf) if rounds.is_drafted(event, node)]
        if _LEAST_COPY <= len(path) <= len(text) and rounds.probability(paths[leaf]) < rounds.LEAST_SHOWN:
            length = repeated_length(text, [event.tokens[node] for node in path])
            if length >= len(path):
                copies[leaf] = length
    return copies


def _looks(names: Labels) -> list[LabelStyle]:
    """Label styles, from the most content to the least width; the first that fits is used."""
    one_level = max(names.event.parents) <= 0 and not rounds.is_drafted(names.event, 0)
    asides = (_BAR,) if names.tells_kept or one_level else (_PATH + _BAR, _PATH)
    times = max(map(len, names.times.values()), default=0)
    several = len(names.figure_names) - 1
    looks = list[LabelStyle]()
    for second in range(several, -1, -1):
        more = second * _SECOND
        looks += [LabelStyle(1 + second, more, _ROOMY + times + more, gap=2, lead=1, aside=aside) for aside in asides]
    looks.append(LabelStyle(1, 0, _ROOMY + times, gap=1, lead=1, aside=asides[-1]))
    looks.append(LabelStyle(1, 0, _MEDIUM + times, gap=1, lead=1))
    return [*looks, LabelStyle(1, 0, _CLOSE + times, gap=1, lead=0)]


def _inked(tree: _Tree) -> Rows:
    root, figures = _heading(tree)
    edge = tree.room if tree.labels.copies else max(tree.layout.end, width_of(root) + width_of(figures))
    path = "path".rjust(_PATH) if tree.tells_path and figures else ""
    first: Row = (*fit(root, edge - width_of(figures)), *figures, (path, "dim"))
    return [first, *(_row(tree, placed, edge) for placed in tree.layout.rows[1:])]


def _heading(tree: _Tree) -> tuple[Row, Row]:
    root = tree.labels.label(0, min(tree.room, tree.labels.cells(0)), 1)
    noted: Row = root if rounds.is_drafted(tree.labels.event, 0) else (*root, (_ROOT_NOTE, "dim"))
    figures: Row = ((f"  %: {', '.join(tree.figure_names)}", "dim"),) if len(tree.layout.shown) > 1 else ()
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
            ink: Ink = "frame" if isinstance(part, LabelLine) else "dim"
            spans.append((part.text, "accepted" if part.node in names.accepted else ink))
            used += len(part.text)
    if look.aside and isinstance(placed[-1], Slot):
        spans += [(" " * (edge - used), "plain"), *_aside(tree, placed[-1].node)]
    return tuple(spans)


def _aside(tree: _Tree, node: int) -> Row:
    """Probability of the path to the node; in a sampled tree, probability that the verifier keeps the node."""
    is_sampled = tree.labels.tells_kept
    chance = tree.labels.chances[node] if is_sampled else rounds.probability(tree.paths[node])
    ink: Ink = kept_ink(chance) if is_sampled else "good" if node in tree.labels.accepted else "bar"
    path: Row = ((f"{rounds.chance_percent(chance):>{_PATH}}", "dim"),) if tree.tells_path else ()
    bars: Row = (("  ", "plain"), (bar(chance, _BAR - 2), ink)) if tree.layout.look.aside >= _BAR else ()
    return (*path, *bars)


def titles(event: Round, stage: StageName = "committed") -> tuple[str, ...]:
    """Title of a round's tree, in wordings, the longest first; if the round stalled, with the lost time."""
    wordings = _progress(event, stage)
    if not event.stalled_s:
        return wordings
    stalled = f"stalled {short(event.stalled_s)} s"
    return (*(f"{words}, {stalled}" for words in wordings), stalled)


def _progress(event: Round, stage: StageName) -> tuple[str, ...]:
    drafted, accepted = drafted_nodes(event), len(event.accepted)
    name = f"round {nth(event.round)}: "
    if not drafted and event.draft_forwards is not None:
        without = "no draft" if event.draft_forwards == 0 else "no guess kept"
        text = "the last token" if event.limited_by == LENGTH else without
        return f"{name}{text}", text
    if stage == "drafted":
        return f"{name}{drafted} drafted, not yet verified", f"{name}{drafted} drafted, unverified"
    if stage == "verified":
        kept = f"{name}{accepted} kept, not committed"
        return f"{name}{drafted} drafted, {accepted} accepted, not committed", kept
    grown = f"drawn as {shape_written(event.shape)}" if event.shape else "drafted"
    return f"{name}{drafted} {grown}, {accepted} accepted", f"{name}{accepted} of {drafted} accepted"


MOST = 15
_TOGETHER = 3
"""Number of trees side by side in a wide panel."""
_GAP, _RULE = "  ", "── "
_INKS: dict[Ink, Ink] = {"accepted": "good", "frame": "frame"}


def past_trees(events: Sequence[Round], width: int, height: int) -> Rows:
    """Trees of earlier rounds, the newest first, three side by side in a wide panel. A tree that does not fit gives way
    to its accepted path, and the first round whose path does not fit is the last.
    """
    if not any(map(drafted_nodes, events)):
        return []
    cells = (width - (_TOGETHER - 1) * len(_GAP)) // _TOGETHER
    abreast, cells = (_TOGETHER, cells) if cells >= LEAST_COLUMNS else (1, width)
    rows: Rows = []
    for place in range(0, len(events), abreast):
        pictures = (_picture(event, cells, height - len(rows)) for event in events[place : place + abreast])
        trees = [*takewhile(bool, pictures)]
        beside = zip_longest(*trees, fillvalue=())
        rows += [joined((fit(row, cells) for row in each), ((_GAP, "plain"),)) for each in beside]
        if len(trees) < abreast:
            break
    return rows


def _picture(event: Round, width: int, height: int) -> Rows:
    """The whole tree or its accepted path under a heading, without a root that is already text; empty if none fits."""
    name = f"round {nth(event.round)}"
    title = best(width - len(_RULE), *(words for words in titles(event) if words.startswith(name)), name)
    heading: Row = ((_RULE, "frame"), (title, "plain"), (f" {'─' * width}", "frame"))
    root = int(not is_drafted(event, 0))
    for draw in (drawn_tree, drawn_path):
        drawing = draw(event, width, height - 1 + root)
        if height > 0 and not drawing.left_out:
            rows = drawing.rows[root:]
            return [fit(heading, width), *(tuple((text, _INKS.get(ink, "dim")) for text, ink in row) for row in rows)]
    return []


_LONGEST_NAME = 14
_SHORTEST_NAME = 5
_NOTE = (
    "A filled cell: the row's token sees the column's token. This is the attention mask of the one pass that checks "
    "the tree; every row sees also all of the preceding text."
)
_BRIEF_NOTE = "a filled cell: the row sees the column"


def _mask(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    """A row and a column for each node, in the order of the verification pass; the least probable nodes give way."""
    event, token = rounds.shown_round(scene), scene.inspected
    if event is None:
        return titled("Mask"), [(("attention between the guesses of the tree, once there is a tree", "dim"),)]
    total, notes = len(event.tokens), wrapped([(_NOTE, "dim")], width)
    if total + 1 + len(notes) > height:
        notes = [((_BRIEF_NOTE, "dim"),)]
    count = max(1, min(total, width, height - 1 - len(notes)))
    if count < total:
        notes = [((f"+ {total - count} more nodes; {_BRIEF_NOTE}", "dim"),)]
    nodes = sorted(rounds.ranked(event, rounds.path_logprobs(event))[:count])
    cell = 2 if 2 * count + _SHORTEST_NAME <= width else 1
    name = min(width - cell * count - 1, _LONGEST_NAME)
    inks: dict[int, Ink] = {node: "accepted" if node in event.accepted else "plain" for node in nodes}
    if token is not None and token.node in inks:
        inks[token.node] = "caret"
    labels = [""] * count
    if name >= _SHORTEST_NAME:
        labels = [column(f"{mark(event, node) or ' '} {piece_text(event.pieces[node])}", name) + " " for node in nodes]
    rows = [((" " * len(labels[0]), "plain"), *merged([(mark(event, node).ljust(cell), inks[node]) for node in nodes]))]
    for node, label in zip(nodes, labels, strict=True):
        seen = rounds.path_to(event, node)
        filled: Span = ("█" * cell, "accepted") if node in event.accepted else ("▒" * cell, "bar")
        cells = [filled if other in seen else ("·".ljust(cell), "frame") for other in nodes]
        rows.append(((label, inks[node]), *merged(cells)))
    rows += [()] * (height - len(notes) - len(rows))
    return titled("Mask", f"round {nth(event.round)}: who sees whom"), [*rows, *notes]


_ALONE: Mapping[Limit | None, str] = {
    "cost": "the target decodes alone: guesses would cost more time than they save",
    "context": "the target decodes alone: the context has no room for guesses",
    LOST: "the target decodes alone: the draft's logits are NaN or infinite",
    LENGTH: "the text ends with this token: no guess could have become text",
}
_GROWN: Mapping[Sign, str] = {
    "prob.": "prob.: how likely the draft finds it.",
    "chance": "chance: how likely the target keeps it.",
    "path": "path: their product from the root.",
    "arrow": "→1: continues at 1→.",
}
_SAMPLED: Mapping[Sign, str] = {
    "x2": "x2: the token was sampled twice.",
    "prob.": "prob.: the draft's probability of the token at this temperature.",
    "kept": "kept, colour: how likely the verifier keeps it, given this tree.",
    "arrow": "→1: continues at 1→.",
}
_TITLE = len("╭─ Tree ─  ─╮")
_FEW = 1
"""Maximum number of earlier trees on a slow connection: each round moves all these trees, which costs bytes."""
_LEAST = 4
"""Least number of rows at which the panel shows more than the accepted path."""


def tree(scene: Scene, width: int, height: int) -> Rows:
    size = width, height
    inner, room = inside(size)
    if scene.mask:
        return frame(*_mask(scene, inner, room), size)
    event = rounds.shown_round(scene)
    if event is None:
        return frame(titled("Tree"), [(("each round grows a tree of guesses here", "dim"),)], size)
    stage, ending = scene.held_stage, _ending(scene, event, inner)
    title = titled("Tree", best(width - _TITLE, *titles(event, stage.name if stage else "committed")))
    if room < _LEAST:
        path = drawn_path(event, inner, 2).rows[-1:]
        return frame(title, [*([title] if room == height else []), *path, ending][:room], size)
    below = caption(scene, inner, room // 2) if scene.panel == "tree" else []
    room -= len(below) + 1
    token = scene.inspected
    drawing = drawn_tree(event, inner, room, rounds.before(scene, event), marked=token.node if token else None)
    body = drawing.rows
    if drafted_nodes(event) == 0 and event.knobs is not None:
        reason = _ALONE.get(event.limited_by, "the target decodes alone")
        body += wrapped([(reason, "dim")], inner)[: max(0, room - len(body))]
    explained = [row for words in _explained(scene, event, drawing.signs) for row in wrapped([(words, "dim")], inner)]
    if len(body) + len(explained) >= room:
        explained = []
    free = room - len(body) - len(explained)
    past = past_trees(rounds.earlier(scene, _FEW if scene.meters.slow_line else MOST), inner, free - 1)
    return frame(title, [*body, *[()] * (1 if past else free), *explained, ending, *below, *past], size)


def _explained(scene: Scene, event: Round, signs: frozenset[Sign]) -> list[str]:
    """What the shape of a sampled tree, the expectation, and the shown signs mean."""
    drawn, sentences = rounds.is_drawn(event), list[str]()
    if drawn and (shape := shape_sentence(scene.state, event)):
        sentences.append(f"{shape}.")
    if drawn and event.verification and event.verification.predicted_tokens is not None:
        expected = short(event.verification.predicted_tokens)
        sentences.append(f"This tree gave {len(event.accepted) + 1} tokens; {expected} were expected.")
    meanings = _SAMPLED if drawn else _GROWN
    return [*sentences, " ".join(words for sign, words in meanings.items() if sign in signs)]


def _ending(scene: Scene, event: Round, width: int) -> Row:
    """The legend, and the token that the target added to the accepted path."""
    stage, bonus = scene.held_stage, rounds.bonus_of(scene, event)
    if event.draft_forwards is None:
        return (("this method does not report its draft", "dim"),)
    if stage is not None and stage.name == "drafted":
        return (("○ a guess", "plain"), ("  the target has not verified it yet", "dim"))
    legend: Row = (("● accepted", "accepted"), ("  ○ rejected", "plain")) if drafted_nodes(event) else ()
    if "lookup" in event.origins:
        legend = (("●◆ accepted", "accepted"), ("  ◆◇ looked up", "dim"))
    if bonus is None:
        return legend
    token: Span = (piece_text(bonus.text), "bonus")
    gap = "  " if legend else ""
    return best_row(width, (*legend, (f"{gap}+ target: ", "dim"), token), (*legend, (f"{gap}+ ", "dim"), token))
