"""Labels of a tree's nodes: mark, token, one or two probabilities, of which growth or verification uses the last."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rich.cells import cell_len

from decoder.events import Round
from dynatui.render import rounds
from dynatui.render.ink import Ink, Row, best, column

FigureName: TypeAlias = Literal["prob.", "chance", "kept"]

LEAST_CELLS = 10
"""Width in cells of a short label with the line that leads to it."""
_LONGEST = 18
_SHORTEST, _LEAST = 5, 3
"""Least width of mark and token in cells: the first value if figures follow, the second value if a remark follows."""
_FIGURE = 3
_TIMES = 4
_LIKELY, _POSSIBLE, _UNLIKELY = 0.5, 0.2, 0.05
"""Thresholds of the probability that the verifier keeps a sampled node; at each threshold the node's colour changes."""


@dataclass(frozen=True)
class Labels:
    event: Round
    marked: int | None
    tells_kept: bool
    """Whether the last figure is the probability that the verifier keeps the node."""
    accepted: frozenset[int]
    names: Mapping[int, str]
    """Mark and token of each node."""
    chances: Mapping[int, float]
    """Probability in the last figure of each drafted node."""
    figures: Mapping[int, str]
    times: Mapping[int, str]
    """How often a node was sampled, if more than once."""
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def figure_names(self) -> tuple[FigureName, ...]:
        if self.tells_kept:
            return "prob.", "kept"
        return ("prob.", "chance") if self.event.draft_logprobs else ("prob.",)

    def cells(self, node: int) -> int:
        name = min(_LONGEST, cell_len(self.names[node]))
        if node in self.copies:
            return name + len(_remarks(self.copies[node])[-1])
        figure = 1 + len(self.figures[node]) if node in self.figures else 0
        return name + len(self.times.get(node, "")) + figure

    def label(self, node: int, cells: int, figures: int) -> Row:
        if node in self.copies:
            return self._remarked(node, cells)
        name, ink = self.names[node], self.ink(node)
        if node not in self.figures:
            return ((column(name, cells), ink),)
        last, times, first = f" {self.figures[node]}", self.times.get(node, ""), ""
        if figures > 1:
            logprob = (self.event.draft_logprobs or self.event.logprobs)[node]
            last, first = last.rjust(1 + _FIGURE), f" {percent(rounds.probability(logprob))}"
        room, needed = cells - len(times) - len(first) - len(last), cell_len(name)
        if room < min(needed, _SHORTEST):
            return ((column(name, cells), ink),)
        token = name + " " * (room - needed) if needed <= room else column(name, room)
        between: Row = ((times, "strong"), (first, "dim")) if times or first else ()
        return ((token, ink), *between, (last, self.figure_ink(node)))

    def _remarked(self, node: int, cells: int) -> Row:
        name, remarks = self.names[node], _remarks(self.copies[node])
        needed = cell_len(name)
        words = next((words for words in remarks if min(needed, _SHORTEST) + len(words) <= cells), remarks[-1])
        room = min(needed, max(_LEAST, cells - len(words)))
        return ((column(name, min(room, cells)), self.ink(node)), (column(words, cells - room), "warn"))

    def ink(self, node: int) -> Ink:
        if node == self.marked:
            return "caret"
        return "accepted" if node in self.accepted else "plain" if node in self.figures else "strong"

    def figure_ink(self, node: int) -> Ink:
        ink = self.ink(node)
        if self.tells_kept and ink != "caret":
            return kept_ink(self.chances[node])
        return "dim" if ink == "plain" else ink


def _remarks(copy: int) -> tuple[str, ...]:
    """Wordings of the remark that a path repeats earlier text, the longest first."""
    return f" repeats {copy} tokens", f" repeats {copy}", f" rep. {copy}"


def labels(event: Round, nodes: Iterable[int], marked: int | None) -> Labels:
    reach = event.verification.reach if event.verification and rounds.is_drawn(event) else []
    names, chances = dict[int, str](), dict[int, float]()
    for node in nodes:
        names[node] = f"{rounds.mark(event, node)} {rounds.piece_text(event.pieces[node])}".removeprefix(" ")
        if rounds.is_drafted(event, node):
            drawn = rounds.probability(event.logprobs[node])
            chances[node] = rounds.kept_chance(event, node) or 0.0 if reach else drawn
    figures = {node: percent(chance) for node, chance in chances.items()}
    times = {node: best(_TIMES, f" x{count}") for node, count in enumerate(event.drawn) if count > 1}
    return Labels(event, marked, bool(reach), frozenset(event.accepted), names, chances, figures, times)


def percent(probability: float) -> str:
    """The probability as a percentage in at most four cells."""
    return "<1%" if probability < rounds.LEAST_SHOWN else f"{100 * probability:.0f}%"


def kept_ink(chance: float) -> Ink:
    if chance >= _LIKELY:
        return "good"
    return "second" if chance >= _POSSIBLE else "bar" if chance >= _UNLIKELY else "dim"
