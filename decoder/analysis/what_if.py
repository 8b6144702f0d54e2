"""What other tau_h, tau_l and D0 would have drafted and accepted in recorded rounds, where the record can tell.

A recorded tree holds the draft's probabilities of the tokens that it drafted and of no others. Where the replayed rule
asks for less than was recorded, all is known; where it asks for more, the tree is known up to there, and what is sure
stands as a lower bound. At the end of the accepted path the target chose a token that was not drafted; whether a wider
or deeper tree would have held it is not in the record.

An estimate all the same: every round is taken by itself, from the place where it began, while under other rules the
rounds would have begun at other places; and history is taken to stand still. Knows neither models nor screens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.analysis.rule_replay import Judged, Record, judged
from decoder.events import LENGTH, Round
from decoder.knobs import KNOB_GAP
from decoder.methods import root_is_drafted
from decoder.methods.adaptive import AdaptiveTree
from decoder.tree import depths
from decoder.tree_rules import used_depth

ROUNDS = 50
"""So many of the newest rounds are looked at."""
LEAST_SHARE = 0.5
"""A cell is shown when at least this share of the rounds could be judged."""
LEAST_ROUNDS = 5
"""A cell is shown when at least so many rounds could be judged."""
ALIKE = 0.005
"""Tokens a round that differ by less are the same."""
_NODES = 6000
"""Fewer rounds are looked at when their trees are larger than this together."""
_DEEPEST = 128
"""No tree of ours is as deep."""
_LINES = 5
"""Rows and columns of a table, where the bounds have room for them."""
_SLACK = 1e-6
"""Steps add up to a bound within this."""

Axis: TypeAlias = Literal["tau_h", "tau_l"]


@dataclass(frozen=True)
class Cell:
    """What one pair of values would have done, over all rounds of the record.

    A round that could not be judged counts with what is sure, so a mean is exact when every round was judged, and else
    a lower bound: without such rounds it would be biased, since a record tells least about the rounds that went best.
    """

    rounds: int
    judged: int
    """Rounds whose tokens are known."""
    tokens: float
    """Tokens per round (L-bar), or at least so many."""
    drafted_judged: int
    """Rounds whose drafted nodes are known."""
    drafted: float
    """Drafted nodes a round, or at least so many."""

    @property
    def share(self) -> float:
        """Share of the rounds whose tokens are known."""
        return self.judged / self.rounds if self.rounds else 0.0

    @property
    def exact(self) -> bool:
        """Whether `tokens` is a value and no bound."""
        return 0 < self.rounds == self.judged

    @property
    def drafted_exact(self) -> bool:
        """Whether `drafted` is a value and no bound."""
        return 0 < self.rounds == self.drafted_judged

    @property
    def known(self) -> bool:
        """Whether enough rounds were judged to say anything."""
        return self.judged >= LEAST_ROUNDS and self.share >= LEAST_SHARE


@dataclass(frozen=True)
class Grid:
    """Cells over two knobs: a row for each value of one, a column for each D0."""

    down: Axis
    rows: tuple[float, ...]
    """Rising values of `down`."""
    columns: tuple[float, ...]
    """Rising values of D0 as it is used, whole numbers."""
    cells: tuple[tuple[Cell, ...], ...]
    present: tuple[int, int]
    """Row and column of the values in force."""

    @property
    def here(self) -> Cell:
        """The cell of the values in force."""
        row, column = self.present
        return self.cells[row][column]

    def places(self) -> list[tuple[int, int]]:
        """Row and column of the cells of which enough is known."""
        return [(i, j) for i, row in enumerate(self.cells) for j, cell in enumerate(row) if cell.known]


@dataclass(frozen=True)
class WhatIf:
    """The tables that the screen shows, both around the values in force."""

    breadth: Grid
    """tau_h down, D0 across."""
    doubt: Grid
    """tau_l down, D0 across."""
    rounds: int
    """Rounds that were looked at."""
    by_costs: bool = False
    """Whether costs have cut the trees."""

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """Both tables."""
        return self.breadth, self.doubt

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells of both tables."""
        return tuple(cell for grid in self.grids for row in grid.cells for cell in row)

    def best(self) -> tuple[Grid, int, int] | None:
        """Table, row and column of the known cell with the most tokens a round.

        Among those that are alike: where the drafted nodes are known, then the fewest of them, then what is next to the
        values in force.
        """
        places = [(grid, row, column) for grid in self.grids for row, column in grid.places()]
        return max(places, key=lambda place: _merit(*place), default=None)


def what_if(past: Sequence[Round], rules: AdaptiveTree) -> WhatIf | None:
    """Both tables around the rules in force, from the newest rounds of one method; None when there is none to judge.

    The rounds, oldest first, were drafted under these rules but for tau_h, tau_l and D0, of which each tells its own.
    """
    rounds = _newest(past)
    if not rounds:
        return None
    record = Record(rounds)
    by_cost = rules.rule().budget.by_cost
    return WhatIf(_grid(record, rules, "tau_h"), _grid(record, rules, "tau_l"), len(rounds), by_cost)


def _has_tree(event: Round) -> bool:
    """Whether the round tells a whole tree by these rules with an accepted path; a recording may claim anything."""
    if event.knobs is None or root_is_drafted(event.method) or event.limited_by == LENGTH:
        return False
    if max(depths(event.parents)) > _DEEPEST:
        return False
    above = [0, *event.accepted]
    return all(event.parents[node] == parent for parent, node in zip(above, event.accepted, strict=False))


def _newest(past: Sequence[Round]) -> list[Round]:
    rounds: list[Round] = []
    nodes = 0
    for event in reversed(past[-ROUNDS:]):
        nodes += len(event.tokens)
        if nodes > _NODES and rounds:
            break
        if _has_tree(event):
            rounds.append(event)
    return rounds[::-1]


def _around(value: float, low: float, high: float, step: float) -> tuple[float, ...]:
    """The value and its nearest neighbours at whole steps within the bounds, rising."""
    apart = [step * count for count in range(-_LINES, _LINES + 1)]
    inside = [value + way for way in apart if low - _SLACK <= value + way <= high + _SLACK or way == 0]
    nearest = sorted(inside, key=lambda other: abs(other - value))[:_LINES]
    return tuple(sorted(other if other == value else min(high, max(low, other)) for other in nearest))


def _grid(record: Record, rules: AdaptiveTree, down: Axis) -> Grid:
    value, low, high = rules.tau_h, rules.tau_l + KNOB_GAP, 1.0
    if down == "tau_l":
        value, low, high = rules.tau_l, KNOB_GAP, rules.tau_h - KNOB_GAP
    used = float(used_depth(rules.d0))
    rows, columns = _around(value, low, high, 0.1), _around(used, 1.0, rules.d_max - 1.0, 1.0)
    cells = []
    for row in rows:
        turned = replace(rules, tau_h=row) if down == "tau_h" else replace(rules, tau_l=row)
        cells.append(tuple(_cell(judged(record, replace(turned, d0=d0).rule())) for d0 in columns))
    return Grid(down, rows, columns, tuple(cells), (rows.index(value), columns.index(used)))


def _cell(judged: Judged) -> Cell:
    return Cell(
        rounds=len(judged.tokens),
        judged=int(judged.tokens_known.sum()),
        tokens=float(judged.tokens.mean()),
        drafted_judged=int(judged.drafted_known.sum()),
        drafted=float(judged.drafted.mean()),
    )


def _merit(grid: Grid, row: int, column: int) -> tuple[int, bool, float, int]:
    cell, (here_row, here_column) = grid.cells[row][column], grid.present
    way = abs(row - here_row) + abs(column - here_column)
    return round(cell.tokens / ALIKE), cell.drafted_exact, -round(cell.drafted, 1), -way
